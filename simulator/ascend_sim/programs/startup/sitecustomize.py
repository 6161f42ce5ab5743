"""Start-up of Python under ``ascend-sim run``: install the host fallback when torch_npu is imported.

Python imports the first ``sitecustomize`` of its path when it starts. This file removes its folder from the
path and then runs the next ``sitecustomize``.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))


class _TorchNpuFinder:
    """A finder that lets the other finders load torch_npu, then installs the fallback."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return torch_npu's spec, whose loader installs the fallback after it; None for other modules."""
        if name != "torch_npu":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        def execute_and_install(module: ModuleType) -> None:
            execute(module)
            _load("ascend_sim_fallback").install()

        loader.exec_module = execute_and_install
        return spec


def _load(name: str) -> Any:
    """Load and return a module of this file's folder."""
    spec: Any = importlib.util.spec_from_file_location(name, os.path.join(_HERE, name + ".py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, _HERE)  # for the module's own imports
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(_HERE)
    return module


def _run_next_sitecustomize() -> None:
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


sys.meta_path.insert(0, _TorchNpuFinder())
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]
_run_next_sitecustomize()
