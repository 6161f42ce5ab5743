"""docs/troubleshooting.md has the texts of errors as npu_rope and ascend_sim print them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from ascend_sim.cli import app as ascend_sim_app
from typer.testing import CliRunner

from npu_rope import RopeParams, rope
from npu_rope.cli import app as npu_rope_app

ROOT = Path(__file__).resolve().parents[2]
COLUMN = [line.split(" | ")[0] for line in (ROOT / "docs/troubleshooting.md").read_text().splitlines()]
SECTIONS = {"neox": (0, 0, 0, 0), "mrope": (8, 12, 12, 0)}
UNORDERED_COPY = """#include "kernel_operator.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void unordered(GM_ADDR x, GM_ADDR y) {
    TPipe pipe;
    TBuf<TPosition::VECCALC> buffer;
    pipe.InitBuffer(buffer, 256);
    LocalTensor<float> tile = buffer.Get<float>();
    GlobalTensor<float> from, to;
    from.SetGlobalBuffer((__gm__ float*)x);
    to.SetGlobalBuffer((__gm__ float*)y);
    DataCopy(tile, from, 64);
    Adds(tile, tile, 1.0f, 64);
}
"""


def called(*, mode="neox", n_dims=64, tokens=4, dtype=np.float32, **options) -> str:
    x = np.zeros((1, 4, 2, 64), dtype)
    with pytest.raises((ValueError, TypeError)) as error:
        rope(x, np.arange(tokens), RopeParams(n_dims, mode, sections=SECTIONS[mode]), **options)
    return str(error.value)


def printed(app, *arguments, status=2) -> str:
    done = CliRunner().invoke(app.app, [*map(str, arguments)])
    assert done.exit_code == status
    return done.stderr


def npu_rope(*arguments) -> str:
    return printed(npu_rope_app, *arguments)


def ascend_sim(*arguments, **options) -> str:
    return printed(ascend_sim_app, *arguments, **options)


def broken_rule() -> str:
    Path("unordered.cpp").write_text(UNORDERED_COPY)
    arguments = ("kernel", "unordered.cpp", "unordered", "in:float32[64]", "out:float32[64]")
    return ascend_sim(*arguments, status=1)


def toolkit_in_a_used_folder() -> str:
    Path("a file").touch()
    return ascend_sim("toolkit", ".")


MESSAGES = {
    "[rope] backend must be one of … but got …": lambda: called(backend="gpu"),
    "[rope] n_dims must be at most the head size … but got …": lambda: called(n_dims=128),
    "[rope] positions must have shape [S] = … or [B, S] = … but got …": lambda: called(tokens=5),
    "[rope] positions must have shape [4,S] = … in mode mrope but got …": lambda: called(mode="mrope"),
    "[rope] angle must be exact (0) on an NPU but got …": lambda: called(angle="f32", backend="sim"),
    "[validate] filter must match a case but got …": lambda: npu_rope("validate", "--filter", "no such case"),
    "[ggml] library must be a folder with libggml-base* and libggml-cpu* but got …": lambda: npu_rope(
        "validate", "--ggml-lib", "."
    ),
    "[npu] backend must be available but …": lambda: npu_rope("validate", "--backend", "npu"),
    "[sim] command must be available but there is no program …": lambda: ascend_sim("run", "--", "absent"),
    "[sim] soc must be one of … but got …": lambda: ascend_sim("run", "--soc", "Ascend910", "--", "python"),
    "[sim] folder must be new, empty or an earlier toolkit but got …": toolkit_in_a_used_folder,
    "SIM-HAZARD-01 … is not ordered after the … write by …: MTE2_V event missing.": broken_rule,
}


@pytest.mark.long
@pytest.mark.parametrize("text", MESSAGES)
def test_the_page_has_the_message_as_it_is_printed(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert any(f"`{text}`" in cell for cell in COLUMN)
    pattern = ".+?".join(map(re.escape, text.split("…")))
    message = MESSAGES[text]()
    assert re.search(pattern, message), message
