"""npu_rope: rotary position embedding for Ascend NPUs, exact and fast on the CPU as well."""

from ascend_sim import __version__

from npu_rope import backends as _backends
from npu_rope.errors import BackendUnavailable
from npu_rope.ops.add_rms_norm import add_rms_norm
from npu_rope.ops.qk_square_sums import qk_square_sums
from npu_rope.ops.qkv_norm_rope_cache import qkv_norm_rope_cache
from npu_rope.ops.rms_norm import rms_norm, rms_norm_backward
from npu_rope.ops.rms_norm_rope import rms_norm_rope
from npu_rope.ops.rope import rope, rope_
from npu_rope.ops.rope_qk import rope_qk, rope_qk_
from npu_rope.ops.rope_set_rows import rope_set_rows
from npu_rope.ops.rotary_embedding import rotary_embedding
from npu_rope.ops.rotary_mul import (
    rotary_mul,
    rotary_mul_,
    rotary_mul_backward,
    rotary_mul_qk,
    rotary_mul_qk_,
)
from npu_rope.ops.rotary_position_embedding import rotary_position_embedding
from npu_rope.params import ModelRope, RopeParams
from npu_rope.rope_attributes import RopeMode

__all__ = [
    "BackendUnavailable",
    "ModelRope",
    "RopeMode",
    "RopeParams",
    "__version__",
    "add_rms_norm",
    "qk_square_sums",
    "qkv_norm_rope_cache",
    "rms_norm",
    "rms_norm_backward",
    "rms_norm_rope",
    "rope",
    "rope_",
    "rope_qk",
    "rope_qk_",
    "rope_set_rows",
    "rotary_embedding",
    "rotary_mul",
    "rotary_mul_",
    "rotary_mul_backward",
    "rotary_mul_qk",
    "rotary_mul_qk_",
    "rotary_position_embedding",
]

_backends.offer_operator_package()
