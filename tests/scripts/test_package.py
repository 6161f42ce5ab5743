"""The wheel: what it holds, and that it works unpacked, with and without the torch registration."""

import os
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """A wheel built where torch is not looked for, unpacked."""
    folder = tmp_path_factory.mktemp("wheel")
    options = [
        "--config-settings=cmake.define.NPU_ROPE_TORCH=OFF",
        f"--config-settings=build-dir={folder / 'build'}",
        "-w",
        str(folder),
        "-q",
    ]
    built = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps", "--no-build-isolation", *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def run(site, code):
    """Run code with the unpacked wheel ahead of everything else."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NPU_ROPE_")}
    environment["PYTHONPATH"] = str(site)
    # -S keeps the editable install's import hook out; the packages it found are named instead.
    paths = [p for p in sys.path if p.endswith("site-packages")]
    head = f"import sys; sys.path += {paths!r}\n"
    return subprocess.run(
        [sys.executable, "-S", "-c", head + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=site,
        check=False,
    )


def test_wheel_holds_the_library_its_header_and_the_licence(unpacked):
    names = {str(p.relative_to(unpacked)) for p in unpacked.rglob("*") if p.is_file()}
    assert {"npu_rope/lib/libnpu_rope.so", "npu_rope/include/npu_rope.h", "npu_rope/ops/rope.py"} <= names
    assert any(n.endswith("dist-info/licenses/LICENSE") for n in names)
    assert not any("libnpu_rope_torch" in n for n in names)


def test_library_needs_neither_torch_nor_python(unpacked):
    library = unpacked / "npu_rope/lib/libnpu_rope.so"
    needed = subprocess.run(["ldd", str(library)], capture_output=True, text=True, check=True).stdout
    assert "torch" not in needed
    assert "python" not in needed


def test_numpy_works_without_torch(unpacked):
    done = run(
        unpacked,
        """
        sys.modules["torch"] = None  # as if it were not installed
        import numpy as np, npu_rope
        from npu_rope import native
        y = npu_rope.rope(np.ones((1, 1, 2), np.float32), np.array([0]), npu_rope.RopeParams(2))
        print(native.load().path.parent.parent.parent, y.tolist())
        """,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(unpacked), "[[[1.0,", "1.0]]]"]


def test_torch_works_over_ctypes_where_the_registration_was_not_built(unpacked):
    done = run(
        unpacked,
        """
        import torch, npu_rope
        from npu_rope import backends
        from npu_rope.reference.rope import rope as reference
        assert backends.torch_registration() is None
        params, positions = npu_rope.RopeParams(4, "neox"), torch.arange(3)
        x = torch.randn(2, 3, 5, 4, dtype=torch.float64, requires_grad=True)
        y = npu_rope.rope(x, positions, params)
        expected = torch.from_numpy(reference(x.detach().numpy(), positions.numpy(), params))
        assert (y - expected).abs().max() < 1e-12
        y.square().sum().backward()  # a rotation keeps lengths: the gradient is 2 x
        assert (x.grad - 2 * x).abs().max() < 1e-12
        z = x.detach().clone()
        npu_rope.rope_(z, positions, params)
        assert torch.equal(z, y)
        torch.ops.npu_rope.rope_(z, positions, n_dims=4, mode=2, forward=False)
        assert (z - x).abs().max() < 1e-12
        try:
            npu_rope.rope(x.detach(), positions[:2], params)
        except ValueError as error:
            print(error)
        """,
    )
    assert done.returncode == 0, done.stderr
    assert "[rope] positions must have shape [S] = [3]" in done.stdout
