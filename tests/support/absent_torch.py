"""A pytest plugin for an environment without torch: ``-p absent_torch``.

Tests import a stand-in for torch, and a test that calls something of it is skipped. So the tests on NumPy
arrays run in files that also test tensors. npu_rope itself does not see the stand-in. Files that import other
absent packages, such as onnx, are left out and named.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import ascend_sim  # noqa: F401  imported before the stand-in exists
import pytest

import npu_rope  # noqa: F401


class Absent:
    """An attribute of the stand-in: a call skips the test, or the file if no test runs yet."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.name}.{name}")

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        pytest.skip(f"needs torch ({self.name})", allow_module_level=True)

    def __instancecheck__(self, instance: Any) -> bool:
        return False

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return (object,)

    def __repr__(self) -> str:
        return self.name


class _Module(types.ModuleType):
    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.__name__}.{name}")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds torch and its modules for tests, and for nothing of npu_rope."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname.partition(".")[0] != "torch" or _asks_for_itself():
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def _asks_for_itself() -> bool:
    """Return whether npu_rope or ascend_sim imports torch."""
    frame = sys._getframe()
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] in ("npu_rope", "ascend_sim"):
            return True
        frame = frame.f_back
    return False


# Packages of the extras that an environment without torch need not have.
OTHERS = ("gguf", "matplotlib", "onnx", "onnxruntime", "onnxscript", "transformers")
SUPPORT = Path(__file__).parent
left_out: dict[str, list[str]] = {}


def absent_imports(file: Path, seen: set[Path]) -> set[str]:
    """Return the absent packages that a file imports at its top, also through modules in folders of tests."""
    seen.add(file)
    names = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module.partition(".")[0])
    absent = {name for name in names if name in OTHERS and importlib.util.find_spec(name) is None}
    for name in names:
        for folder in (file.parent, SUPPORT, SUPPORT.parent / "fuzz"):
            module = folder / f"{name}.py"
            if module.is_file() and module not in seen:
                absent |= absent_imports(module, seen)
    return absent


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    if absent := absent_imports(collection_path, set()):
        left_out[collection_path.name] = sorted(absent)
        return True
    return None


def pytest_collection_finish(session: pytest.Session) -> None:
    """Give the stand-in to modules of tests whose torch is that of npu_rope.optional_torch, None."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None) or ""
        if "tests" in Path(file).parts and getattr(module, "torch", ()) is None:
            vars(module)["torch"] = importlib.import_module("torch")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for name, packages in sorted(left_out.items()):
        terminalreporter.write_line(f"left out: {name}, which imports {', '.join(packages)}")


assert importlib.util.find_spec("torch") is None, "torch is installed"
sys.meta_path.append(_Finder())
