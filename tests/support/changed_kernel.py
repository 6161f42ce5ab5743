"""The kernel of rope or rms_norm_backward with one edit of its sources, for float32 x on ascend910b.

The simulator runs the library that ``ASCEND_SIM_KERNELS`` names instead of the built-in one.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import ascend_sim
import source_edits
from ascend_sim import compiler
from source_edits import Edit

KERNELS = Path(__file__).parents[2] / "op_kernel"
KERNELS_VARIABLE = "ASCEND_SIM_KERNELS"
SOC = "ascend910b"
# Statements of op_kernel/ that the edits change.
SINE = "AscendC::Mul(sin_, sin_, cos_, count);"
COSINE = "AscendC::Adds(cos_, square, mscale, count);"
SMALL_PART = "AscendC::Add(temp_[1], temp_[1], cos_, tokens * width_);"
HIGH = "AscendC::Muls(high, position, 1.0f / kHighUnit, count);"
LANES_OUTSIDE = "AscendC::DataCopy(y, x, static_cast<uint32_t>(element_count_));"
RUNS = "AscendC::DataCopyExtParams runs(static_cast<uint16_t>(count), RunBytes(plan)"

# Edits by name. "nothing" compiles the unchanged kernel.
CHANGES = {
    "nothing": None,
    "no order of vector instructions": Edit("AscendC::PipeBarrier<PIPE_V>();", ""),
    "sine's sign": Edit(SINE, SINE + " VectorBarrier(); AscendC::Muls(sin_, sin_, -1.0f, count);"),
    "mscale forgotten": Edit(COSINE, COSINE.replace("mscale, count", "1.0f, count")),
    "one position off": Edit(
        HIGH, "AscendC::Adds(position, position, 1.0f, count); VectorBarrier(); " + HIGH
    ),
    "small part of the angle dropped": Edit(SMALL_PART, ""),
    "freq_factors ignored": Edit("if (tiling_->has_factors != 0) DivideByFactors();", ""),
    "one element too many written": Edit(RUNS + ", 0", RUNS + " + 4, 0"),
    "lanes outside the window not copied": Edit(LANES_OUTSIDE + " VectorBarrier();", ""),
}  # fmt: skip


# Edits of rms_norm_backward's kernel, by name.
BACKWARD_CHANGES = {
    "order of the cores ignored": Edit("if (tiling->sums_pitch != 0) {", "if (false) {"),
    "no wait for the other cores": Edit(
        "SyncAll(); Share own = ShareOf(n,", "PipeBarrier<PIPE_ALL>(); Share own = ShareOf(n,"
    ),
}


def build(folder, name):
    """Return the library of rope's kernel with the named edit. The first caller builds it in folder."""
    types = {"X": "float", "POSITIONS": "int32_t", "FREQ_FACTORS": "float", "OUT": "float"}
    return _build(folder, name, CHANGES[name], "npu_rope", types)


def build_backward(folder, name):
    """Return the library of rms_norm_backward's kernel with the named edit, as :func:`build` does."""
    types = dict.fromkeys(("GRAD", "X", "SCALE", "DSCALE", "DX"), "float")
    return _build(folder, name, BACKWARD_CHANGES[name], "npu_rms_norm_backward", types)


def _build(folder, name, edit, kernel, types):
    sources = Path(folder) / name.replace(" ", "-").replace("'", "")
    if not sources.exists():
        _copy_sources(sources, edit)
    defines = compiler.column_defines(kernel, SOC, types)
    return ascend_sim.build(sources / f"{kernel}.cpp", soc=SOC, defines=defines, flags=["-Og"], folder=folder)


def _copy_sources(target, edit):
    unfinished = Path(tempfile.mkdtemp(dir=target.parent)) / "op_kernel"
    shutil.copytree(KERNELS, unfinished)
    if edit is not None:
        source_edits.apply(edit, [unfinished])
    try:
        unfinished.rename(target)
    except OSError:  # another worker has made it already
        shutil.rmtree(unfinished)
