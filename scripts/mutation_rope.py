"""rope's kernel for mutate_kernels.py: its sources, how it is compiled, and which mutants are equivalent."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
judge = "mutation_rope_calls.py"


@dataclass(frozen=True)
class Column:
    """One compile: SoC and element types."""

    soc: str
    aicore: int
    x: str
    x_dtype: str
    positions: str

    @property
    def name(self) -> str:
        """x's dtype, as the calls name it."""
        return {"bfloat16_t": "bfloat16", "half": "float16", "float": "float32"}[self.x]

    @property
    def symbol(self) -> str:
        """As cmake/NpuRopeSim.cmake names it."""
        return f"npu_rope__{self.soc}__{self.x}_{self.positions}_float_{self.x}"


columns = (
    Column("ascend910b", 220, "bfloat16_t", "DT_BF16", "int32_t"),
    Column("ascend910b", 220, "half", "DT_FLOAT16", "int64_t"),
    Column("ascend910b", 220, "float", "DT_FLOAT", "int32_t"),
    Column("ascend310p", 200, "half", "DT_FLOAT16", "int32_t"),
    Column("ascend310p", 200, "float", "DT_FLOAT", "int64_t"),
)


def columns_for(file: str) -> list[Column]:
    """Those that compile the file."""
    if file.endswith(("packed_rows.h", "scalar_rows.h")):
        return [c for c in columns if c.soc == "ascend310p"]
    return list(columns)


def sources() -> list[Path]:
    """The kernel and what it shares."""
    skipped = ("rope_polynomials.h",)  # numbers that a script makes and a test compares
    common = sorted((ROOT / "op_kernel" / "common").glob("*.h"))
    return [ROOT / "op_kernel" / "npu_rope.cpp", *(p for p in common if p.name not in skipped)]


@cache
def _simulator() -> Path:
    from npu_rope import native_sim

    return native_sim.load().path


def command(column: Column, folder: Path, library: Path) -> list[str]:
    """The compiler's command line, as cmake/NpuRopeSim.cmake has it (not optimised: it runs once)."""
    from npu_rope import simulator

    types = {"X": (column.x, column.x_dtype), "OUT": (column.x, column.x_dtype)}
    types["POSITIONS"] = (column.positions, "DT_INT64" if column.positions == "int64_t" else "DT_INT32")
    types["FREQ_FACTORS"] = ("float", "DT_FLOAT")
    defines = [f"-DDTYPE_{name}={c}" for name, (c, _) in types.items()]
    defines += [f"-DORIG_DTYPE_{name}={dt}" for name, (_, dt) in types.items()]
    flags = [f for f in simulator.FLAGS if not f.startswith(("-O", "-W"))]
    places = [f"-I{simulator.include_root()}", f"-I{folder / 'op_kernel'}"]
    forced = ["-include", "tiling_prelude.h", "-include", str(folder / "mutant.h")]
    named = [f"-D__CCE_AICORE__={column.aicore}", f"-Dnpu_rope={column.symbol}"]
    what = [str(folder / "op_kernel" / "npu_rope.cpp"), str(_simulator()), "-o", str(library)]
    return [simulator.compiler(), *flags, "-O0", *named, *defines, *places, *forced, *what]


# Mutants that compute the same, and why.
EQUIVALENT: dict[str, str] = {}
