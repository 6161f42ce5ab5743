"""Suite ``qkv`` of ``npu-rope validate``: qkv_norm_rope_cache and qk_square_sums.

``qkv_data.py`` makes a case's values, call and expected results; ``qkv_judge.py`` runs and judges it. A form
is a kind of call; each form has a case for each dtype.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from npu_rope.params import RopeParams
from npu_rope.qkv_norm_rope_cache_calls import CACHES, XS, QkvAttributes
from npu_rope.testing.cases import SHORT
from npu_rope.testing.chip_types import rounded_for

DTYPES = ("float32", "float16", "bfloat16")
SOURCE = "docs/ops/qkv_norm_rope_cache.md"
RANKS = 2  # of calls with square_sums


@dataclass(frozen=True)
class QkvCase:
    """One call of qkv_norm_rope_cache.

    Attributes:
        name: unique within the suite.
        shape: of q, ``[S,N,D]``.
        keys: the number of heads of k and of v.
        value_size: the size of v's heads; 0: D.
        view: "separate" tensors; "fused" (q, k and v are views of one tensor); "gated" (a gate follows each
            head of q).
        norm: "none"; of each of the "heads"; of "all" heads of a token; with "sums" of squares of two ranks.
        bias: the norms have biases.
        wide: scales, biases and tables are float32.
        tables: "" (frequencies), or tables with an entry for "pairs" or for "lanes".
        by_token: token s reads row s of the tables; the call has no positions.
        start: the first token's position.
        planes: the number of axes of the positions in the modes with sections.
        index: the type of positions and slots.
        writes: "new" results, "given" memory, "in place", or "caches".
        layout: of the caches: "rows", "blocks", or "blocks of heads" (each head has a block's rows).
        k_cache, v_cache: the types of the caches; "": q's.
        quantized: int8 caches have a factor for each "tensor", "head" or "channel".
        quant_offset: they also have offsets.
        stores: two of three tokens are stored; otherwise none.
    """

    name: str
    dtype: str
    params: RopeParams
    shape: tuple[int, ...] = (9, 8, 128)
    keys: int = 2
    value_size: int = 0
    view: str = "separate"
    norm: str = "heads"
    bias: bool = False
    wide: bool = False
    epsilon: float = 1e-6
    scale_offset: float = 0.0
    freq_factors: bool = False
    tables: str = ""
    by_token: bool = False
    start: int = 1000
    planes: int = 4
    index: str = "int64"
    writes: str = "caches"
    layout: str = "blocks"
    k_cache: str = ""
    v_cache: str = ""
    quantized: str = "tensor"
    quant_offset: bool = False
    stores: bool = True
    suite: ClassVar[str] = "qkv"
    op: ClassVar[str] = "QKV_NORM_ROPE_CACHE"
    source: ClassVar[str] = SOURCE

    @property
    def cache_dtypes(self) -> dict[str, str]:
        """The types of the caches by their names; empty if the call has none."""
        types = (self.k_cache or self.dtype, self.v_cache or self.dtype)
        return dict(zip(CACHES, types, strict=True)) if self.writes == "caches" else {}

    @property
    def result_dtypes(self) -> dict[str, str]:
        """The types of the results by ``q``, ``k`` and ``v``."""
        caches = self.cache_dtypes
        return {x: caches.get(f"{x}_cache", self.dtype) for x in XS}

    def attributes(self, backend: str) -> QkvAttributes:
        """Return the attributes as the back end receives them."""
        params = rounded_for(self.params, backend)
        ranks = RANKS if self.norm == "sums" else 1
        return QkvAttributes(params, self.epsilon, self.scale_offset, ranks)


@dataclass(frozen=True)
class SquareSumsCase:
    """One call of qk_square_sums.

    Attributes:
        name, shape, keys, view: as of QkvCase.
        values: "rows" of different magnitudes, or "large" (their squares exceed float32, except float16's).
    """

    name: str
    dtype: str
    shape: tuple[int, ...] = (9, 8, 128)
    keys: int = 2
    view: str = "separate"
    values: str = "rows"
    suite: ClassVar[str] = "qkv"
    op: ClassVar[str] = "QK_SQUARE_SUMS"
    source: ClassVar[str] = SOURCE


# ---- the cases -----------------------------------------------------------------------------------------

_NEOX = RopeParams(128, "neox", freq_base=1e6)
_HALF = RopeParams(64, "neox", freq_base=1e6)
_MROPE = RopeParams(128, "mrope", freq_base=1e6, sections=(16, 24, 24, 0))
# With this number of tokens, a core of each SoC processes several of them at a time.
_PREFILL = (300, 8, 128)
# The name of a form, and its differences from the default of QkvCase.
_FORMS: dict[str, dict[str, Any]] = {
    "qwen3": {"params": _NEOX, "shape": _PREFILL, "view": "fused"},
    "qwen3-decode": {
        "params": _NEOX,
        "shape": (1, 32, 128),
        "keys": 8,
        "view": "fused",
        "start": 40_000,
        "index": "int32",
        "layout": "blocks of heads",
    },
    "qwen3-next": {
        "params": RopeParams(64, "neox", freq_base=1e7),
        "shape": (9, 4, 256),
        "view": "gated",
        "scale_offset": 1.0,
        "writes": "in place",
    },
    "gemma3": {
        "params": RopeParams(256, "neox", freq_base=1e6, freq_scale=0.125),
        "shape": (9, 4, 256),
        "scale_offset": 1.0,
        "wide": True,
        "writes": "given",
    },
    "glm-4.5": {
        "params": _HALF,
        "shape": (3, 96, 128),
        "keys": 8,
        "view": "fused",
        "bias": True,
        "writes": "new",
    },
    "olmo2": {
        "params": RopeParams(128, "neox", freq_base=5e5),
        "shape": _PREFILL,
        "keys": 8,
        "norm": "all",
        "layout": "rows",
    },
    "minimax-m2": {
        "params": RopeParams(64, "neox", freq_base=5e6),
        "shape": _PREFILL,
        "view": "fused",
        "norm": "sums",
    },
    "llama-yarn": {
        "params": RopeParams(128, "neox", n_ctx_orig=8192, freq_base=5e5, freq_scale=0.1, ext_factor=1.0),
        "view": "fused",
        "norm": "none",
        "start": 70_000,
        "layout": "rows",
        "k_cache": "float32",
        "v_cache": "float16",
    },
    "normal-middle": {
        "params": RopeParams(48, "normal", n_offs=40),
        "shape": _PREFILL,
        "bias": True,
        "freq_factors": True,
        "layout": "rows",
        "k_cache": "bfloat16",
        "v_cache": "bfloat16",
    },
    "mrope": {"params": _MROPE, "view": "fused", "planes": 3},
    "imrope": {
        "params": RopeParams(128, "imrope", freq_base=5e6, sections=(24, 20, 20, 0)),
        "view": "fused",
        "index": "int32",
        "writes": "in place",
    },
    "vision": {
        "params": RopeParams(40, "vision", sections=(20, 20, 0, 0)),
        "shape": (9, 4, 80),
        "keys": 4,
        "norm": "none",
        "writes": "new",
    },
    "tables": {
        "params": _NEOX,
        "shape": _PREFILL,
        "view": "fused",
        "tables": "pairs",
        "index": "int32",
    },
    "tables-of-lanes": {
        "params": RopeParams(32, "normal", n_offs=16),
        "shape": (9, 3, 80),
        "tables": "lanes",
        "by_token": True,
        "wide": True,
        "writes": "given",
    },
    "tables-mrope": {
        "params": _MROPE,
        "shape": _PREFILL,
        "tables": "pairs",
        "planes": 3,
        "writes": "new",
    },
    "int8-tensor": {
        "params": _NEOX,
        "value_size": 64,
        "layout": "rows",
        "k_cache": "int8",
        "v_cache": "int8",
    },
    "int8-head": {
        "params": _NEOX,
        "shape": _PREFILL,
        "view": "fused",
        "k_cache": "int8",
        "quantized": "head",
        "quant_offset": True,
    },
    "int8-channel": {
        "params": _HALF,
        "norm": "all",
        "layout": "blocks of heads",
        "k_cache": "int8",
        "v_cache": "int8",
        "quantized": "channel",
        "quant_offset": True,
    },
    "no-queries": {"params": _NEOX, "shape": (9, 0, 128)},
    "nothing-stored": {"params": _NEOX, "stores": False},
}
_SUMS_FORMS: dict[str, dict[str, Any]] = {
    "sums": {"shape": _PREFILL, "view": "fused"},
    "sums-decode": {"shape": (1, 64, 128), "keys": 8},
    "sums-large": {"values": "large"},
}
_FLOAT64_FORMS = ("qwen3", "olmo2", "int8-channel", "sums")


def qkv_cases() -> Iterator[QkvCase | SquareSumsCase]:
    """Yield every form of both operators in every dtype, some also in float64."""
    for forms, make in ((_FORMS, QkvCase), (_SUMS_FORMS, SquareSumsCase)):
        for form, differences in forms.items():
            for dtype in (*DTYPES, *(("float64",) if form in _FLOAT64_FORMS else ())):
                sizes = str(list(differences.get("shape", (9, 8, 128)))).replace(" ", "")
                yield make(f"{form}(type={SHORT[dtype]},shape={sizes})", dtype, **differences)
