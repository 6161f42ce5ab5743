"""Functions with vllm-ascend's names, against its formulas in float64, and as its torch operators."""

from __future__ import annotations

import re

import pytest
import torch

from npu_rope import qk_square_sums
from npu_rope.compat import vllm_ascend

T, N, K, D = 9, 6, 2, 32
ROUNDING = {torch.float32: 4e-6, torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}


@pytest.fixture(scope="module")
def operators():
    """The functions as torch operators of a namespace of their own."""
    names = vllm_ascend.register("npu_rope_test_vllm")
    assert len(names) == 5
    assert vllm_ascend.register("npu_rope_test_vllm") == names  # a second time, as if vllm-ascend had them
    return torch.ops.npu_rope_test_vllm


def randn(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed + len(shape) + sum(shape))
    return torch.randn(shape, generator=generator).to(dtype)


def normalized(x, weight, bias, dim, epsilon):
    y = x / torch.sqrt(x.pow(2).mean(dim, keepdim=True) + epsilon) * weight.double()
    return y if bias is None else y + bias.double()


def rotated(x, cos, sin, interleaved=False):
    """Rotate [T,N,D] by [T,pairs] of cos and sin in float64."""
    cos, sin = cos.double()[:, None], sin.double()[:, None]
    width, y = 2 * cos.shape[-1], x.clone()
    first = slice(0, width, 2) if interleaved else slice(0, width // 2)
    second = slice(1, width, 2) if interleaved else slice(width // 2, width)
    y[..., first] = x[..., first] * cos - x[..., second] * sin
    y[..., second] = x[..., second] * cos + x[..., first] * sin
    return y


def assert_close(got, expected, dtype):
    assert got.dtype == dtype
    assert got.is_contiguous()
    limit = ROUNDING[dtype]
    torch.testing.assert_close(got.double(), expected.flatten(1), atol=limit, rtol=limit)


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("width", [16, 32])
@pytest.mark.parametrize("dtype", ROUNDING)
def test_qkv_rmsnorm_rope_has_the_formula(dtype, width, has_bias, operators):
    qkv = randn(T, (N + 2 * K) * D, dtype=dtype)
    cache, positions = randn(50, width, dtype=dtype), torch.randint(0, 50, (T,))
    weights = [randn(D, dtype=dtype, seed=seed) for seed in (1, 2)]
    biases = [randn(D, dtype=dtype, seed=seed) for seed in (3, 4)] if has_bias else [None, None]
    arguments = qkv, cache, positions, *weights, N * D, K * D, D, 1e-6, *biases
    q, k, v = operators.qkv_rmsnorm_rope(*arguments)
    cos, sin = cache[positions].chunk(2, dim=-1)
    heads = qkv.double().view(T, -1, D).split([N, K, K], dim=1)
    for got, x, weight, bias in zip((q, k), heads, weights, biases, strict=False):
        assert_close(got, rotated(normalized(x, weight, bias, -1, 1e-6), cos, sin), dtype)
    assert torch.equal(v, qkv[:, (N + K) * D :])


@pytest.mark.parametrize("has_gate", [False, True])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("width", "sections"), [(32, [6, 5, 5]), (16, [4, 2, 2])])
def test_mrope_takes_each_pair_from_its_axis(width, sections, interleaved, has_gate, operators):
    q_size = N * D
    qkv = randn(T, q_size * (1 + has_gate) + 2 * K * D)
    cos_sin, weights = randn(3, T, width), [randn(D, seed=seed) for seed in (1, 2)]
    arguments = qkv, *weights, cos_sin, N, K, D, 1e-6, sections, interleaved, width, None, None, has_gate
    q, k, v, gate = operators.triton_split_qkv_rmsnorm_mrope(*arguments)
    cos, sin = cos_sin.chunk(2, dim=-1)
    # vllm-ascend's reference: the axes follow each other, or every third pair belongs to height and to width.
    axis = torch.zeros(width // 2, dtype=torch.long)
    if interleaved:
        axis[1 : 3 * sections[1] : 3], axis[2 : 3 * sections[2] : 3] = 1, 2
    else:
        axis[sections[0] :], axis[sections[0] + sections[1] :] = 1, 2
    pairs = torch.arange(width // 2)
    cos, sin = cos[axis, :, pairs].T, sin[axis, :, pairs].T
    q_heads, k_heads, v_heads = qkv.double().split([q_size * (1 + has_gate), K * D, K * D], dim=1)
    q_heads = q_heads.view(T, N, -1)
    for got, x, weight in zip((q, k), (q_heads[..., :D], k_heads.view(T, K, D)), weights, strict=True):
        assert_close(got, rotated(normalized(x, weight, None, -1, 1e-6), cos, sin), torch.float32)
    assert torch.equal(v.double(), v_heads)
    assert torch.equal(gate.double(), q_heads[..., D:].reshape(T, -1))


def test_the_tp_norm_covers_the_heads_of_all_ranks(operators):
    qkv = randn(T, (N + 2 * K) * D)
    weights = randn(N * D, seed=1), randn(K * D, seed=2)
    cos, sin = randn(T, 8), randn(T, 8, seed=1)
    q, k, _ = operators.split_qkv_tp_rmsnorm_rope(qkv, *weights, N * D, K * D, D, 16, 1e-6, 1, cos, sin)
    heads = qkv.double().view(T, -1, D).split([N, K, K], dim=1)
    whole = []
    for got, x, weight in zip((q, k), heads, weights, strict=False):
        flat = normalized(x.flatten(1), weight, None, -1, 1e-6).view(x.shape)
        assert_close(got, rotated(flat, cos, sin), torch.float32)
        whole.append(got)
    # Two ranks, each with half of the heads.
    halves = [x.chunk(2, dim=1) for x in heads]
    parts = [torch.cat([half[rank].flatten(1) for half in halves], dim=1).float() for rank in range(2)]
    sums = sum(qk_square_sums(q[rank].float(), k[rank].float()) for rank in range(2) for q, k in [halves[:2]])
    given = {"head_dim": D, "rotary_dim": 16, "eps": 1e-6, "tp_world": 2, "cos": cos, "sin": sin}
    given |= {"q_hidden_size": N * D // 2, "kv_hidden_size": K * D // 2, "all_reduce": lambda part: sums}
    for rank in range(2):
        part_weights = [weight.chunk(2)[rank] for weight in weights]
        got = vllm_ascend.split_qkv_tp_rmsnorm_rope(parts[rank], *part_weights, **given)
        for y, expected in zip(got[:2], whole, strict=True):
            torch.testing.assert_close(y, expected.chunk(2, dim=1)[rank], atol=4e-6, rtol=4e-6)


@pytest.mark.parametrize("neox", [False, True])
@pytest.mark.parametrize("flat", [False, True])
def test_rope_forward_oot_gives_new_tensors(flat, neox, operators):
    query, key = randn(T, N, D), randn(T, K, D)
    cache, positions = randn(50, 16), torch.randint(0, 50, (T,), dtype=torch.int32)
    given = [x.flatten(1) if flat else x for x in (query, key)]
    results = operators.npu_rotary_embedding(positions, *given, cache, D, 16, neox)
    cos, sin = cache[positions.long()].chunk(2, dim=-1)
    for got, x, like in zip(results, (query, key), given, strict=True):
        assert got.shape == like.shape
        assert_close(got.flatten(1), rotated(x.double(), cos, sin, interleaved=not neox), torch.float32)


def test_calls_without_tokens_have_results_without_tokens(operators):
    qkv, cos_sin, table = torch.ones(0, (N + 2 * K) * D), torch.ones(3, 0, D), torch.ones(0, 8)
    one, none = torch.ones(D), torch.ones(0, dtype=torch.int64)
    scales = torch.ones(N * D), torch.ones(K * D)
    sizes = N * D, K * D, D
    rotated = operators.npu_rotary_embedding(
        none, qkv, qkv.view(0, N + 2 * K, D), torch.ones(50, D), D, D, True
    )
    results = (
        operators.qkv_rmsnorm_rope(qkv, torch.ones(50, D), none, one, one, *sizes, 1e-6),
        operators.triton_split_qkv_rmsnorm_mrope(qkv, one, one, cos_sin, N, K, D, 1e-6, [6, 5, 5], True),
        operators.split_qkv_tp_rmsnorm_rope(qkv, *scales, *sizes, 16, 1e-6, 1, table, table),
    )
    hidden = [0, N * D], [0, K * D], [0, K * D], [0, 0]
    for each in results:
        assert [list(x.shape) for x in each] == list(hidden[: len(each)])
    assert [x.shape for x in rotated] == [qkv.shape, (0, N + 2 * K, D)]


def test_tables_may_have_an_entry_for_each_lane(operators):
    """The forward of vllm-ascend's patch_minimax_m2.py passes [1, T, 1, rotary_dim]."""
    qkv, weights = randn(T, (N + 2 * K) * D), (randn(N * D, seed=1), randn(K * D, seed=2))
    cos, sin = randn(T, 8), randn(T, 8, seed=1)
    given = qkv, *weights, N * D, K * D, D, 16, 1e-6, 1
    expected = operators.split_qkv_tp_rmsnorm_rope(*given, cos, sin)
    wide = (torch.cat([x, torch.full_like(x, torch.nan)], 1)[None, :, None] for x in (cos, sin))
    for got, y in zip(operators.split_qkv_tp_rmsnorm_rope(*given, *wide), expected, strict=True):
        assert torch.equal(got, y)


def calls_of_operators(tokens=T, width=D):
    """Return the arguments of a call of each operator, by its name. With a gate there is one head of queries:
    then the gate is a view of qkv unless it is copied."""
    qkv, one, positions = randn(tokens, (N + 2 * K) * D), torch.ones(D), torch.arange(tokens)
    cache, sizes, pairs = randn(50, width), (N * D, K * D, D), width // 2
    sections = [pairs - 2 * (pairs // 3), pairs // 3, pairs // 3]
    axes, table = randn(3, tokens, width), randn(tokens, pairs)
    gated = randn(tokens, (2 + 2 * K) * D), one, one, axes, 1, K, D, 1e-6, sections, True, width
    return {
        "qkv_rmsnorm_rope": (qkv, cache, positions, one, one, *sizes, 1e-6, one, one),
        "qkv_rmsnorm_rope_simt": (qkv, cache, positions, one, one, *sizes, 1e-6),
        "triton_split_qkv_rmsnorm_mrope": (*gated, None, None, True),
        "split_qkv_tp_rmsnorm_rope": (
            *(qkv, torch.ones(N * D), torch.ones(K * D), *sizes, width, 1e-6, 1),
            *(table, table.clone()),
        ),
        "npu_rotary_embedding": (positions, qkv, randn(tokens, K, D), cache, D, width, False),
    }


@pytest.mark.parametrize("tokens", [1, T])
@pytest.mark.parametrize("name", calls_of_operators())
def test_opcheck(name, tokens, operators):
    with torch.no_grad():
        torch.library.opcheck(getattr(operators, name).default, calls_of_operators(tokens, 16)[name])


@pytest.mark.long
@pytest.mark.parametrize("name", calls_of_operators())
def test_operators_compile_with_dynamic_sizes(name, operators):
    torch._dynamo.reset()  # the limit of recompilations counts those of all operators
    operator = getattr(operators, name)
    compiled = torch.compile(lambda *a: operator(*a), fullgraph=True, backend="aot_eager", dynamic=True)
    for tokens, width in ((5, 16), (T, 16), (T, D)):
        arguments = calls_of_operators(tokens, width)[name]
        for got, expected in zip(compiled(*arguments), operator(*arguments), strict=True):
            assert torch.equal(got, expected)


def test_the_name_of_a5_gives_the_same_bits(operators):
    """A5DeviceAdaptor of vllm-ascend's device_op.py passes all arguments by name."""
    given = legal(PER_HEAD) | {"q_bias": randn(D, seed=1), "k_bias": randn(D, seed=2)}
    expected = operators.qkv_rmsnorm_rope(**given)
    for got, y in zip(operators.qkv_rmsnorm_rope_simt(**given), expected, strict=True):
        assert torch.equal(got, y)
    with pytest.raises(ValueError, match=r"\[qkv_rmsnorm_rope_simt\] head_dim must be positive but got 0"):
        operators.qkv_rmsnorm_rope_simt(**given | {"head_dim": 0})


def test_the_operators_compile(operators):
    qkv, cache, one = randn(T, (N + 2 * K) * D), randn(50, D), torch.ones(D)
    arguments = qkv, cache, torch.arange(T), one, one, N * D, K * D, D, 1e-6

    def model():
        return operators.qkv_rmsnorm_rope(*arguments)[0] * 2

    assert torch.equal(torch.compile(model, fullgraph=True, backend="aot_eager")(), model())


PER_HEAD, MROPE, TP = (
    "qkv_rmsnorm_rope",
    "triton_split_qkv_rmsnorm_mrope",
    "split_qkv_tp_rmsnorm_rope",
)
ROTATIONS = ("npu_rotary_embedding", "rope_forward_oot")
BAD = [
    (PER_HEAD, "input must be [T, 320] but got [9, 319].", {"input": torch.ones(T, 319)}),
    (
        PER_HEAD,
        "q_hidden_size must be a multiple of head_dim = 32, at least 0, but got 100.",
        {"q_hidden_size": 100},
    ),
    (PER_HEAD, "head_dim must be positive but got 0.", {"head_dim": 0}),
    (
        PER_HEAD,
        "cos_sin_cache must be [rows, W] with an even W but got [50, 7].",
        {"cos_sin_cache": torch.ones(50, 7)},
    ),
    (
        PER_HEAD,
        "the width of cos_sin_cache must be at most the head size 32 but got 64.",
        {"cos_sin_cache": torch.ones(50, 64)},
    ),
    (
        PER_HEAD,
        "positions must be rows 0 to 49 of cos_sin_cache but got 50.",
        {"positions": torch.full((T,), 50)},
    ),
    (PER_HEAD, "q_weight must be [head_dim] = [32] but got [192].", {"q_weight": torch.ones(N * D)}),
    (PER_HEAD, "k_weight must be [head_dim] = [32] but got [64].", {"k_weight": torch.ones(K * D)}),
    (PER_HEAD, "k_bias must be [head_dim] = [32] but got [64].", {"k_bias": torch.ones(K * D)}),
    (
        PER_HEAD,
        "k_weight must have input's dtype float32 but got float64.",
        {"k_weight": torch.ones(D).double()},
    ),
    (PER_HEAD, "eps must be >= 0 and finite in float32 but got -1.", {"eps": -1.0}),
    (MROPE, "qkv must be [T, 320] but got [9, 319].", {"qkv": torch.ones(T, 319)}),
    (MROPE, "head_size must be positive but got 0.", {"head_size": 0}),
    (MROPE, "q_weight must be [head_size] = [32] but got [192].", {"q_weight": torch.ones(N * D)}),
    (
        MROPE,
        "cos_sin must be [3, T, rope_dim] = [3, 9, 32] but got [3, 8, 32].",
        {"cos_sin": torch.ones(3, 8, D)},
    ),
    *(
        (
            MROPE,
            f"mrope_section must be three numbers >= 0 that add up to 16 but got {bad}.",
            {"mrope_section": bad},
        )
        for bad in ([8, 4, 3], [20, -2, -2], [8, 8], [8, 4, 4, 0], [])
    ),
    (MROPE, "mrope_section[0] must be an integer but got 8.5.", {"mrope_section": [8.5, 3.5, 4]}),
    (MROPE, "mrope_section[2] must be an integer but got 4.0.", {"mrope_section": [8, 4, 4.0]}),
    (MROPE, "mrope_section must be three integers but got None.", {"mrope_section": None}),
    (MROPE, "mrope_section must be three integers but got '844'.", {"mrope_section": "844"}),
    (
        MROPE,
        "rope_dim must be a positive even number but got 17.",
        {"rope_dim": 17, "cos_sin": torch.ones(3, T, 17), "mrope_section": [4, 2, 2]},
    ),
    (MROPE, "rope_dim must be a positive even number but got 0.", {"rope_dim": 0}),
    (
        MROPE,
        "head_size must be a positive even number but got 5.",
        {"head_size": 5, "qkv": torch.ones(T, 50), "q_weight": torch.ones(5), "k_weight": torch.ones(5)},
    ),
    (MROPE, "num_q_heads * head_size must be a multiple of head_size = 32, at least 0,", {"num_q_heads": -1}),
    (TP, "q_weight must be [q_hidden_size] = [192] but got [32].", {"q_weight": torch.ones(D)}),
    (TP, "k_weight must be [kv_hidden_size] = [64] but got [32].", {"k_weight": torch.ones(D)}),
    (
        TP,
        "cos must be [T, rotary_dim/2] = [9, 8] or [T, rotary_dim] = [9, 16] but got [8, 9].",
        {"cos": torch.ones(8, 9)},
    ),
    (TP, "sin must be [T, rotary_dim/2] = [9, 8] or", {"sin": torch.ones(T * 8)}),
    *(
        (TP, f"rotary_dim must be a positive even number but got {n}.", {"rotary_dim": n})
        for n in (17, -16, 0)
    ),
    *((TP, f"tp_world must be >= 1 but got {n}.", {"tp_world": n}) for n in (0, -3)),
    (TP, "all_reduce must be a function but got str.", {"tp_world": 2, "all_reduce": "sum"}),
    (
        TP,
        "the result of all_reduce must be a torch tensor but got NoneType.",
        {"tp_world": 2, "all_reduce": lambda sums: None},
    ),
    (
        TP,
        "the result of all_reduce must have shape [T,2] = [9, 2] but got [9].",
        {"tp_world": 2, "all_reduce": lambda sums: sums[:, 0]},
    ),
    (
        TP,
        "all_reduce must be given where tp_world is above 1 and vllm is not installed but got None.",
        {"tp_world": 2},
    ),
    (
        TP,
        "the result of all_reduce must not be negative but got -1 at index [0, 0].",
        {"tp_world": 2, "all_reduce": lambda sums: -torch.ones_like(sums)},
    ),
    *(
        (name, text, changed)
        for name in ROTATIONS
        for text, changed in (
            (
                "cos_sin_cache must be [rows, rotary_dim] = [rows, 8] but got [50, 16].",
                {"rotary_dim": 8},
            ),
            ("head_size must be positive but got 0.", {"head_size": 0}),
            ("key must be [T, N*32] or [T, N, 32] but got [9, 33].", {"key": torch.ones(T, 33)}),
            (
                "positions must be rows 0 to 49 of cos_sin_cache but got -1.",
                {"positions": torch.full((T,), -1)},
            ),
            (
                "rotary_dim must be a positive even number but got 15.",
                {"rotary_dim": 15, "cos_sin_cache": torch.ones(50, 15)},
            ),
        )
    ),
    *(
        (name, "positions must have shape [T] = [9] but got [8].", {"positions": torch.arange(8)})
        for name in (PER_HEAD, *ROTATIONS)
    ),
]
# Arguments of other Python types. torch refuses them itself where an operator has a schema.
INTEGERS = {
    PER_HEAD: ("q_hidden_size", "kv_hidden_size", "head_dim"),
    MROPE: ("num_q_heads", "num_kv_heads", "head_size", "rope_dim"),
    TP: ("q_hidden_size", "kv_hidden_size", "head_dim", "rotary_dim", "tp_world"),
    **dict.fromkeys(ROTATIONS, ("head_size", "rotary_dim")),
}
FLAGS = {MROPE: ("is_interleaved", "has_gate"), **dict.fromkeys(ROTATIONS, ("is_neox_style",))}
TENSORS = {
    PER_HEAD: ("input", "cos_sin_cache", "positions", "q_weight", "k_weight"),
    MROPE: ("qkv", "q_weight", "k_weight", "cos_sin"),
    TP: ("input", "q_weight", "k_weight", "cos", "sin"),
    **dict.fromkeys(ROTATIONS, ("positions", "query", "key", "cos_sin_cache")),
}
OTHER_TYPES = [
    *(
        (function, name, f"be an integer but got {bad!r}.", bad)
        for function, names in INTEGERS.items()
        for name in names
        for bad in (None, 128.0, "a", True)
        if (name, bad) != ("rope_dim", None)
    ),
    *(
        (function, name, f"be True or False but got {bad!r}.", bad)
        for function, names in FLAGS.items()
        for name in names
        for bad in (None, 1, "yes")
    ),
    *(
        (function, name, f"be a torch tensor but got {type(bad).__name__}.", bad)
        for function, names in TENSORS.items()
        for name in names
        for bad in (None, [1, 2])
    ),
    *(
        (function, "eps", f"be a number but got {bad!r}.", bad)
        for function in (PER_HEAD, MROPE, TP)
        for bad in (None, "a")
    ),
]


def legal(function):
    """Return the arguments of a legal call of a function, by their names."""
    one, qkv, cache = torch.ones(D), randn(T, (N + 2 * K) * D), randn(50, D)
    sizes = {"q_hidden_size": N * D, "kv_hidden_size": K * D, "head_dim": D, "eps": 1e-6}
    weights = {"q_weight": one, "k_weight": one}
    if function == PER_HEAD:
        return {"input": qkv, "cos_sin_cache": cache, "positions": torch.arange(T), **weights, **sizes}
    if function == MROPE:
        sizes = {"num_q_heads": N, "num_kv_heads": K, "head_size": D, "eps": 1e-6}
        axes = {"cos_sin": randn(3, T, D), "mrope_section": [6, 5, 5], "is_interleaved": False}
        return {"qkv": qkv, **weights, **sizes, **axes}
    if function == TP:
        weights = {"q_weight": torch.ones(N * D), "k_weight": torch.ones(K * D)}
        tables = {"cos": randn(T, 8), "sin": randn(T, 8), "rotary_dim": 16, "tp_world": 1}
        return {"input": qkv, **weights, **sizes, **tables}
    heads = {"query": randn(T, N * D), "key": randn(T, K, D), "head_size": D, "rotary_dim": 16}
    return {"positions": torch.arange(T), "cos_sin_cache": cache[:, :16], "is_neox_style": True, **heads}


@pytest.mark.parametrize(("function", "text", "changed"), BAD)
def test_bad_calls_are_refused(function, text, changed):
    call = getattr(vllm_ascend, function)
    call(**legal(function))
    with pytest.raises((ValueError, TypeError), match=re.escape(f"[{function}] {text}")):
        call(**{**legal(function), **changed})


@pytest.mark.parametrize(("function", "name", "text", "bad"), OTHER_TYPES)
def test_other_python_types_are_type_errors(function, name, text, bad):
    with pytest.raises(TypeError, match=re.escape(f"[{function}] {name} must {text}")):
        getattr(vllm_ascend, function)(**{**legal(function), name: bad})


def fits_schema(name, bad):
    """Return whether torch passes the argument of a bad call on to an operator of the schema."""
    if name == "mrope_section":
        return isinstance(bad, list) and all(isinstance(n, int) for n in bad)
    return name != "all_reduce"


OF_OPERATORS = [
    (function, text, changed)
    for function, text, changed in BAD
    if function != "rope_forward_oot" and all(fits_schema(*each) for each in changed.items())
]


@pytest.mark.parametrize(("function", "text", "changed"), OF_OPERATORS)
def test_operators_refuse_bad_calls(function, text, changed, operators):
    with pytest.raises((ValueError, TypeError), match=re.escape(f"[{function}] {text}")):
        getattr(operators, function)(**{**legal(function), **changed})


@pytest.mark.parametrize("function", ROTATIONS)
def test_offsets_are_refused(function):
    text = f"[{function}] offsets must be None but got a tensor."
    with pytest.raises(NotImplementedError, match=re.escape(text)):
        getattr(vllm_ascend, function)(**legal(function), offsets=torch.zeros(T))


def test_an_operators_error_has_its_name(operators):
    given = legal("npu_rotary_embedding") | {"head_size": 7}
    with pytest.raises(ValueError, match=r"\[npu_rotary_embedding\] query must be"):
        operators.npu_rotary_embedding(**given)


@pytest.mark.parametrize("function", [PER_HEAD, MROPE, TP])
def test_parameters_need_no_grad(function):
    call, given = getattr(vllm_ascend, function), legal(function)
    given["k_weight"] = torch.nn.Parameter(given["k_weight"])
    text = (
        f"[{function}] k_weight must not need a gradient but got one that does.\nCall it under torch.no_grad"
    )
    with pytest.raises(ValueError, match=re.escape(text)):
        call(**given)
    with torch.no_grad():
        call(**given)


def test_one_head_has_the_weights_of_both_norms():
    given = legal(TP) | {"q_hidden_size": D, "kv_hidden_size": D, "input": randn(T, 3 * D)}
    given |= {"q_weight": torch.ones(D), "k_weight": torch.ones(D)}
    q = vllm_ascend.split_qkv_tp_rmsnorm_rope(**given)[0]
    assert q.shape == (T, D)
