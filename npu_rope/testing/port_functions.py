"""The functions of torch_npu that suite ``torch_npu`` calls: their arguments, limits and expectations."""

from __future__ import annotations

from collections.abc import Mapping
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
EPSILON = 1e-5
CACHE_ROWS = 50


@dataclass(frozen=True)
class PortCase:
    """One call of a function that torch_npu and ``npu_rope.compat.torch_npu`` have.

    Attributes:
        function: the function's name.
        form: the name of this kind of call.
        shape: the shape of x or query; of npu_mrope ``[T, N, D]``.
        table: the shape of cos and sin, or of gamma; of npu_mrope the width of the cache.
        keys: the number of key's heads.
        mode: the pairs: half, interleave or quarter.
        layout: npu_apply_rotary_pos_emb's layout.
        sections: npu_mrope's sections.
        cache_mode: npu_mrope's assignment of pairs to kinds of positions.
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
        return f"documentation of torch_npu.{self.function}"


class Function:
    """A function of torch_npu.

    Attributes:
        tables: the arguments that are float32 in a ``wide`` case.
        results: the names of the results.
        written: the arguments that the function overwrites; they are its results.
        aclnn: CANN's function that torch_npu calls.
        not_on_310p: why the function does not run on Ascend310P; empty if its document lists that chip.
        invalid_on_310p: the results that are invalid there by that document.
        types: the types of x in that document.
    """

    tables: tuple[str, ...] = ()
    results: tuple[str, ...] = ("y",)
    written: tuple[str, ...] = ()
    aclnn: str
    not_on_310p = "its aclnn function does not run on Ascend310P"
    invalid_on_310p: tuple[str, ...] = ()
    types: tuple[str, ...] = ("float32", "float16", "bfloat16")

    def shapes(self, case: PortCase) -> Shapes:
        """Return the shape of each tensor by name, in the order of the arguments."""
        raise NotImplementedError

    def options(self, case: PortCase) -> dict[str, Any]:
        """Return the other arguments."""
        return {}

    def expected(self, case: PortCase, arrays: Arrays, backend: str) -> list[Expectation]:
        """Return the results' expectations for a back end; ``backend`` is empty for torch_npu itself."""
        raise NotImplementedError


class _RotaryMul(Function):
    tables = ("r1", "r2")
    aclnn = "aclnnRotaryPositionEmbedding"
    # op-plugin RotaryMulKernelNpuOpApi.cpp
    not_on_310p = "it calls the aclop RotaryMul on Ascend310P, whose roundings have no source"

    def shapes(self, case: PortCase) -> Shapes:
        return {"input": case.shape, "r1": case.table, "r2": case.table}

    def options(self, case: PortCase) -> dict[str, Any]:
        return {"rotary_mode": case.mode}

    def expected(self, case: PortCase, arrays: Arrays, backend: str) -> list[Expectation]:
        cos, sin = arrays["r1"], arrays["r2"]
        if not backend:  # torch_npu converts the tables to the dtype of input
            cos, sin = (rounded(table.astype(np.float64), case.dtype) for table in (cos, sin))
        return [port_spec.rotation(arrays["input"], cos, sin, case.mode, case.dtype)]


class _ApplyRotaryPosEmb(Function):
    results = ("query", "key")
    written = ("query", "key")
    aclnn = "aclnnApplyRotaryPosEmbV2"

    def shapes(self, case: PortCase) -> Shapes:
        heads = case.layout.index("N")
        key = (*case.shape[:heads], case.keys, *case.shape[heads + 1 :])
        return {"query": case.shape, "key": key, "cos": case.table, "sin": case.table}

    def options(self, case: PortCase) -> dict[str, Any]:
        return {"layout": case.layout, "rotary_mode": case.mode}

    def expected(self, case: PortCase, arrays: Arrays, backend: str) -> list[Expectation]:
        compute = "float16" if case.dtype == "float16" and not backend else ""
        cos, sin = arrays["cos"], arrays["sin"]
        return [
            port_spec.rotation(arrays[name], cos, sin, case.mode, case.dtype, compute)
            for name in self.written
        ]


class _InterleaveRope(Function):
    aclnn = "aclnnInterleaveRope"
    types = ("float16", "bfloat16")

    def shapes(self, case: PortCase) -> Shapes:
        return {"x": case.shape, "cos": case.table, "sin": case.table}

    def expected(self, case: PortCase, arrays: Arrays, backend: str) -> list[Expectation]:
        x = port_spec.evens_first(arrays["x"])
        return [port_spec.rotation(x, arrays["cos"], arrays["sin"], "half", case.dtype)]


class _Mrope(Function):
    results = ("query", "key")
    aclnn = "aclnnRopeWithSinCosCache"

    def shapes(self, case: PortCase) -> Shapes:
        tokens, heads, size = case.shape
        positions = (len(case.sections), tokens) if any(case.sections) else (tokens,)
        query, key = (tokens, heads * size), (tokens, case.keys * size)
        return {
            "positions": positions,
            "query": query,
            "key": key,
            "cos_sin_cache": (CACHE_ROWS, *case.table),
        }

    def options(self, case: PortCase) -> dict[str, Any]:
        # Without mrope_section, torch_npu 2.13 passes numbers from memory that is no longer valid.
        return {
            "head_size": case.shape[2],
            "mrope_section": list(case.sections),
            "rotary_mode": case.mode,
            "cache_mode": case.cache_mode,
        }

    def expected(self, case: PortCase, arrays: Arrays, backend: str) -> list[Expectation]:
        tokens, _, head_size = case.shape
        cos, sin = port_spec.rows_of_cache(
            arrays["cos_sin_cache"], arrays["positions"], case.sections, case.cache_mode, case.mode
        )
        found = []
        for name in ("query", "key"):
            heads = arrays[name].reshape(tokens, -1, head_size)
            by_head = port_spec.rotation(heads, cos, sin, case.mode, case.dtype)
            found.append(Expectation(by_head.value.reshape(tokens, -1), by_head.bound.reshape(tokens, -1)))
        return found


class _RmsNorm(Function):
    tables = ("gamma",)
    results: tuple[str, ...] = ("y", "rstd")
    aclnn = "aclnnRmsNorm"
    not_on_310p = ""

    def shapes(self, case: PortCase) -> Shapes:
        return {"input": case.shape, "gamma": case.table}

    def options(self, case: PortCase) -> dict[str, Any]:
        return {"epsilon": EPSILON}

    def expected(self, case: PortCase, arrays: Arrays, backend: str) -> list[Expectation]:
        return port_spec.rms_norm(_norm_of(case, arrays["input"], arrays["gamma"]), backend)


class _GemmaRmsNorm(_RmsNorm):
    aclnn = "aclnnGemmaRmsNorm"
    not_on_310p = Function.not_on_310p

    def expected(self, case: PortCase, arrays: Arrays, backend: str) -> list[Expectation]:
        return port_spec.gemma_rms_norm(_norm_of(case, arrays["input"], arrays["gamma"]), backend)


class _AddRmsNorm(_RmsNorm):
    results = ("y", "rstd", "x")
    aclnn = "aclnnAddRmsNorm"
    invalid_on_310p = ("rstd",)

    def shapes(self, case: PortCase) -> Shapes:
        return {"x1": case.shape, "x2": case.shape, "gamma": case.table}

    def expected(self, case: PortCase, arrays: Arrays, backend: str) -> list[Expectation]:
        norm = _norm_of(case, arrays["x1"], arrays["gamma"])
        return port_spec.add_rms_norm(norm, arrays["x2"].astype(np.float64), backend)


def _norm_of(case: PortCase, x: Array, gamma: Array) -> port_spec.Norm:
    gamma_dtype = "float32" if case.wide else case.dtype
    return port_spec.Norm(x.astype(np.float64), gamma.astype(np.float64), case.dtype, gamma_dtype, EPSILON)


FUNCTIONS: Mapping[str, Function] = {
    "npu_rotary_mul": _RotaryMul(),
    "npu_apply_rotary_pos_emb": _ApplyRotaryPosEmb(),
    "npu_interleave_rope": _InterleaveRope(),
    "npu_mrope": _Mrope(),
    "npu_rms_norm": _RmsNorm(),
    "npu_gemma_rms_norm": _GemmaRmsNorm(),
    "npu_add_rms_norm": _AddRmsNorm(),
}
