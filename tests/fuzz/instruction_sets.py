"""The instruction sets of the CPU kernels that this machine has."""

from __future__ import annotations

from npu_rope import native

NAMES = ("neon", "baseline", "avx2", "avx512", "avx512_bf16", "avx512_fp16")


def _is_supported(name: str) -> bool:
    library = native.load()
    try:
        library.force_isa(name)
    except ValueError:
        return False
    library.force_isa(None)
    return True


SUPPORTED = [name for name in NAMES if _is_supported(name)]
