"""torch_npu's stores into KV caches, and its in-place rotation by rows of a cache, on npu_rope.

Their results are compared with float64 by the cases of suite torch_npu. Here all of these cases run, and
calls that the suite does not have: several caches' types, tables for each head, compiled and fake calls, and
bad ones.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from npu_rope import backends
from npu_rope.compat import torch_npu
from npu_rope.testing.chip_types import lacks_type
from npu_rope.testing.outcomes import OK, UNSUPPORTED
from npu_rope.testing.ports import judge_ports, port_cases

STORES = ("npu_kv_rmsnorm_rope_cache", "npu_qkv_rms_norm_rope_cache")
CASES = [case for case in port_cases() if case.function in (*STORES, "_npu_rotary_embedding")]


@pytest.fixture
def store_backend(backend, monkeypatch):
    """Each back end in turn, as the default one."""
    monkeypatch.setattr(backends, "default_backend", backend)


def randn(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@pytest.mark.long
def test_every_case_of_the_suite_is_within_its_bound(backend):
    results = {case: judge_ports(case, [backend]).judgements[0] for case in CASES}
    assert len(results) == 3 * 26
    expected = {case: UNSUPPORTED if lacks_type(backend, (case.dtype,)) else OK for case in CASES}
    wrong = {case.name: j for case, j in results.items() if j.verdict != expected[case]}
    assert {name: (j.verdict, j.message, j.ratio) for name, j in wrong.items()} == {}


# op-plugin op_plugin_functions.yaml: the schemas
SIGNATURES = {
    "npu_kv_rmsnorm_rope_cache": (
        "kv, gamma, cos, sin, index, k_cache, ckv_cache, *, k_rope_scale=None, c_kv_scale=None,"
        " k_rope_offset=None, c_kv_offset=None, v=None, epsilon=1e-05, cache_mode='Norm', is_output_kv=False"
    ),
    "npu_qkv_rms_norm_rope_cache": (
        "qkv, q_gamma, k_gamma, cos, sin, index, q_out, k_cache, v_cache, qkv_size, head_nums, *,"
        " k_scale=None, v_scale=None, k_offset=None, v_offset=None, epsilon=1e-06, cache_mode='PA_NZ',"
        " is_output_qkv=False"
    ),
    "_npu_rotary_embedding": "positions, query, key, head_size, cos_sin_cache, is_neox_style",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_names_order_and_defaults_of_arguments_are_those_of_torch_npu(name):
    signature = inspect.signature(getattr(torch_npu, name))
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    assert str(inspect.Signature(plain)) == f"({SIGNATURES[name]})"


# ---- npu_kv_rmsnorm_rope_cache -------------------------------------------------------------------------

B, S, DV, DK, BLOCKS, BLOCK = 2, 5, 64, 32, 4, 16


def kv_call(cache_mode="PA", heads=1, dtype=torch.float32, **changes) -> dict[str, Any]:
    """Return the arguments of a call with caches full of 9."""
    outer = (B, heads, 7) if cache_mode == "Norm" else (BLOCKS, BLOCK, heads)
    k_cache, ckv_cache = (torch.full((*outer, size), 9, dtype=dtype) for size in (DK, DV))
    blocks = torch.arange(B) * BLOCK
    rows = {"Norm": torch.arange(S).expand(B, S).clone(), "PA_BLK_BNSD": blocks, "PA_BLK_NZ": blocks}
    return {
        "kv": randn(B, heads, S, DV + DK, dtype=dtype),
        "gamma": randn(DV, dtype=dtype, seed=1),
        "cos": randn(B, 1, S, DK, dtype=dtype, seed=2),
        "sin": randn(B, 1, S, DK, dtype=dtype, seed=3),
        "index": rows.get(str(cache_mode), torch.arange(B * S)),
        "k_cache": k_cache,
        "ckv_cache": ckv_cache,
        "cache_mode": cache_mode,
        **changes,
    }


def run_kv(**given):
    return torch_npu.npu_kv_rmsnorm_rope_cache(**given)


@pytest.mark.parametrize("cache_mode", ["Norm", "PA", "PA_NZ"])
def test_the_caches_themselves_are_returned(cache_mode, store_backend):
    given = kv_call(cache_mode)
    results = run_kv(**given)
    assert results[0] is given["k_cache"]
    assert results[1] is given["ckv_cache"]
    assert results[2:] == (None, None)
    for cache in results[:2]:
        assert 0 < (cache == 9).float().mean() < 1


def test_each_cache_may_have_its_own_type(store_backend):
    exact = kv_call(is_output_kv=True)
    k, y = run_kv(**exact)[2:]
    assert k.shape == (B, 1, S, DK)
    assert y.shape == (B, 1, S, DV)
    scale = torch.full((DK,), 20.0)
    mixed = kv_call(k_rope_scale=scale, k_rope_offset=scale / 4)
    mixed |= {"k_cache": mixed["k_cache"].to(torch.int8), "ckv_cache": mixed["ckv_cache"].half()}
    rows = run_kv(**mixed)
    expected = (k[:, 0].flatten(0, 1) * 20 + 5).round().clamp(-128, 127)
    assert ((rows[0].flatten(0, 2)[: B * S].float() - expected).abs() <= 1).all()
    assert torch.equal(rows[1].flatten(0, 2)[: B * S], y[:, 0].flatten(0, 1).half())
    assert (rows[0].flatten(0, 2)[B * S :] == 9).all()


@pytest.mark.parametrize("cache_mode", ["Norm", "PA_BNSD", "PA_NZ"])
def test_a_call_with_heads_equals_calls_with_one_head(cache_mode, store_backend):
    """Tables for each head, and v: the formula of aclnnKvRmsNormRopeCacheV2."""
    heads = 2
    given = kv_call(cache_mode, heads, is_output_kv=True)
    given |= {
        "kv": randn(B, heads, S, DK),
        "gamma": randn(DK, seed=1),
        "v": randn(B, heads, S, DV, seed=4),
        "cos": randn(B, heads, S, 16, seed=2),
        "sin": randn(B, heads, S, 16, seed=3),
        "k_rope_scale": 20 + randn(heads, DK, seed=5),
    }
    given["k_cache"] = given["k_cache"].to(torch.int8)
    results = run_kv(**given)
    for head in range(heads):
        part = slice(head, head + 1)
        one = kv_call(cache_mode, is_output_kv=True)
        one |= {name: given[name][:, part] for name in ("kv", "v", "cos", "sin")}
        one |= {"gamma": given["gamma"], "k_rope_scale": given["k_rope_scale"][head]}
        one["k_cache"] = one["k_cache"].to(torch.int8)
        for got, expected in zip(results, run_kv(**one), strict=True):
            if got.dim() == 4 and got.shape[0] == B:
                got = got[:, part]
            elif cache_mode == "PA_NZ":
                got = got.view(BLOCKS, heads, -1)[:, head].view(expected.shape)
            else:
                got = got[:, :, part]
            assert torch.equal(got, expected)


@pytest.mark.parametrize("cache_mode", ["Norm", "PA_BLK_BNSD"])
def test_a_negative_index_leaves_tokens_out(cache_mode, store_backend):
    given = kv_call(cache_mode)
    given["index"][1:] = -1
    for cache in run_kv(**given)[:2]:
        rows = cache.flatten(0, 2)
        assert (rows[:S] != 9).all()
        assert (rows[S:] == 9).all()


HALF = {name: t for name, t in kv_call(dtype=torch.float16).items() if name in ("kv", "gamma", "k_cache")}
BAD_KV = {
    "mode": ({"cache_mode": "PA_X"}, "cache_mode must be one of Norm, PA, PA_BNSD, PA_NZ"),
    "list": ({"kv": [1]}, "kv must be a torch tensor but got list."),
    **{
        f"no {name}": ({name: None}, f"{name} must be a torch tensor but got NoneType.")
        for name in ("kv", "gamma", "cos", "sin", "index")
    },
    "mode of another type": ({"cache_mode": []}, "cache_mode must be one of Norm, PA, PA_BNSD, PA_NZ"),
    **{
        f"flag {value!r}": ({"is_output_kv": value}, f"is_output_kv must be True or False but got {value!r}.")
        for value in ("no", 1, None)
    },
    "no heads": (
        {
            "kv": randn(B, 0, S, DV + DK),
            "k_cache": torch.full((BLOCKS, BLOCK, 0, DK), 9.0),
            "ckv_cache": torch.full((BLOCKS, BLOCK, 0, DV), 9.0),
        },
        "kv must have at least one head but got [2, 0, 5, 96].",
    ),
    "rank": ({"kv": randn(2, 5, 96)}, "kv must have shape [B,N,S,D] but got [2, 5, 96]."),
    "width": ({"kv": randn(B, 1, S, 90)}, "kv must have 64 + 32 elements in a row"),
    "gamma": ({"gamma": torch.ones(64).half()}, "gamma must be float32 but got float16."),
    "tables": (
        {"cos": randn(B, 1, 3, DK)},
        "cos must have shape [2 or 1, 1 or 1, 5 or 1, W] but got [2, 1, 3",
    ),
    "sin": ({"sin": randn(B, 1, 1, DK)}, "sin must have cos's shape [2, 1, 5, 32] but got [2, 1, 1, 32]."),
    "k_cache": (
        {"k_cache": randn(BLOCKS, BLOCK, 1, 30)},
        "k_cache must have shape [blocks, block_size, 1, 32]",
    ),
    "ckv_cache": (
        {"ckv_cache": randn(2, BLOCK, 1, DV)[:0]},
        "index must be -1 or a row of ckv_cache's 0 but got 0.",
    ),
    "dtype": (
        {"ckv_cache": torch.zeros(BLOCKS, BLOCK, 1, DV, dtype=torch.int16)},
        "ckv_cache must be float32,",
    ),
    "no scale": (
        {"ckv_cache": torch.zeros(BLOCKS, BLOCK, 1, DV, dtype=torch.int8)},
        "c_kv_scale must be given for an int8 ckv_cache but got None.",
    ),
    "scale": (
        {"c_kv_scale": torch.ones(DV)},
        "c_kv_scale must be given for an int8 ckv_cache only but got float32.",
    ),
    "scale's shape": (
        {"k_rope_scale": torch.ones(3)},
        "k_rope_scale must have shape [1], [32] or [1, 32] but got [3].",
    ),
    "scale's type": ({"k_rope_scale": torch.ones(1).half()}, "k_rope_scale must be float32 but got float16."),
    "index": ({"index": torch.arange(9)}, "index must have shape [10] but got [9]."),
    "index's type": ({"index": torch.zeros(B * S)}, "index must be int32 or int64 but got float32."),
    "beyond": (
        {"index": torch.arange(B * S) + 60},
        "index must be -1 or a row of the cache's 64 but got 64.",
    ),
    "beyond a batch": (
        kv_call("Norm") | {"index": torch.arange(S).expand(B, S) + torch.tensor([[0], [3]])},
        "index must be -1 or a row of the 7 of each batch but got 7.",
    ),
    "below a batch": (
        kv_call("Norm") | {"index": torch.arange(S).expand(B, S) - 2},
        "index must be -1 or a row of the cache's 14 but got -2.",
    ),
    "below": ({"index": torch.arange(B * S) - 2}, "index must be -1 or a row of the cache's 64 but got -2."),
    "twice": ({"index": torch.arange(B * S) // 2}, "index must differ from each other but got 0 twice."),
    "v": ({"v": randn(B, 1, 3, DV)}, "v must have shape [2, 1, 5, Dv] but got [2, 1, 3, 64]."),
    "v's type": (
        {"kv": randn(B, 1, S, DV), "v": randn(B, 1, S, DV).half()},
        "v must have kv's dtype float32 but got float16.",
    ),
    "epsilon": ({"epsilon": -1.0}, "epsilon must be >= 0 and finite in float32 but got -1."),
    "epsilon's type": ({"epsilon": "1e-5"}, "epsilon must be a number but got '1e-5'."),
    "sin's type": (
        {"sin": randn(B, 1, S, DK).half(), **HALF},
        "sin must have cos's dtype float32 but got float16.",
    ),
    "cos's type": (
        HALF | {"cos": randn(B, 1, S, DK).double()},
        "cos must be float16 or float32 but got float64.",
    ),
    "v is no tensor": ({"v": [1]}, "v must be a torch tensor but got list."),
    "scale is no tensor": ({"c_kv_scale": 1.0}, "c_kv_scale must be a torch tensor but got float."),
    "v's cache": (
        {
            "kv": randn(B, 1, S, DV),
            "v": randn(B, 1, S, DV),
            "k_cache": torch.full((BLOCKS, BLOCK, 1, DV), 9.0),
        }
        | {"ckv_cache": torch.full((BLOCKS, BLOCK, 1, DV), 9, dtype=torch.int16)},
        "ckv_cache must be float32, float16, bfloat16 or int8 but got int16.",
    ),
    "strides": (
        {"ckv_cache": torch.full((BLOCKS, BLOCK, 1, 2 * DV), 9.0)[..., ::2]},
        "ckv_cache must have unit stride in its last dimension",
    ),
    "device": ({"sin": randn(B, 1, S, DK).to("meta")}, "sin must be on kv's device cpu but got meta."),
}


@pytest.mark.parametrize("name", BAD_KV)
def test_a_bad_call_of_kv_is_refused_and_writes_nothing(name, store_backend):
    changes, text = BAD_KV[name]
    given = kv_call(**changes)
    before = [given[name].clone() for name in ("k_cache", "ckv_cache")]
    with pytest.raises((ValueError, TypeError)) as caught:
        run_kv(**given)
    assert str(caught.value).startswith(f"[npu_kv_rmsnorm_rope_cache] {text}")
    for cache, old in zip((given["k_cache"], given["ckv_cache"]), before, strict=True):
        assert torch.equal(cache, old)


def test_an_nz_cache_is_contiguous_and_has_whole_columns():
    given = kv_call("PA_NZ", k_cache=torch.zeros(BLOCKS, BLOCK, 1, DK + 1)[..., :DK])
    with pytest.raises(ValueError, match=r"k_cache must be contiguous in the modes NZ but got strides"):
        run_kv(**given)
    given = kv_call("PA_NZ", kv=randn(B, 1, S, DV + 20), k_cache=torch.zeros(BLOCKS, BLOCK, 1, 20))
    given |= {name: randn(B, 1, S, 20) for name in ("cos", "sin")}
    text = r"k_cache must have heads of a multiple of 8 elements of float32 but got 20\."
    with pytest.raises(ValueError, match=text):
        run_kv(**given)


# ---- npu_qkv_rms_norm_rope_cache -----------------------------------------------------------------------

T, N, NK, D = 6, 4, 2, 32


def qkv_call(**changes) -> dict[str, Any]:
    return {
        "qkv": randn(T, (N + 2 * NK) * D),
        "q_gamma": randn(D, seed=1),
        "k_gamma": randn(D, seed=2),
        "cos": randn(T, D, seed=3),
        "sin": randn(T, D, seed=4),
        "index": torch.arange(T),
        "q_out": torch.full((T, N * D), 9.0),
        "k_cache": torch.full((3, NK * D // 8, 8, 8), 9.0),
        "v_cache": torch.full((3, NK * D // 8, 8, 8), 9.0),
        "qkv_size": [2, 3, N + 2 * NK, D],
        "head_nums": [N, NK, NK],
        **changes,
    }


def run_qkv(**given):
    return torch_npu.npu_qkv_rms_norm_rope_cache(**given)


def test_values_are_copied_and_the_outputs_are_what_is_stored(store_backend):
    given = qkv_call(is_output_qkv=True)
    q, k, v = run_qkv(**given)
    assert torch.equal(q, given["q_out"])
    assert torch.equal(v, given["qkv"][:, -NK * D :])
    for result, cache in ((k, given["k_cache"]), (v, given["v_cache"])):
        rows = cache.permute(0, 2, 1, 3).flatten(2).flatten(0, 1)  # [blocks * block_size, NK * D]
        assert torch.equal(rows[:T], result)
        assert (rows[T:] == 9).all()
    assert run_qkv(**qkv_call()) == (None, None, None)


def int8_cache():
    return torch.full((3, NK * D // 32, 8, 32), 9, dtype=torch.int8)


BAD_QKV = {
    **{
        f"no {name}": ({name: None}, f"{name} must be a torch tensor but got NoneType.")
        for name in ("qkv", "q_gamma", "cos", "index")
    },
    "sizes as text": ({"qkv_size": "abcd"}, "qkv_size must be four integers but got 'abcd'."),
    "no sizes": ({"qkv_size": None}, "qkv_size must be four integers but got None."),
    "a float as a size": (
        {"qkv_size": [2, 3.0, N + 2 * NK, D]},
        "qkv_size[1] must be an integer but got 3.0.",
    ),
    "one number of heads": ({"head_nums": 6}, "head_nums must be three integers but got 6."),
    "a bool as a number of heads": (
        {"head_nums": [N, NK, True]},
        "head_nums[2] must be an integer but got True.",
    ),
    "flag": ({"is_output_qkv": "no"}, "is_output_qkv must be True or False but got 'no'."),
    "mode of another type": ({"cache_mode": []}, "cache_mode must be PA_NZ but got []."),
    "divisor 0": (
        {"k_cache": int8_cache(), "k_scale": torch.tensor([1.0] * 5 + [0.0] * (D - 5))},
        "k_scale must not be 0 but got 0 at index [5].",
    ),
    "divisor -0 of values": (
        {"v_cache": int8_cache(), "v_scale": -torch.zeros(1)},
        "v_scale must not be 0 but got 0 at index [0].",
    ),
    "mode": ({"cache_mode": "PA_BNSD"}, "cache_mode must be PA_NZ but got 'PA_BNSD'."),
    "sizes": ({"qkv_size": [2, 3, 8]}, "qkv_size must be 4 numbers of at least 1 but got [2, 3, 8]."),
    "heads": (
        {"head_nums": [4, 1, 2]},
        "head_nums must add up to the 8 heads of qkv_size but got [4, 1, 2].",
    ),
    "qkv": ({"qkv_size": [2, 2, 8, D]}, "qkv must have shape [4, 256] but got [6, 256]."),
    "gamma": ({"k_gamma": torch.ones(3)}, "k_gamma must have shape [D] = [32] but got [3]."),
    "cos": ({"cos": randn(T, 2 * D)}, "cos must have shape [6, W] with an even W up to 32 but got [6, 64]."),
    "sin": ({"sin": randn(T, 2)}, "sin must have cos's shape [6, 32] but got [6, 2]."),
    "index": ({"index": torch.arange(T) + 20}, "index must be -1 or a row of the cache's 24 but got 24."),
    "twice": (
        {"index": torch.zeros(T, dtype=torch.int64)},
        "index must differ from each other but got 0 twice.",
    ),
    "q_out": ({"q_out": randn(T, D)}, "q_out must have shape [6, 128] but got [6, 32]."),
    "q_out's type": (
        {"q_out": randn(T, N * D).half()},
        "q_out must have qkv's dtype float32 but got float16.",
    ),
    "gamma's type": ({"k_gamma": torch.ones(D).half()}, "k_gamma must be float32 but got float16."),
    "queries' gamma's type": ({"q_gamma": torch.ones(D).half()}, "q_gamma must be float32 but got float16."),
    "cos's type": ({"cos": randn(T, D).half()}, "cos must be float32 but got float16."),
    "sin's type": ({"sin": randn(T, D).half()}, "sin must have cos's dtype float32 but got float16."),
    "epsilon": ({"epsilon": -1.0}, "epsilon must be >= 0 and finite in float32 but got -1."),
    "scale is no tensor": ({"v_scale": 1.0}, "v_scale must be a torch tensor but got float."),
    "device": (
        {"k_gamma": torch.ones(D, device="meta")},
        "k_gamma must be on qkv's device cpu but got meta.",
    ),
    "k_cache": (
        {"k_cache": randn(3, 8, 8, 16)},
        "k_cache must have shape [blocks, 8, block_size, 8] but got",
    ),
    "no scale": (
        {"v_cache": torch.zeros(3, 2, 8, 32, dtype=torch.int8)},
        "v_scale must be given for an int8 v_cache but got None.",
    ),
}


@pytest.mark.parametrize("name", BAD_QKV)
def test_a_bad_call_of_qkv_is_refused_and_writes_nothing(name, store_backend):
    changes, text = BAD_QKV[name]
    given = qkv_call(**changes)
    before = {name: given[name].clone() for name in ("q_out", "k_cache", "v_cache")}
    with pytest.raises((ValueError, TypeError)) as caught:
        run_qkv(**given)
    assert str(caught.value).startswith(f"[npu_qkv_rms_norm_rope_cache] {text}")
    for argument, old in before.items():
        assert torch.equal(given[argument], old)


# ---- memory, gradients and names -----------------------------------------------------------------------


def int8_kv(cache_mode, **changes):
    """Return a call with each of the arguments but v, and int8 caches."""
    given = kv_call(cache_mode, **changes)
    for prefix, cache in (("k_rope", "k_cache"), ("c_kv", "ckv_cache")):
        given[cache] = given[cache].to(torch.int8)
        size = given[cache].shape[-1]
        given |= {f"{prefix}_scale": torch.full((size,), 20.0), f"{prefix}_offset": torch.ones(size)}
    return given


def int8_qkv():
    caches = {
        name: torch.full((3, NK * D // 32, 8, 32), 9, dtype=torch.int8) for name in ("k_cache", "v_cache")
    }
    scales = {f"{x}_scale": torch.full((NK, D), 0.1) for x in "kv"}
    return qkv_call(**caches, **scales, **{f"{x}_offset": torch.ones(D) for x in "kv"})


def with_v():
    """Return a call with v and float32 caches."""
    given = kv_call("PA", kv=randn(B, 1, S, DV), v=randn(B, 1, S, DV, seed=4))
    return given | {"k_cache": torch.full((BLOCKS, BLOCK, 1, DV), 9.0)}


WHOLE_CALLS = {
    "Norm": (run_kv, lambda: int8_kv("Norm")),
    "PA_BNSD": (run_kv, lambda: int8_kv("PA_BNSD")),
    "PA_NZ": (run_kv, lambda: int8_kv("PA_NZ")),
    "PA_BLK_BNSD": (run_kv, lambda: int8_kv("PA_BLK_BNSD")),
    "float32": (run_kv, lambda: kv_call("PA_BNSD")),
    "float32 NZ": (run_kv, lambda: kv_call("PA_NZ")),
    "v": (run_kv, with_v),
    "qkv": (run_qkv, int8_qkv),
    "float32 qkv": (run_qkv, qkv_call),
}
WRITTEN = ("q_out", "k_cache", "ckv_cache", "v_cache")
OP_OF = {run_kv: "npu_kv_rmsnorm_rope_cache", run_qkv: "npu_qkv_rms_norm_rope_cache"}


def tensors_of(given):
    return {name: t for name, t in given.items() if isinstance(t, torch.Tensor)}


def error_of(run, given):
    """Return a call's error and the written tensors that it has changed."""
    before = {name: given[name].detach().clone() for name in WRITTEN if name in given}
    message = "no error"
    try:
        run(**given)
    except (ValueError, TypeError) as error:
        message = str(error).partition("\n")[0]
    return message, [name for name, old in before.items() if not torch.equal(given[name], old)]


def overlapped(first, second):
    """Return copies of two tensors. The last eight bytes of the first one are the first ones of the other."""
    sizes = [t.numel() * t.element_size() for t in (first, second)]
    start = sizes[0] - 8
    memory = torch.zeros(start + sizes[1], dtype=torch.uint8)
    both = memory[: sizes[0]], memory[start:]
    views = [part.view(t.dtype).view(t.shape) for part, t in zip(both, (first, second), strict=True)]
    views[0].copy_(first)
    views[1].view(-1)[8 // second.element_size() :] = second.reshape(-1)[8 // second.element_size() :]
    return views


@pytest.mark.parametrize("name", WHOLE_CALLS)
def test_no_written_tensor_shares_memory_with_another_argument(name, store_backend):
    run, make = WHOLE_CALLS[name]
    results, expected = {}, {}
    arguments = list(tensors_of(make()))
    for written in (argument for argument in arguments if argument in WRITTEN):
        for other in (argument for argument in arguments if argument != written):
            given = make()
            given[written], given[other] = overlapped(given[written], given[other])
            results[written, other] = error_of(run, given)
            last, first = written, other
            if other in WRITTEN and WRITTEN.index(other) > WRITTEN.index(written):
                last, first = other, written
            rule = f"{last} must share no memory with {first} but got overlapping memory."
            expected[written, other] = (f"[{OP_OF[run]}] {rule}", [])
    assert len(results) >= 2 * 6
    assert results == expected


@pytest.mark.parametrize("name", WHOLE_CALLS)
def test_no_argument_needs_a_gradient(name, store_backend):
    run, make = WHOLE_CALLS[name]
    results, expected = {}, {}
    for argument in (name for name, t in tensors_of(make()).items() if t.is_floating_point()):
        given = make()
        given[argument].requires_grad_()
        results[argument] = error_of(run, given)
        rule = f"{argument} must not need a gradient but got one that does."
        expected[argument] = (f"[{OP_OF[run]}] {rule}", [])
        with torch.no_grad():
            run(**given)
    assert len(results) >= 6
    assert results == expected


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # from make_dual
def test_no_argument_carries_a_tangent():
    given = kv_call("PA_BNSD")
    with torch.autograd.forward_ad.dual_level():
        given["sin"] = torch.autograd.forward_ad.make_dual(given["sin"], torch.ones(given["sin"].shape))
        with pytest.raises(
            NotImplementedError, match=r"\[npu_kv_rmsnorm_rope_cache\] sin must carry no tangent"
        ):
            run_kv(**given)
    assert (given["ckv_cache"] == 9).all()


def test_views_of_one_buffer_that_share_no_memory_are_accepted(store_backend):
    """Both caches and cos are columns of one tensor."""
    apart, together = kv_call("PA"), kv_call("PA")
    memory = torch.full((BLOCKS, BLOCK, 1, DV + 2 * DK), 9.0)
    together |= {"k_cache": memory[..., :DK], "ckv_cache": memory[..., DK:-DK]}
    cos = memory.flatten(0, 2)[: B * S, -DK:].view(B, 1, S, DK)
    together["cos"] = cos.copy_(together["cos"])
    for result, expected in zip(run_kv(**together)[:2], run_kv(**apart)[:2], strict=True):
        assert torch.equal(result, expected)
    empty = kv_call("PA", kv=randn(B, 1, 0, DV + DK), index=torch.arange(0))
    run_kv(**empty | {name: randn(B, 1, 0, DK) for name in ("cos", "sin")})


@pytest.mark.parametrize("cache_mode", ["Norm", "PA", "PA_NZ"])
@pytest.mark.parametrize("argument", ["k_cache", "ckv_cache", "epsilon"])
def test_an_error_of_a_fake_call_has_the_caller_s_names(cache_mode, argument):
    given = kv_call(cache_mode)
    with FakeTensorMode() as mode:
        given = {n: mode.from_tensor(t) if isinstance(t, torch.Tensor) else t for n, t in given.items()}
        given[argument] = -1.0 if argument == "epsilon" else given[argument].to(torch.int16)
        with pytest.raises((ValueError, TypeError)) as caught:
            run_kv(**given)
    assert str(caught.value).startswith(f"[npu_kv_rmsnorm_rope_cache] {argument} must be ")


@pytest.mark.parametrize(("run", "make", "x"), [(run_kv, kv_call, "kv"), (run_qkv, qkv_call, "qkv")])
def test_an_error_of_a_launch_has_the_caller_s_names(run, make, x, monkeypatch):
    monkeypatch.setattr(backends, "default_backend", "sim")
    given = make()
    xs = given.pop(x)[None]
    with pytest.raises(
        ValueError, match=rf"\[{OP_OF[run]}\] {x} must be outside torch\.func for backend sim"
    ):
        torch.func.vmap(lambda one: run(**given, **{x: one}))(xs)


# ---- limits of a chip ----------------------------------------------------------------------------------

BFLOAT16 = {"dtype": torch.bfloat16}
LONG = 2048  # elements of a head; a kernel takes 1,024
CHIP_LIMITS = {
    "k_cache": (
        run_kv,
        kv_call(k_cache=torch.full((BLOCKS, BLOCK, 1, DK), 9, **BFLOAT16)),
        "k_cache must be float32 or float16 on Ascend310P3 but got bfloat16.",
    ),
    "ckv_cache": (
        run_kv,
        kv_call("PA_NZ", ckv_cache=torch.full((BLOCKS, BLOCK, 1, DV), 9, **BFLOAT16)),
        "ckv_cache must be float32 or float16 on Ascend310P3 but got bfloat16.",
    ),
    "kv": (
        run_kv,
        kv_call(**BFLOAT16),
        "kv must be float32 or float16 on Ascend310P3 but got bfloat16.",
    ),
    "long heads in columns": (
        run_kv,
        kv_call("PA_NZ", kv=randn(B, 1, S, DV + LONG), k_cache=torch.full((BLOCKS, BLOCK, 1, LONG), 9.0))
        | {name: randn(B, 1, S, LONG) for name in ("cos", "sin")},
        "kv must have a head size of at most 1024 on an NPU but got 2048.",
    ),
    "v_cache": (
        run_qkv,
        qkv_call(v_cache=torch.full((3, NK * D // 16, 8, 16), 9, **BFLOAT16)),
        "v_cache must be float32 or float16 on Ascend310P3 but got bfloat16.",
    ),
}


@pytest.mark.parametrize("name", CHIP_LIMITS)
def test_a_chip_refuses_its_limits_before_anything_is_written(name, monkeypatch):
    monkeypatch.setattr(backends, "default_backend", "sim:ascend310p")
    run, given, text = CHIP_LIMITS[name]
    given = {n: t.clone() if isinstance(t, torch.Tensor) else t for n, t in given.items()}
    with pytest.raises((ValueError, TypeError)) as caught:
        run(**given)
    assert str(caught.value) == f"[{OP_OF[run]}] {text}"
    written = {n: t for n, t in given.items() if n in ("k_cache", "ckv_cache", "v_cache", "q_out")}
    assert {n: bool((t == 9).all()) for n, t in written.items()} == dict.fromkeys(written, True)


# ---- _npu_rotary_embedding -----------------------------------------------------------------------------


def test_a_projection_is_rotated_in_place(backend, monkeypatch):
    """query and key are slices of one tensor; the values beside them do not change."""
    monkeypatch.setattr(backends, "default_backend", backend)
    qkv, cache, positions = randn(6, 5 * 16), randn(9, 16, seed=1), torch.arange(6).view(2, 3)
    q, k, v = qkv.split([48, 16, 16], dim=1)
    before = qkv.clone()
    result = torch_npu._npu_rotary_embedding(positions, q, k, 16, cache, True)
    assert result is None
    assert torch.equal(v, before[:, 64:])
    cos, sin = (t.repeat(1, 2)[:, None] for t in cache[:6].chunk(2, -1))
    heads = before[:, :64].unflatten(1, (4, 16))
    first, second = heads.chunk(2, -1)
    torch.testing.assert_close(
        qkv[:, :64].unflatten(1, (4, 16)), heads * cos + torch.cat((-second, first), -1) * sin
    )


BAD_ROTATION = {
    "head": ({"head_size": 20}, "query must have shape [5, N*20] or [5, N, 20] but got [5, 64]."),
    "narrow": (
        {"head_size": 8},
        "cos_sin_cache must have shape [rows, W] with an even W up to the head size 8",
    ),
    "zero": (
        {"head_size": 0},
        "cos_sin_cache must have shape [rows, W] with an even W up to the head size 0",
    ),
    "rows": ({"positions": torch.arange(5) + 5}, "positions must be rows 0 to 8 of cos_sin_cache but got 9."),
    "type": ({"positions": torch.ones(5)}, "positions must be int32 or int64 but got float32."),
    "tokens": ({"key": randn(4, 16)}, "key must have shape [5, N*16] or [5, N, 16] but got [4, 16]."),
    "style": ({"is_neox_style": "yes"}, "is_neox_style must be True or False but got 'yes'."),
    "strides": ({"key": randn(2, 16, 5)[..., :5].permute(0, 2, 1)[:, ::2].unflatten(2, (1, 16))}, "key must"),
}


@pytest.mark.parametrize("name", BAD_ROTATION)
def test_a_bad_rotation_is_refused_and_writes_nothing(name):
    given = {"positions": torch.arange(5), "query": randn(5, 64), "key": randn(5, 16), "head_size": 16}
    given |= {"cos_sin_cache": randn(9, 16), "is_neox_style": True}
    changes, text = BAD_ROTATION[name]
    given |= changes
    before = given["query"].clone()
    with pytest.raises((ValueError, TypeError)) as caught:
        torch_npu._npu_rotary_embedding(**given)
    assert str(caught.value).startswith(f"[_npu_rotary_embedding] {text}")
    assert torch.equal(given["query"], before)


# ---- compiled and fake ---------------------------------------------------------------------------------


def rotate_in_place(**given):
    torch_npu._npu_rotary_embedding(**given)


def rotation():
    given = {"positions": torch.arange(5), "query": randn(5, 64), "key": randn(5, 16)}
    return {**given, "head_size": 16, "cos_sin_cache": randn(9, 16), "is_neox_style": True}


COMPILED = {
    "PA": (run_kv, lambda: kv_call("PA", is_output_kv=True)),
    "Norm": (run_kv, lambda: kv_call("Norm")),
    "PA_BLK_NZ": (run_kv, lambda: kv_call("PA_BLK_NZ")),
    "qkv": (run_qkv, lambda: qkv_call(is_output_qkv=True)),
    "rotation": (rotate_in_place, rotation),
}


@pytest.mark.long
@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_call_equals_a_call(name):
    run, make = COMPILED[name]
    given, compiled = make(), make()
    expected = run(**given)
    torch._dynamo.reset()
    results = torch.compile(run, backend="aot_eager", fullgraph=True)(**compiled)
    for result, value in zip(results or (), expected or (), strict=True):
        assert (result is None and value is None) or torch.equal(result, value)
    for argument, tensor in given.items():
        if isinstance(tensor, torch.Tensor):
            assert torch.equal(compiled[argument], tensor), argument


@pytest.mark.parametrize("name", COMPILED)
def test_a_fake_call_has_the_shapes_of_a_call(name):
    run, make = COMPILED[name]
    expected = run(**make())
    with FakeTensorMode() as mode:
        fake = {n: mode.from_tensor(t) if isinstance(t, torch.Tensor) else t for n, t in make().items()}
        results = run(**fake)
    for result, value in zip(results or (), expected or (), strict=True):
        assert (result is None and value is None) or (result.shape, result.dtype) == (
            value.shape,
            value.dtype,
        )
