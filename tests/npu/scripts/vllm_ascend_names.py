"""npu_rope.compat.vllm_ascend on NPU tensors: its functions, and torch's operators after register().

Results are compared with float64, computed from a call's arguments, by the bounds of npu_rope.testing.qkv.

usage: vllm_ascend_names.py — prints JSON: the result of every check.
       vllm_ascend_names.py launches — calls each operator and rope_forward_oot once, and prints the names.
"""

import sys
import types

import numpy as np
import torch
import torch_npu  # noqa: F401
from run_checks import run, values

from npu_rope import RopeParams
from npu_rope.compat import vllm_ascend
from npu_rope.qkv_norm_rope_cache_calls import QkvAttributes, qkv_tensors
from npu_rope.testing.bounds import TABLE_ERROR_DEVICE, square_sums_bound, worst_ratio
from npu_rope.testing.qkv import expected_results

TOKENS, N, K = 9, 6, 2  # tokens, heads of queries, heads of keys
TYPES = (torch.bfloat16, torch.float16, torch.float32)

# ---- the judge ---------------------------------------------------------------------------------------


def array(x):
    """Return a tensor as an array; bfloat16 as float32."""
    x = x.detach().cpu()
    return (x.float() if x.dtype is torch.bfloat16 else x).numpy()


def split(x, sizes, D):
    """Return the parts of [T, hidden] as [T,N,D]."""
    return [part.reshape(len(x), -1, D) for part in np.split(x, np.cumsum(sizes)[:-1], axis=1)]


def norm_of(a):
    """Return the scales and biases that the arguments have."""
    named = {f"{side}_{to}": a.get(f"{side}_{of}") for side in "qk" for to, of in PARAMETERS.items()}
    return {name: array(x) for name, x in named.items() if x is not None}


PARAMETERS = {"scale": "weight", "bias": "bias"}


def of_rows(cache, positions):
    """Return cos and sin of each token from [rows, W]."""
    return np.split(array(cache)[array(positions)], 2, axis=1)


def parts_of(name, a):
    """Return q, k and v (or q and k), the gate or None, cos, sin and whether pairs are interleaved."""
    gate, interleaved, D = None, False, a.get("head_dim") or a.get("head_size")
    if name in ("rope_forward_oot", "npu_rotary_embedding"):
        xs = [array(x).reshape(len(x), -1, D) for x in (a["query"], a["key"])]
        cos, sin = of_rows(a["cos_sin_cache"], a["positions"])
        interleaved = not a["is_neox_style"]
    elif name == "triton_split_qkv_rmsnorm_mrope":
        sizes = [a[f"num_{heads}_heads"] * D for heads in ("q", "kv", "kv")]
        has_gate, table, half = a.get("has_gate", False), array(a["cos_sin"]), sum(a["mrope_section"])
        xs = split(array(a["qkv"]), [sizes[0] * (1 + has_gate), *sizes[1:]], D)
        if has_gate:
            both = xs[0].reshape(len(xs[0]), -1, 2, D)
            xs[0], gate = both[:, :, 0], both[:, :, 1]
        _, height, width = a["mrope_section"]
        pairs, axis = np.arange(half), np.zeros(half, np.int64)
        if a["is_interleaved"]:
            axis[1 : 3 * height : 3], axis[2 : 3 * width : 3] = 1, 2
        else:
            axis[half - height - width :], axis[half - width :] = 1, 2
        cos, sin = (table[axis, :, first + pairs].T for first in (0, half))
    else:
        sizes = a["q_hidden_size"], a["kv_hidden_size"], a["kv_hidden_size"]
        xs = split(array(a["input"]), sizes, D)
        if name == "split_qkv_tp_rmsnorm_rope":
            cos, sin = (array(a[table]).reshape(len(xs[0]), -1) for table in ("cos", "sin"))
        else:
            cos, sin = of_rows(a["cos_sin_cache"], a["positions"])
    return xs, gate, cos, sin, interleaved


def worst(name, a, results):
    """Return the largest ratio of an error to its bound over all results of a call.

    name: the function's name.
    a: the arguments by their names. For split_qkv_tp_rmsnorm_rope with several ranks also square_sums, which
        all ranks got from all_reduce.
    """
    xs, gate, cos, sin, interleaved = parts_of(name, a)
    params = RopeParams(2 * cos.shape[1], "normal" if interleaved else "neox")
    sums = {} if a.get("square_sums") is None else {"square_sums": array(a["square_sums"])}
    call = qkv_tensors(dict(zip("qkv", xs, strict=False)), {**norm_of(a), "cos": cos, "sin": sin, **sums}, {})
    attributes = QkvAttributes(params, a.get("eps", 0.0), ranks=a.get("tp_world", 1))
    dtype = str(results[0].dtype).removeprefix("torch.")
    dtypes = dict.fromkeys("qkv", dtype)
    expected = expected_results(call, attributes, dtype, dtypes, TABLE_ERROR_DEVICE)
    ratios = []
    for side, result in zip(expected, results, strict=False):
        given = a.get({"q": "query", "k": "key"}.get(side, ""))
        shape = (len(xs[0]), expected[side].value[0].size) if given is None else given.shape
        assert result.device.type == "npu"
        assert (str(result.dtype), tuple(result.shape)) == (f"torch.{dtype}", tuple(shape))
        assert result.is_contiguous()
        ratios.append(worst_ratio(array(result).reshape(expected[side].value.shape), *expected[side])[0])
    if name == "triton_split_qkv_rmsnorm_mrope":
        wanted = np.zeros((len(xs[0]), 0)) if gate is None else gate.reshape(len(gate), -1)
        np.testing.assert_array_equal(array(results[3]), wanted)
    assert len(results) == len(expected) + (name == "triton_split_qkv_rmsnorm_mrope")
    return max(ratios)


# ---- calls -------------------------------------------------------------------------------------------


def on_npu(arguments):
    return {name: x.npu() if isinstance(x, torch.Tensor) else x for name, x in arguments.items()}


def judge(function, name, arguments):
    """Call a function with NPU tensors, and check that each error is within its bound."""
    results = function(**on_npu(arguments))
    ratio = worst(name, arguments, results)
    assert ratio <= 1, (ratio, name, {n: x for n, x in arguments.items() if not isinstance(x, torch.Tensor)})
    return results


def weights(dtype, *shape, bias=False):
    """Return the weights and biases of queries and keys."""
    names = ("q_weight", "k_weight", *(("q_bias", "k_bias") if bias else ()))
    shapes = shape if len(shape) == 2 else 2 * shape
    return {
        name: values(shapes[i % 2], dtype=dtype, seed=i + 1) + (name[2:] == "weight")
        for i, name in enumerate(names)
    }


def per_head(dtype, D=64, width=None, tokens=TOKENS, bias=False, index=torch.int64, table=None):
    """Return the arguments of qkv_rmsnorm_rope."""
    width = width or D
    generator = torch.Generator().manual_seed(5)
    return {
        "input": values(tokens, (N + 2 * K) * D, dtype=dtype),
        "cos_sin_cache": values(50, width, dtype=table or dtype, seed=7),
        "positions": torch.randint(0, 50, (tokens,), generator=generator).to(index),
        **weights(dtype, D, bias=bias),
        "q_hidden_size": N * D,
        "kv_hidden_size": K * D,
        "head_dim": D,
        "eps": 1e-6,
    }


def multi_axis(dtype, sections, D=64, interleaved=False, gate=False, tokens=TOKENS):
    """Return the arguments of triton_split_qkv_rmsnorm_mrope."""
    return {
        "qkv": values(tokens, (N * (1 + gate) + 2 * K) * D, dtype=dtype),
        **weights(dtype, D),
        "cos_sin": values(3, tokens, 2 * sum(sections), dtype=dtype, seed=7),
        "num_q_heads": N,
        "num_kv_heads": K,
        "head_size": D,
        "eps": 1e-6,
        "mrope_section": sections,
        "is_interleaved": interleaved,
        "rope_dim": 2 * sum(sections),
        "has_gate": gate,
    }


def all_heads(dtype, D=64, width=32, tokens=TOKENS, parameters=None, seed=0):
    """Return the arguments of split_qkv_tp_rmsnorm_rope for one rank."""
    return {
        "input": values(tokens, (N + 2 * K) * D, dtype=dtype, seed=seed),
        **weights(parameters or dtype, N * D, K * D),
        "q_hidden_size": N * D,
        "kv_hidden_size": K * D,
        "head_dim": D,
        "rotary_dim": width,
        "eps": 1e-6,
        "tp_world": 1,
        "cos": values(tokens, width // 2, dtype=dtype, seed=7),
        "sin": values(tokens, width // 2, dtype=dtype, seed=8),
    }


def rotation(dtype, D=64, width=32, neox=True, flat=True, tokens=TOKENS):
    """Return the arguments of npu_rotary_embedding and rope_forward_oot."""
    query, key = values(tokens, N, D, dtype=dtype), values(tokens, K, D, dtype=dtype, seed=1)
    return {
        "positions": torch.arange(tokens) * 5,
        "query": query.flatten(1) if flat else query,
        "key": key.flatten(1) if flat else key,
        "cos_sin_cache": values(5 * max(tokens, 1), width, dtype=dtype, seed=7),
        "head_size": D,
        "rotary_dim": width,
        "is_neox_style": neox,
    }


def check_qkv_rmsnorm_rope():
    for dtype in TYPES:
        for D, width, tokens in (
            (64, 64, 1),
            (80, 80, 33),
            (96, 48, 9),
            (128, 64, 9),
            (192, 192, 5),
            (256, 64, 3),
        ):
            for bias in (False, True):
                arguments = per_head(dtype, D, width, tokens, bias)
                judge(vllm_ascend.qkv_rmsnorm_rope, "qkv_rmsnorm_rope", arguments)


def check_positions_and_tables_of_other_types():
    for dtype in TYPES[:2]:
        arguments = per_head(dtype, index=torch.int32, table=torch.float32)
        judge(vllm_ascend.qkv_rmsnorm_rope, "qkv_rmsnorm_rope", arguments)


def check_triton_split_qkv_rmsnorm_mrope():
    function, name = vllm_ascend.triton_split_qkv_rmsnorm_mrope, "triton_split_qkv_rmsnorm_mrope"
    for dtype in TYPES:
        for interleaved in (False, True):
            for gate in (False, True):
                judge(function, name, multi_axis(dtype, [11, 11, 10], 80, interleaved, gate))
                judge(function, name, multi_axis(dtype, [24, 20, 20], 128, interleaved, gate, tokens=1))


def check_split_qkv_tp_rmsnorm_rope():
    for dtype in TYPES:
        for D, width, tokens in ((64, 32, 1), (96, 96, 33), (128, 64, 9)):
            arguments = all_heads(dtype, D, width, tokens)
            judge(vllm_ascend.split_qkv_tp_rmsnorm_rope, "split_qkv_tp_rmsnorm_rope", arguments)
    arguments = all_heads(torch.bfloat16, parameters=torch.float32)
    results = judge(vllm_ascend.split_qkv_tp_rmsnorm_rope, "split_qkv_tp_rmsnorm_rope", arguments)
    # As get_cos_and_sin_slice() of vllm-ascend gives them: each half has the entries of all pairs.
    given = on_npu(arguments)
    given |= {name: given[name].repeat(1, 2)[None, :, None] for name in ("cos", "sin")}
    for got, expected in zip(vllm_ascend.split_qkv_tp_rmsnorm_rope(**given), results, strict=True):
        assert torch.equal(got, expected)


def check_the_tp_norm_of_two_ranks():
    """One process runs both ranks, and adds their sums between two calls of each.

    A stand-in replaces tensor_model_parallel_all_reduce of vllm/distributed/communication_op.py.
    """
    name = "split_qkv_tp_rmsnorm_rope"
    vllm_ascend.register("vllm_npu_rope_ranks")
    distributed = types.ModuleType("vllm.distributed")
    packages = {"vllm": types.ModuleType("vllm"), "vllm.distributed": distributed}
    sys.modules.update(packages)
    for dtype in TYPES:
        ranks = [all_heads(dtype, tokens=33, seed=seed) | {"tp_world": 2} for seed in (0, 1)]
        heads = [parts_of(name, a)[0] for a in ranks]
        sent = []
        distributed.tensor_model_parallel_all_reduce = lambda part: sent.append(part) or part  # noqa: B023
        for a in ranks:
            torch.ops.vllm_npu_rope_ranks.split_qkv_tp_rmsnorm_rope(**on_npu(a))
        total = sent[0] + sent[1]
        squares = [sum((x[i].astype(np.float64) ** 2).sum((1, 2)) for x in heads) for i in range(2)]
        for side, exact in enumerate(squares):
            bound = square_sums_bound(exact, 2 * (N, K)[side] * 64, "float32", "npu")
            assert worst_ratio(array(total)[:, side], exact, bound)[0] <= 1
        distributed.tensor_model_parallel_all_reduce = lambda part: total  # noqa: B023
        for a in ranks:
            results = torch.ops.vllm_npu_rope_ranks.split_qkv_tp_rmsnorm_rope(**on_npu(a))
            assert worst(name, a | {"square_sums": total}, results) <= 1
            given = on_npu(a) | {"all_reduce": lambda part: total}  # noqa: B023
            for got, expected in zip(vllm_ascend.split_qkv_tp_rmsnorm_rope(**given), results, strict=True):
                assert torch.equal(got, expected)
    for package in packages:
        del sys.modules[package]


def check_npu_rotary_embedding():
    for dtype in TYPES:
        for neox in (False, True):
            for flat in (False, True):
                for D, width, tokens in ((64, 32, 9), (80, 80, 1), (192, 64, 33)):
                    arguments = rotation(dtype, D, width, neox, flat, tokens)
                    judge(vllm_ascend.npu_rotary_embedding, "npu_rotary_embedding", arguments)


def check_rope_forward_oot_leaves_its_inputs():
    given = on_npu(rotation(torch.float16))
    query = given["query"].clone()
    results = vllm_ascend.rope_forward_oot(**given)
    assert worst("rope_forward_oot", given, results) <= 1
    assert torch.equal(given["query"], query)


def check_a_projection_with_gaps_between_tokens():
    arguments = per_head(torch.bfloat16)
    hidden = arguments["input"].shape[1]
    given = on_npu(arguments)
    given["input"] = torch.cat([given["input"], given["input"]], 1)[:, :hidden]
    assert worst("qkv_rmsnorm_rope", arguments, vllm_ascend.qkv_rmsnorm_rope(**given)) <= 1


def check_no_tokens():
    for name, arguments in calls_of(torch.float16, tokens=0):
        results = getattr(vllm_ascend, name)(**on_npu(arguments))
        assert {len(result) for result in results} == {0}, name


# ---- operators ---------------------------------------------------------------------------------------


def calls_of(dtype, tokens=TOKENS):
    """Return the name and the arguments of one call of each function."""
    return [
        ("qkv_rmsnorm_rope", per_head(dtype, tokens=tokens)),
        ("qkv_rmsnorm_rope_simt", per_head(dtype, tokens=tokens, bias=True)),
        ("triton_split_qkv_rmsnorm_mrope", multi_axis(dtype, [8, 12, 12], tokens=tokens)),
        ("split_qkv_tp_rmsnorm_rope", all_heads(dtype, tokens=tokens)),
        ("npu_rotary_embedding", rotation(dtype, tokens=tokens)),
        ("rope_forward_oot", rotation(dtype, tokens=tokens)),
    ]


def check_the_operators():
    names = vllm_ascend.register()
    assert names == [f"vllm::{name}" for name, _ in calls_of(torch.float16)[:-1]]
    with torch.inference_mode():
        for name, arguments in calls_of(torch.bfloat16)[:-1]:
            judge(getattr(torch.ops.vllm, name), name, arguments)


def check_operators_that_exist_are_replaced():
    """vllm-ascend's kernels are of NPU tensors only, with fakes of its own."""
    library = torch.library.Library("vllm_npu_rope_test", "FRAGMENT")
    for name, schema in vllm_ascend._SCHEMAS.items():
        library.define(name + schema)
        library.impl(name, lambda *_, **__: 1 / 0, "PrivateUse1")
    vllm_ascend.register("vllm_npu_rope_test")
    for name, arguments in calls_of(torch.float16)[:-1]:
        judge(getattr(torch.ops.vllm_npu_rope_test, name), name, arguments)


def check_full_graph_compilation():
    vllm_ascend.register("vllm_npu_rope_compiled")
    for name, arguments in calls_of(torch.float16)[:-1]:
        operator, given = getattr(torch.ops.vllm_npu_rope_compiled, name), on_npu(arguments)
        compiled = torch.compile(lambda: operator(**given), backend="aot_eager", fullgraph=True)  # noqa: B023
        with torch.no_grad():
            for got, expected in zip(compiled(), operator(**given), strict=True):
                assert torch.equal(got, expected), name


def check_bad_calls_are_refused():
    mrope, tp = "triton_split_qkv_rmsnorm_mrope", "split_qkv_tp_rmsnorm_rope"
    refused = [
        ("qkv_rmsnorm_rope", {"head_dim": 100}, "q_hidden_size must be a multiple of head_dim = 100"),
        ("qkv_rmsnorm_rope", {"input": values(9, 99).npu()}, "input must be [T, 640] but got [9, 99]"),
        (
            "qkv_rmsnorm_rope",
            {"q_weight": values(384).npu()},
            "q_weight must be [head_dim] = [64] but got [384]",
        ),
        (
            "qkv_rmsnorm_rope",
            {"positions": torch.arange(9)},
            "[qkv_rmsnorm_rope] positions must be on input's device npu:0",
        ),
        (mrope, {"mrope_section": [8, 8, 8]}, "mrope_section must be three numbers >= 0 that add up to 32"),
        (
            tp,
            {"cos": values(9, 8).npu()},
            "cos must be [T, rotary_dim/2] = [9, 16] or [T, rotary_dim] = [9, 32] but got [9, 8]",
        ),
        (
            "rope_forward_oot",
            {"rotary_dim": 16},
            "cos_sin_cache must be [rows, rotary_dim] = [rows, 16] but got [45, 32]",
        ),
    ]
    given = dict(calls_of(torch.float32))
    for name, changed, text in refused:
        message = "no error"
        try:
            getattr(vllm_ascend, name)(**{**on_npu(given[name]), **changed})
        except (TypeError, ValueError) as error:
            message = str(error)
        assert text in message, message


def launch_each_once():
    vllm_ascend.register()
    for name, arguments in calls_of(torch.bfloat16):
        owner = vllm_ascend if name == "rope_forward_oot" else torch.ops.vllm
        getattr(owner, name)(**on_npu(arguments))
        print(name)
    torch.npu.synchronize()


if __name__ == "__main__":
    if sys.argv[1:] == ["launches"]:
        launch_each_once()
    else:
        run(globals())
