"""Run graphs of the installed ggml through the adapter, on the simulated CANN runtime: norms, and nodes that
the adapter computes together in one call. The results must agree with the specifications in long double. A
result that no other node uses must not be written. Run as: ggml_fusion.py ADAPTER CANN OPAPI
"""

from __future__ import annotations

import ctypes as C

import numpy as np
from ggml_adapter import (
    acl,
    compute,
    compute_fused,
    fields_of,
    finish,
    functions,
    stream,
)
from ggml_fusion_graphs import FLOAT32, Graph

from npu_rope import RopeParams
from npu_rope.testing.bounds import (
    SMALLEST_SUBNORMAL,
    TABLE_ERROR_DEVICE,
    UNIT_ROUNDOFF,
    device_normalized_error,
    rotation_bound,
)
from npu_rope.testing.norm_rope_spec import NormRopeCall, exact_table, rms_norm_rope
from npu_rope.testing.norm_spec import NormCall, add, rms_norm

EPSILON = 1e-5
rng = np.random.default_rng(0)


def numbers(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def norm_of(x, weight=None):
    """Return RMSNormalization's result and the device's bound."""
    weight = np.ones(1, np.float32) if weight is None else weight
    call = NormCall(x, weight, "float32", "float32", epsilon=EPSILON)
    return rms_norm(call, device_normalized_error(x.shape[-1]))


def judge(graph, node, expected, bound):
    """Compare a node's result with its bound. Return the largest error in units of the bound."""
    got = graph.result(node).astype(np.float64)
    error = np.abs(got - expected)
    assert got.shape == expected.shape, (got.shape, expected.shape)
    assert (error <= bound).all(), f"{np.nanmax(error / np.maximum(bound, 1e-300)):.3g} times the bound"
    return float(np.max(error / np.maximum(bound, 1e-300)))


def rotated(x, positions, params, dtype, factors=None):
    """Return rope's result and the device's bound for a result of this type."""
    c, s = (np.asarray(t, np.float64)[..., None, :] for t in exact_table(positions, params, factors))
    first, second = params.pair_lanes()
    expected = x.astype(np.float64)
    x1, x2 = expected[..., first].copy(), expected[..., second].copy()
    expected[..., first], expected[..., second] = x1 * c - x2 * s, x1 * s + x2 * c
    bound = rotation_bound(x, c, s, expected, params, dtype, TABLE_ERROR_DEVICE)
    if dtype != x.dtype:  # lanes that do not rotate are rounded
        rounding = UNIT_ROUNDOFF[dtype] * np.abs(expected) + SMALLEST_SUBNORMAL[dtype]
        bound = np.where(bound == 0, rounding, bound)
    return expected, bound


# ---- norms -----------------------------------------------------------------------------------------------


def norm(view=False, in_place=False):
    graph, memory = Graph(), numbers(2, 3, 5, 80 if view else 64)
    leaf = graph.leaf(memory)
    x = graph.lanes(leaf, 64, first=8) if view else leaf
    values = memory[..., 8:72] if view else memory
    node = functions["ggml_rms_norm_inplace" if in_place else "ggml_rms_norm"](graph.context, x, EPSILON)
    graph.expand(node)
    assert graph.run() == [1]
    if in_place and view:  # the lanes outside the view
        rest = np.delete(graph.result(leaf), np.s_[8:72], -1)
        assert np.array_equal(rest, np.delete(memory, np.s_[8:72], -1))
    yield judge(graph, node, *norm_of(values))


def norm_mul(weight_shape=(64,), weight_first=False):
    graph, values, weight = Graph(), numbers(2, 3, 5, 64), numbers(*weight_shape)
    x, w = graph.leaf(values), graph.leaf(weight)
    normalized = functions["ggml_rms_norm"](graph.context, x, EPSILON)
    node = functions["ggml_mul"](graph.context, *((w, normalized) if weight_first else (normalized, w)))
    graph.expand(node)
    assert graph.run() == [2]
    graph.check_unwritten(normalized)
    yield judge(graph, node, *norm_of(values, weight))


def add_norm(in_place=False, weighted=False, long_rows=False):
    shape = (3, 5120) if long_rows else (2, 3, 5, 64)
    graph, a, b, weight = Graph(), numbers(*shape), numbers(*shape), numbers(shape[-1])
    x, residual, w = graph.leaf(a), graph.leaf(b), graph.leaf(weight)
    total = functions["ggml_add_inplace" if in_place else "ggml_add"](graph.context, x, residual)
    node = normalized = functions["ggml_rms_norm"](graph.context, total, EPSILON)
    if weighted:
        node = functions["ggml_mul"](graph.context, normalized, w)
    graph.expand(node)
    assert graph.run() == [3 if weighted else 2]
    expected = add(a, b, "float32")
    assert np.array_equal(graph.result(total), expected.astype(np.float32).reshape(graph.shape(total)))
    if weighted:
        graph.check_unwritten(normalized)
    value, bound = norm_of(expected, weight if weighted else None)
    yield judge(graph, node, value.reshape(graph.shape(node)), bound.reshape(graph.shape(node)))


# ---- rope ------------------------------------------------------------------------------------------------

ROPES = [
    RopeParams(64, "neox"),
    RopeParams(64, "normal"),
    RopeParams(32, "neox", freq_base=1e6),
    RopeParams(64, "mrope", sections=(12, 12, 8, 0)),
    RopeParams(64, "neox", n_ctx_orig=4096, freq_scale=0.25, ext_factor=1.0),
]


def norm_mul_rope(params, heads=5, view=False, factors=False, over_x=False):
    """over_x: the rotation's result has the memory of x, as ggml's allocator may decide."""
    graph, memory, weight = Graph(), numbers(1, 7, heads, 96 if view else 64), numbers(64)
    leaf = graph.leaf(memory)
    x, values = (graph.lanes(leaf, 64, first=16), memory[..., 16:80]) if view else (leaf, memory)
    normalized = functions["ggml_rms_norm"](graph.context, x, EPSILON)
    scaled = functions["ggml_mul"](graph.context, normalized, graph.leaf(weight))
    divisors = rng.uniform(0.5, 4, params.pairs).astype(np.float32) if factors else None
    rope, positions = graph.rope(scaled, params, 7, divisors)
    graph.expand(rope)
    if over_x:
        graph.place(rope, fields_of(leaf).data)
    fuses_rope = heads > 1  # a single head cannot be divided among the operator's two tensors
    assert graph.run() == ([3] if fuses_rope else [2, 1])
    graph.check_unwritten(normalized)
    if fuses_rope:
        graph.check_unwritten(scaled)
    error = device_normalized_error(64)
    call = NormRopeCall(
        values, weight, positions, params, "float32", divisors, EPSILON,
        table_error=TABLE_ERROR_DEVICE, error=error,
    )  # fmt: skip
    yield judge(graph, rope, *rms_norm_rope(call))


def rope_set_rows(params, dtype="float32", cache_dtype="float16", batch=1, reshape=False, normalized=False):
    """normalized: the nodes RMS_NORM and MUL come before the rope. They run as a call of their own."""
    graph, values = Graph(), numbers(batch, 7, 3, 64, dtype=dtype)
    x = graph.leaf(values)
    if normalized:
        weight = numbers(64)
        x = functions["ggml_rms_norm"](graph.context, x, EPSILON)
        x = functions["ggml_mul"](graph.context, x, graph.leaf(weight))
    rope, positions = graph.rope(x, params, 7)
    tokens, initial = 7 * batch, np.full((40, 200), 3, cache_dtype)
    memory = graph.leaf(initial)
    cache = functions["ggml_view_2d"](graph.context, memory, 192, 40, 200 * initial.itemsize, 0)
    graph.expand(cache)  # ggml's backends require that no node is between the rope and SET_ROWS
    if reshape:
        joined = functions["ggml_reshape_2d"](graph.context, rope, 192, tokens)
    else:
        joined = functions["ggml_view_2d"](graph.context, rope, 192, tokens, 192 * values.itemsize, 0)
    slots = rng.permutation(40)[:tokens].astype(np.int64)
    node = functions["ggml_set_rows"](graph.context, cache, joined, graph.leaf(slots))
    graph.expand(node)
    assert graph.run() == ([2, 3] if normalized else [3])
    graph.check_unwritten(rope)
    source = graph.result(x) if normalized else values
    expected, bound = rotated(source, positions, params, cache_dtype)
    all_expected, all_bound = initial.astype(np.float64), np.zeros(initial.shape)
    all_expected[slots, :192] = expected.reshape(tokens, 192)
    all_bound[slots, :192] = bound.reshape(tokens, 192)
    yield judge(graph, memory, all_expected.reshape(1, 1, 40, 200), all_bound.reshape(1, 1, 40, 200))


# ---- refused nodes ---------------------------------------------------------------------------------------

CONNECTED = "another node uses a result that the call does not write"
SHARED = "a result shares memory with a source"


def check_refused(graph, reason, index=0, bfloat16=1):
    """Check that the nodes from index on do not run as one call, and that the adapter writes nothing."""
    before = graph.memory()
    found = compute_fused(graph.graph, index, bfloat16)
    assert found == (0, reason), found
    acl("aclrtSynchronizeStream", stream)
    assert graph.memory() == before


def norm_graph(weight_shape=(64,), x_shape=(1, 3, 5, 64), weight_dtype=np.float32):
    graph = Graph()
    x, w = graph.leaf(numbers(*x_shape)), graph.leaf(np.ones(weight_shape, weight_dtype))
    normalized = functions["ggml_rms_norm"](graph.context, x, EPSILON)
    return graph, x, w, normalized, functions["ggml_mul"](graph.context, normalized, w)


def check_refused_norms():
    graph, _, w, normalized, product = norm_graph()
    graph.expand(product, functions["ggml_mul"](graph.context, normalized, w))
    check_refused(graph, CONNECTED)
    graph, _, _, normalized, product = norm_graph()
    functions["ggml_set_output"](normalized)
    graph.expand(product)
    check_refused(graph, CONNECTED)
    graph, _, _, _, product = norm_graph(weight_shape=(32,))
    graph.expand(product)
    check_refused(graph, "the weight repeats inside a dimension")
    graph, _, w, _, product = norm_graph()
    graph.expand(product)
    fields_of(w).nb[0] = 8  # as in a transposed matrix
    check_refused(graph, "the weight or the product is not float32 with contiguous rows")
    fields_of(w).nb[0] = 2**62
    check_refused(graph, "a tensor has a negative size or reaches over 2^63 bytes")
    fields_of(product).src[1] = None
    check_refused(graph, "a node lacks a source")
    graph, x, w, _, product = norm_graph(weight_shape=(1, 3, 5, 64))
    graph.expand(product)
    graph.place(product, fields_of(x).data + 4)
    check_refused(graph, SHARED)
    graph.place(product, fields_of(w).data)
    check_refused(graph, SHARED)
    graph, x, _, normalized, product = norm_graph()
    graph.expand(product)
    for value in (-1.0, float("nan"), 2.0**65):
        C.c_float.from_buffer(fields_of(normalized).op_params).value = value
        check_refused(graph, "epsilon is not in [0, 2^64]")
        assert compute(normalized) == (1, "epsilon is not in [0, 2^64]")
    C.c_float.from_buffer(fields_of(normalized).op_params).value = EPSILON
    fields_of(x).type = 1
    check_refused(graph, "the tensors of a norm are not float32")
    fields_of(x).type, fields_of(x).nb[0] = FLOAT32, 8
    check_refused(graph, "a row's elements are not contiguous")
    assert compute(normalized) == (1, "a row's elements are not contiguous")


def check_refused_sums():
    for shape, reason in (((64,), "the addition broadcasts a tensor"), ((3, 5, 64), None)):
        graph = Graph()
        x, y = graph.leaf(numbers(3, 5, 64)), graph.leaf(numbers(*shape))
        total = functions["ggml_add"](graph.context, x, y)
        node = functions["ggml_rms_norm"](graph.context, total, EPSILON)
        graph.expand(node)
        if reason is None:  # the norm's result has the memory of the sum
            graph.place(node, fields_of(total).data)
            reason = SHARED
        check_refused(graph, reason)
    graph.place(node, fields_of(y).data + 16)
    check_refused(graph, SHARED)


def check_refused_ropes():
    graph, x, w, _, product = norm_graph()
    rope, _ = graph.rope(product, ROPES[0], 3)
    graph.expand(rope)
    graph.place(rope, fields_of(x).data + 64)
    check_rope_runs_alone(graph)
    graph.place(rope, fields_of(w).data)
    check_rope_runs_alone(graph)
    graph, _, _, _, product = norm_graph(weight_shape=(3, 1, 64))
    graph.expand(graph.rope(product, ROPES[0], 3)[0])
    check_rope_runs_alone(graph)


def check_rope_runs_alone(graph):
    """RMS_NORM and MUL run as one call, ROPE alone."""
    assert compute_fused(graph.graph, 0)[0] == 2
    acl("aclrtSynchronizeStream", stream)


def set_rows_graph(indices=np.int64, cache_dtype=np.float16, dtype=np.float32):
    graph = Graph()
    x = graph.leaf(numbers(1, 7, 3, 64, dtype=dtype))
    rope, _ = graph.rope(x, ROPES[0], 7)
    cache, rows = graph.leaf(np.zeros((40, 192), cache_dtype)), graph.leaf(np.arange(7, dtype=indices))
    joined = functions["ggml_view_2d"](graph.context, rope, 192, 7, 192 * item_bytes(dtype), 0)
    node = functions["ggml_set_rows"](graph.context, cache, joined, rows)
    return graph, x, rope, joined, rows, node


def item_bytes(dtype):
    return np.dtype(dtype).itemsize


def check_refused_rows():
    graph, *_, node = set_rows_graph(indices=np.int32)
    graph.expand(node)
    check_refused(graph, "the rows' indices are not contiguous 64-bit integers, one for each token")
    graph, *_, node = set_rows_graph(cache_dtype=np.float32, dtype=np.float16)
    graph.expand(node)
    check_refused(graph, "the cache does not have x's type (or a narrower type if x is float32)")
    graph, x, rope, joined, _, node = set_rows_graph()
    graph.expand(node)
    graph.place(node, fields_of(x).data + 256)
    check_refused(graph, SHARED)
    graph, x, rope, joined, _, node = set_rows_graph()
    graph.expand(node)
    fields_of(joined).data += 4
    check_refused(graph, "the view does not join the heads of each token")
    graph, x, rope, joined, _, node = set_rows_graph()
    graph.expand(node)
    fields_of(rope).op_params[2] = 7
    check_refused(graph, "the node's mode is not known")
    fields_of(rope).op_params[2] = 2
    fields_of(node).type = 30
    check_refused(graph, "the cache does not have x's type (or a narrower type if x is float32)", bfloat16=0)
    graph, x, rope, joined, _, node = set_rows_graph()
    graph.expand(node, functions["ggml_mul"](graph.context, rope, x))
    check_refused(graph, CONNECTED)
    check_refused(graph, "", index=1)
    check_refused(graph, "", index=2)


# ---- capture ---------------------------------------------------------------------------------------------


def check_capture():
    """Check that a replay computes the graph from the values that the inputs have at the replay."""
    graph, a, b, weight = Graph(), numbers(1, 7, 4, 64), numbers(1, 7, 4, 64), numbers(64)
    x, residual, w = graph.leaf(a), graph.leaf(b), graph.leaf(weight)
    total = functions["ggml_add"](graph.context, x, residual)
    product = functions["ggml_mul"](
        graph.context, functions["ggml_rms_norm"](graph.context, total, EPSILON), w
    )
    rope, positions = graph.rope(product, ROPES[0], 7)
    norm_of_rope = functions["ggml_rms_norm"](graph.context, rope, EPSILON)
    graph.expand(norm_of_rope)
    graph.place_all()
    model = C.c_void_p()
    acl("aclmdlRICaptureBegin", stream, 0)
    assert graph.run(synchronize=False) == [3, 1, 1]
    acl("aclmdlRICaptureEnd", stream, C.byref(model))
    graph.check_unwritten(total)
    for factor in (1, -3):
        graph.change(x, (a * factor).astype(np.float32))
        acl("aclmdlRIExecuteAsync", model, stream)
        acl("aclrtSynchronizeStream", stream)
        summed = add((a * factor).astype(np.float32), b, "float32")
        judge(graph, product, *norm_of(summed, weight))
        judge(graph, rope, *rotated(graph.result(product), positions, ROPES[0], "float32"))
        judge(graph, norm_of_rope, *norm_of(graph.result(rope)))
    acl("aclmdlRIDestroy", model)


def cases():
    for view in (False, True):
        for in_place in (False, True):
            yield norm(view, in_place)
    for shape in ((64,), (1,), (5, 64), (2, 3, 5, 64), (3, 1, 1)):
        yield norm_mul(shape)
    yield norm_mul((2, 3, 5, 64), weight_first=True)
    for weighted in (False, True):
        yield add_norm(weighted=weighted)
        yield add_norm(weighted=weighted, in_place=True)
        yield add_norm(weighted=weighted, long_rows=True)
    for params in ROPES:
        yield norm_mul_rope(params)
        yield rope_set_rows(params)
    for heads in (1, 2, 8):
        yield norm_mul_rope(ROPES[0], heads)
    yield norm_mul_rope(ROPES[1], view=True, factors=True)
    yield norm_mul_rope(ROPES[0], over_x=True)
    yield rope_set_rows(ROPES[0], cache_dtype="float32")
    yield rope_set_rows(ROPES[1], "float16")
    yield rope_set_rows(ROPES[0], batch=2, reshape=True)
    yield rope_set_rows(ROPES[0], normalized=True)


worst, ran = 0.0, 0
for case in cases():
    worst, ran = max(worst, *case), ran + 1
for check in (
    check_refused_norms,
    check_refused_sums,
    check_refused_ropes,
    check_refused_rows,
    check_capture,
):
    check()
finish()
print(f"{ran} graphs, at most {worst:.2f} times the bound")
