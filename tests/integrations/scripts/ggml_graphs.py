"""Run rope graphs of the installed ggml through the adapter on the simulated CANN runtime. The results must
agree with those of the CPU library for the same tensors. Run as: ggml_graphs.py ADAPTER CANN OPAPI
"""

from __future__ import annotations

import ctypes as C
import itertools
import struct

import numpy as np
from ggml_adapter import (
    GgmlTensor,
    acl,
    adapter,
    compute,
    copy_to_device,
    fetch,
    finish,
    functions,
    new_context,
    place_view,
    stream,
    supports,
)

from npu_rope import RopeParams, rope
from npu_rope.testing.ggml_functions import GGML_TYPES


class GraphCase:
    """A rope node: x [B,S,N,D], its dtype and view, and the parameters of the rotation."""

    def __init__(
        self,
        params,
        dtype="float32",
        shape=(2, 5, 3, 16),
        view="",
        factors=False,
        forward=True,
        in_place=False,
        n_ctx_orig=None,
    ):
        self.params, self.dtype, self.shape, self.view = params, dtype, shape, view
        self.n_ctx_orig = params.n_ctx_orig if n_ctx_orig is None else n_ctx_orig  # of the node
        self.factors, self.forward, self.in_place = factors, forward, in_place

    def __str__(self):
        words = [str(self.params), self.dtype, str(self.shape), self.view]
        words += [
            w
            for w, on in (("factors", self.factors), ("back", not self.forward), ("in place", self.in_place))
            if on
        ]
        return " ".join(filter(None, words))

    def run(self):
        """Return 0 and the largest error in units of the bound, or the adapter's status and its reason."""
        p, (b, s, n, d) = self.params, self.shape
        rng = np.random.default_rng(d + s)
        context = new_context()
        kind = GGML_TYPES[self.dtype]
        # Lanes of the memory besides those of x, and the first lane of x.
        other_lanes, first = {"padded": (8, 0), "second half": (d, d)}.get(self.view, (0, 0))
        memory = np.zeros(
            (b, s, n, d + other_lanes) if self.view != "heads first" else (b, n, s, d), self.dtype
        )
        memory[...] = rng.standard_normal(memory.shape).astype(self.dtype)
        leaf = functions["ggml_new_tensor_4d"](context, kind, *memory.shape[::-1])
        x, array, item = leaf, memory, memory.itemsize
        if self.view == "heads first":
            array = memory.transpose(0, 2, 1, 3)
        elif self.view:
            array = memory[..., first : first + d]
        if self.view:
            strides = array.strides[2::-1]
            x = functions["ggml_view_4d"](context, leaf, d, n, s, b, *strides, first * item)
        planes = 4 if p.rope_mode.has_sections else 1
        positions = rng.integers(0, 5000, planes * s).astype(np.int32)
        positions_tensor = functions["ggml_new_tensor_1d"](context, GGML_TYPES["int32"], planes * s)
        factors = rng.uniform(0.5, 4, p.pairs).astype(np.float32) if self.factors else None
        freq_factors = (
            functions["ggml_new_tensor_1d"](context, GGML_TYPES["float32"], p.pairs) if self.factors else None
        )
        node = self.node(context, x, positions_tensor, freq_factors)
        device = copy_to_device(leaf, memory)
        copy_to_device(positions_tensor, positions)
        if self.factors:
            copy_to_device(freq_factors, factors)
        for view in (x, node):
            if GgmlTensor.from_address(view).view_src:
                place_view(view)
        result = None if self.in_place else copy_to_device(node, np.full(self.shape, 7, self.dtype))
        status, why = supports(node)
        if status == 0:
            status, why = compute(node)
        if status:
            return status, why
        acl("aclrtSynchronizeStream", stream)
        given = positions.reshape(4, s) if planes == 4 else positions
        expected = rope(np.ascontiguousarray(array), given, p, factors, forward=self.forward, backend="cpu")
        if self.in_place:
            after = fetch(device, memory)
            got = after[..., first : first + d] if self.view != "heads first" else after.transpose(0, 2, 1, 3)
            if other_lanes:  # the lanes outside the view
                rest = np.delete(after, np.s_[first : first + d], -1)
                assert np.array_equal(rest, np.delete(memory, np.s_[first : first + d], -1)), str(self)
        else:
            got = fetch(result, np.empty(self.shape, self.dtype))
        size = np.abs(expected.astype(np.float64)).max()
        unit = size * {"float32": 2.0**-21, "float16": 2.0**-10}[self.dtype]
        return 0, np.abs(got.astype(np.float64) - expected).max() / unit

    def node(self, context, x, positions, factors):
        p = self.params
        kind = "" if self.forward else "_back"
        kind = "_inplace" if self.in_place else kind
        numbers = p.freq_base, p.freq_scale, p.ext_factor, p.attn_factor, p.beta_fast, p.beta_slow
        if p.rope_mode.has_sections:
            sections = (C.c_int * 4)(*p.sections)
            make = functions[f"ggml_rope_multi{kind}"]
            return make(
                context,
                x,
                positions,
                factors,
                p.n_dims,
                sections,
                int(p.rope_mode),
                self.n_ctx_orig,
                *numbers,
            )
        node = functions[f"ggml_rope_ext{kind}"](
            context, x, positions, factors, p.n_dims, int(p.rope_mode), self.n_ctx_orig, *numbers
        )
        if p.n_offs:
            functions["ggml_rope_set_offset"](node, p.n_offs)
        return node


def cases():
    neox = RopeParams(16, "neox")
    modes = [
        neox,
        RopeParams(16, "normal"),
        RopeParams(8, "neox"),
        RopeParams(16, "mrope", sections=(3, 3, 2, 0)),
        RopeParams(16, "imrope", sections=(3, 3, 2, 0)),
        RopeParams(8, "vision", sections=(4, 4, 0, 0)),
        RopeParams(16, "neox", n_ctx_orig=4096, freq_scale=0.25, ext_factor=1.0, attn_factor=1.2),
        RopeParams(16, "normal", freq_base=500000.0, freq_scale=0.5, attn_factor=0.7),
    ]
    if "ggml_rope_set_offset" in functions:
        modes.append(RopeParams(8, "neox", n_offs=4))
    for params, dtype in itertools.product(modes, ("float32", "float16")):
        yield GraphCase(params, dtype)
        yield GraphCase(params, dtype, factors=True)
        yield GraphCase(params, dtype, forward=False)
        yield GraphCase(params, dtype, in_place=True)
    for view, in_place in itertools.product(("padded", "second half", "heads first"), (False, True)):
        yield GraphCase(neox, "float16", view=view, in_place=in_place)
    # ggml's suite has YaRN with a context of 0 tokens. Its ramp is that for 1 token.
    for rope_mode in ("neox", "normal"):
        one_token = RopeParams(128, rope_mode, n_ctx_orig=1, freq_scale=0.5, ext_factor=0.75)
        yield GraphCase(one_token, shape=(1, 7, 2, 128), n_ctx_orig=0)
    yield GraphCase(neox, shape=(1, 1, 32, 128))
    yield GraphCase(RopeParams(128, "normal"), "float16", shape=(1, 40, 8, 128), view="second half")


worst, ran = 0.0, 0
for case in cases():
    status, found = case.run()
    assert status == 0, f"{case}: {found}"
    assert found <= 1, f"{case}: {found:.3g} times the bound"
    worst, ran = max(worst, found), ran + 1

# The adapter refuses nodes that another backend must compute, and gives the reason.
context = new_context()
x = functions["ggml_new_tensor_4d"](context, 0, 16, 3, 5, 2)
positions_tensor = functions["ggml_new_tensor_1d"](context, GGML_TYPES["int32"], 5)
node = functions["ggml_rope_ext"](context, x, positions_tensor, None, 16, 2, 0, 1e4, 1.0, 0.0, 1.0, 32.0, 1.0)


def reason(change, pointer=node, bfloat16=1):
    """Return why the adapter refuses the node after a change. Only the change of ``pointer`` is undone."""
    before = C.string_at(pointer, C.sizeof(GgmlTensor))
    change(GgmlTensor.from_address(pointer))
    supported, computed = supports(node, bfloat16), compute(node, bfloat16)
    C.memmove(pointer, before, len(before))
    assert supported == computed, (supported, computed)
    assert supported[0] == 1, supported
    return supported[1]


def set_field(name, value, index=None):
    def change(tensor):
        if index is None:
            setattr(tensor, name, value)
        else:
            getattr(tensor, name)[index] = value

    return change


def both_bfloat16(tensor):
    tensor.type = 30
    GgmlTensor.from_address(x).type = 30


assert reason(set_field("op", 0)) == "the node is not a rope or an RMS norm"
assert reason(set_field("src", None, 1)) == "the node has no x or no positions"
assert reason(set_field("type", 1)) == "x and the result have different types"
NO_POSITIONS = "positions are not a contiguous vector of 32-bit integers"
assert reason(set_field("type", 27), positions_tensor) == NO_POSITIONS
assert reason(set_field("ne", 2, 2), positions_tensor) == NO_POSITIONS
assert reason(set_field("ne", 4, 0), positions_tensor) == "the number of positions does not fit the tokens"
assert reason(set_field("nb", 8, 0), x) == "a head's elements are not contiguous"
assert reason(set_field("ne", 7, 1), x) == "x and the result have different shapes"
assert reason(set_field("op_params", 7, 2)) == "the node's mode is not known"
assert reason(set_field("op_params", 18, 1)) == "the dimensions to rotate are not pairs inside a head"
assert reason(set_field("op_params", 2, 15)) == "the dimensions to rotate are not pairs inside a head"
assert reason(set_field("op_params", -1, 4)) == "n_ctx_orig is negative"


def bits(number):
    return struct.unpack("i", struct.pack("f", number))[0]


def set_yarn(n_ctx_orig, beta_slow):
    """Change the places of n_ctx_orig, ext_factor and beta_slow in op_params."""

    def change(tensor):
        tensor.op_params[4], tensor.op_params[7], tensor.op_params[10] = (
            n_ctx_orig,
            bits(1.0),
            bits(beta_slow),
        )

    return change


NOT_IN_RANGE = "freq_base, freq_scale or a factor is not a number of the allowed range"
for place, value in itertools.product((5, 6), (0.0, -1.0, float("nan"), float("inf"))):
    assert reason(set_field("op_params", bits(value), place)) == NOT_IN_RANGE
assert reason(set_yarn(0, 0.1)) == "YaRN's ramp is not defined"
assert reason(set_yarn(8, 0.0)) == "YaRN's ramp is not defined"


def make_head_too_long(tensor):
    for t in (tensor, GgmlTensor.from_address(x)):
        t.ne[0] = 1026
        for d in (1, 2, 3):
            t.nb[d] = t.nb[d - 1] * t.ne[d - 1]


def make_vision_partial(tensor):
    tensor.op_params[2] = 24
    tensor.op_params[1] = 6
    tensor.op_params[11] = 1
    GgmlTensor.from_address(positions_tensor).ne[0] = 20


def make_vision_without_axis(tensor):
    make_vision_partial(tensor)
    tensor.op_params[11] = 0


def repeat_head(tensor):
    tensor.nb[1] = 0


for change, bfloat16, expected in (
    (make_head_too_long, 1, "a head has more than 1024 elements"),
    (make_vision_partial, 1, "in mode vision the whole head must rotate"),
    (make_vision_without_axis, 1, "the sections name no axis or do not fit a head"),
    (repeat_head, 1, "the result overlaps itself"),
    (both_bfloat16, 0, "this chip has no bfloat16"),
):
    before = [(t, C.string_at(t, C.sizeof(GgmlTensor))) for t in (x, positions_tensor)]
    found = reason(change, bfloat16=bfloat16)
    assert found == expected, found
    for t, content in before:
        C.memmove(t, content, len(content))
assert supports(None) == (1, "the node is NULL")
assert adapter.npu_rope_ggml_supports(node, 1, None, 0) == 0

finish()
print(f"{ran} graphs, at most {worst:.2f} times the bound")
