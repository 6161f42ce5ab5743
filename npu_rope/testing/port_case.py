"""A case of suite ``torch_npu``, and what the suite has to know of each function that a case calls: its
arguments, limits and expectations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_rope.testing import port_spec
from npu_rope.testing.cases import SHORT, rounded
from npu_rope.testing.outcomes import Expectation

Array = npt.NDArray[Any]
Arrays = dict[str, Array]
Shapes = dict[str, tuple[int, ...]]
Generator = np.random.Generator
EPSILON = 1e-5
CACHE_ROWS = 50
# The sources of the formulas of functions that have no page in torch_npu's documentation.
SOURCES = {
    "_npu_rotary_embedding": "op-plugin op_plugin/ops/atb/RopeAtb.cpp",
    "npu_qkv_rms_norm_rope_cache": "documentation of aclnnQkvRmsNormRopeCache",
}


@dataclass(frozen=True)
class PortCase:
    """One call of a function that torch_npu and ``npu_rope.compat.torch_npu`` have.

    Attributes:
        function: the function's name.
        form: the name of this kind of call.
        shape: the shape of x, kv or query; of npu_mrope, _npu_rotary_embedding and
            npu_qkv_rms_norm_rope_cache ``[T, N, D]``.
        table: the shape of cos and sin, or of gamma; the width of npu_mrope's and _npu_rotary_embedding's
            cache.
        keys: the number of key's heads.
        mode: the pairs: half, interleave or quarter.
        layout: npu_apply_rotary_pos_emb's layout.
        sections: npu_mrope's sections.
        cache_mode: npu_mrope's assignment of pairs to kinds of positions; for stores, the layout of the
            caches.
        rows: the sizes of a store's caches: in mode Norm the rows of each batch, otherwise the blocks and the
            rows of a block.
        values: the width of npu_kv_rmsnorm_rope_cache's v; 0: no v.
        quantized: the tensors of an int8 cache: ``"scale"``, ``"scale, offset"``; empty: the cache has the
            type of x.
        outputs: whether a store also returns what it stores.
        wide: whether the tables or gamma are float32 for every dtype of x.
        limit: the documented limit of torch_npu's function that the call breaks; empty: none.
    """

    function: str
    form: str
    dtype: str
    shape: tuple[int, ...]
    table: tuple[int, ...]
    keys: int = 0
    mode: str = "half"
    layout: str = "BSND"
    sections: tuple[int, ...] = (0, 0, 0)
    cache_mode: str = "default"
    rows: tuple[int, ...] = ()
    values: int = 0
    quantized: str = ""
    outputs: bool = False
    wide: bool = False
    limit: str = ""
    suite: str = field(default="torch_npu", init=False)

    @property
    def name(self) -> str:
        """The name, unique within the suite."""
        sizes = str(list(self.shape)).replace(" ", "")
        return f"{self.function}/{self.form}(type={SHORT[self.dtype]},shape={sizes})"

    @property
    def op(self) -> str:
        """The name of the operation in reports."""
        return self.function.upper()

    @property
    def source(self) -> str:
        """The source of the formula."""
        return SOURCES.get(self.function, f"documentation of torch_npu.{self.function}")


class PortFunction:
    """A function of torch_npu.

    Attributes:
        tables: the arguments that are float32 in a ``wide`` case.
        indices: the arguments that are int64.
        results: the names of the results: the arguments that the function overwrites come first.
        written: the arguments that the function overwrites.
        returns_written: whether it returns these arguments.
        aclnn: CANN's function that torch_npu calls, or ATB's operation.
        operators: npu_rope's operators that its function calls on an NPU.
        not_simulated: why the function does not run on the simulated CANN; empty if it does.
        not_on_310p: why the function does not run on Ascend310P; empty if its document lists that chip.
        invalid_on_310p: the results that are invalid there by that document.
        types: the types of x in that document.
    """

    tables: tuple[str, ...] = ()
    indices: tuple[str, ...] = ("positions",)
    results: tuple[str, ...] = ("y",)
    written: tuple[str, ...] = ()
    returns_written = True
    aclnn: str
    operators: tuple[str, ...] = ()
    not_simulated = ""
    not_on_310p = "its aclnn function does not run on Ascend310P"
    invalid_on_310p: tuple[str, ...] = ()
    types: tuple[str, ...] = ("float32", "float16", "bfloat16")

    def shapes(self, case: PortCase) -> Shapes:
        """Return the shape of each tensor by name, in the order of the arguments."""
        raise NotImplementedError

    def options(self, case: PortCase) -> dict[str, Any]:
        """Return the other arguments."""
        return {}

    def keywords(self, case: PortCase) -> tuple[str, ...]:
        """Return the tensors that are passed by name."""
        return ()

    def limit(self, case: PortCase) -> str:
        """Return the documented limit that the call breaks, besides its type; empty: none."""
        return case.limit

    def results_of(self, case: PortCase) -> tuple[str, ...]:
        """Return the names of the results of a case."""
        return self.results

    def dtype_of(self, case: PortCase, name: str) -> str:
        """Return the type of a tensor or a result."""
        if name in self.indices:
            return "int64"
        return "float32" if case.wide and name in self.tables else case.dtype

    def values(self, case: PortCase, name: str, shape: tuple[int, ...], generator: Generator) -> Array:
        """Return random values of a tensor, rounded to its type."""
        dtype = self.dtype_of(case, name)
        if dtype == "int64":
            return generator.integers(0, CACHE_ROWS, shape)
        if dtype == "int8":
            return generator.integers(-128, 128, shape).astype(np.int8)
        return rounded(generator.uniform(-2, 2, shape), dtype)

    def expected(self, case: PortCase, arrays: Arrays, backend: str) -> list[Expectation]:
        """Return the results' expectations for a back end; ``backend`` is empty for torch_npu itself."""
        raise NotImplementedError


def norm_of(case: PortCase, x: Array, gamma: Array) -> port_spec.Norm:
    """Return the norm of x, with the types of the case."""
    gamma_dtype = "float32" if case.wide else case.dtype
    return port_spec.Norm(x.astype(np.float64), gamma.astype(np.float64), case.dtype, gamma_dtype, EPSILON)
