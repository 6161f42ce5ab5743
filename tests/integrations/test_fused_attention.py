"""apply_npu_rope(fuse=True): attention modules of transformers with qkv_norm_rope_cache."""

from __future__ import annotations

import copy
import itertools
import pickle

import pytest
import torch
import transformers
from transformers.generation.continuous_batching import PagedAttentionCache
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRMSNorm, apply_rotary_pos_emb

from npu_rope.integrations import fused_attention
from npu_rope.integrations.fused_attention import Rows
from npu_rope.integrations.transformers import apply_npu_rope, unpatch
from npu_rope.testing.families import MODELS, make

pytestmark = [
    pytest.mark.peer,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]
NO_CACHE = "its forward does not take position_embeddings and a cache"
# Attention modules that are not fused, by family, with the reasons. All others of these families are fused.
NOT_FUSED = {
    "deepseek-v3": ["apply_rotary_pos_emb_interleave moves the lanes of a pair"] * 2,
    "qwen2-vl": [NO_CACHE],  # the vision tower
    "qwen3-vl": [NO_CACHE],
}
FUSED = [family for family in MODELS if family != "deepseek-v3"]
# Families whose layers differ: no norm, each head, each head with offset 1, all heads, partial rotation.
KINDS = ["llama", "qwen3", "gemma3", "olmo2", "glm4-moe"]


@pytest.fixture(autouse=True, scope="module")
def quiet():
    transformers.logging.set_verbosity_error()


CALLS = []


@pytest.fixture
def calls(monkeypatch):
    """The operator's calls: "slots" writes into caches, "out" into given memory, "new" returns tensors. Trial
    calls are not counted."""
    made = CALLS
    made.clear()
    operator = fused_attention.qkv_norm_rope_cache

    def recorded(*given, **named):
        kinds = [name for name in ("slots", "out") if named.get(name) is not None]
        made.append(kinds[0] if kinds else "new")
        return operator(*given, **named)

    monkeypatch.setattr(fused_attention, "qkv_norm_rope_cache", recorded)
    return made


def tokens(batch=2, count=20, seed=1):
    return torch.randint(2, 128, (batch, count), generator=torch.Generator().manual_seed(seed))


def logits(model, ids=None):
    with torch.no_grad():
        return model(tokens() if ids is None else ids).logits


def generate(model, batch=2, cache="dynamic"):
    options = {"max_new_tokens": 12, "do_sample": False, "cache_implementation": cache}
    return model.generate(tokens(batch), disable_compile=True, **options)


def gradients(model):
    model.zero_grad()
    ids = tokens(seed=3)
    model(ids, labels=ids).loss.backward()
    return {
        n.removeprefix("_orig_mod."): p.grad.clone()
        for n, p in model.named_parameters()
        if p.grad is not None
    }


def largest_difference(got, expected):
    """Return the largest difference of two models' gradients, relative to the largest gradient."""
    assert got.keys() == expected.keys()
    largest = max(g.abs().max() for g in expected.values())
    return max(((got[name] - g).abs().max() / largest).item() for name, g in expected.items())


def worst(got, expected):
    """Return the largest difference, relative to the largest element."""
    return ((got - expected).abs().max() / expected.abs().max()).item()


def fuse(model, **options):
    report = apply_npu_rope(model, fuse=True, **options)
    assert report.fused, str(report)
    CALLS.clear()
    return report


# ---- families ----------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("family", MODELS)
def test_every_family_gives_the_same_results(family, calls):
    model = make(family)
    before, gradients_before = logits(model), gradients(model)
    tokens_before = generate(model)
    for level in ("tables", "positions"):
        report = apply_npu_rope(model, fuse=True, level=level)
        reasons = NOT_FUSED.get(family, [])
        assert [e.form_or_reason for e in report.not_fused] == reasons, str(report)
        assert len(report.fused) == (0 if family == "deepseek-v3" else 2)
        calls.clear()
        assert worst(logits(model), before) <= 1e-5
        assert calls == ["new"] * len(report.fused)
        assert largest_difference(gradients(model), gradients_before) <= 1e-4
        assert torch.equal(generate(model), tokens_before)
    assert unpatch(model) > 0
    calls.clear()
    assert torch.equal(logits(model), before)
    assert largest_difference(gradients(model), gradients_before) == 0
    assert not calls


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("family", FUSED)
def test_a_static_cache_gets_its_rows_from_the_operator(family, implementation, calls):
    """The tokens are the same. Each layer stores by the operator, except sliding layers whose window is
    smaller than the prompt: these store what the operator returns."""
    if (family, implementation) == ("gpt-oss", "sdpa"):
        pytest.skip("transformers has no sdpa with sinks")
    model = make(family)
    model.set_attn_implementation(implementation)
    for batch in (2, 1):
        expected = generate(model, batch, "static")
        fuse(model)
        assert torch.equal(generate(model, batch, "static"), expected)
        slides = family in ("gemma3", "gpt-oss")
        assert calls.count("slots") == (12 if slides else 24)
        assert calls.count("out") == (12 if slides else 0)
        assert "new" not in calls
        unpatch(model)


STEPS = (9, 1, 4, 1)  # tokens of a prefill and of the steps after it


def states_after_steps(model, cache, batch):
    """Return the logits and the cache's keys, values and length of each layer after each step, by name."""
    states, begin, ids = {}, 0, tokens(batch)
    for step, count in enumerate(STEPS):
        with torch.no_grad():
            states["logits", step] = model(ids[:, begin : begin + count], cache=cache).logits
        begin += count
        for number, layer in enumerate(cache.layers):
            states["keys", step, number] = layer.keys.clone()
            states["values", step, number] = layer.values.clone()
            states["length", step, number] = torch.as_tensor(layer.get_seq_length()).clone()
    return states


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("make_cache", [transformers.DynamicCache, transformers.StaticCache])
@pytest.mark.parametrize("family", KINDS)
def test_caches_have_the_same_contents(family, make_cache, batch):
    model = make(family)
    length = {} if make_cache is transformers.DynamicCache else {"max_cache_len": 18}

    def states():
        return states_after_steps(model, make_cache(config=model.config, **length), batch)

    apply_npu_rope(model)
    expected = states()
    fuse(model)
    for name, got in states().items():
        if name[0] == "length" or (name[0] == "values" and name[2] == 0):
            assert torch.equal(got, expected[name]), name
        else:
            assert worst(got, expected[name]) <= 1e-5, name
            assert torch.equal(got == 0, expected[name] == 0), name  # rows without a token stay zero


@pytest.mark.parametrize("batch", [1, 2])
def test_rows_beyond_a_static_cache_are_refused_and_no_row_is_written(batch):
    model = make("llama")
    fuse(model)
    cache = transformers.StaticCache(config=model.config, max_cache_len=10)
    with torch.no_grad():
        model(tokens(batch, 9), cache=cache)
        before = [(layer.keys.clone(), layer.values.clone()) for layer in cache.layers]
        with pytest.raises(
            ValueError, match=r"^\[qkv_norm_rope_cache\] slots must be -1 or a row of the cache"
        ):
            model(tokens(batch, 2), cache=cache)
    for layer, (keys, values) in zip(cache.layers, before, strict=True):
        assert torch.equal(layer.keys, keys)
        assert torch.equal(layer.values, values)


def test_with_gradients_a_static_cache_stores_what_the_operator_returns(calls):
    model = make("qwen3")
    cache = transformers.StaticCache(config=model.config, max_cache_len=24)
    expected = model(tokens(), cache=cache).logits
    fuse(model)
    cache = transformers.StaticCache(config=model.config, max_cache_len=24)
    got = model(tokens(), cache=cache).logits
    assert worst(got.detach(), expected.detach()) <= 1e-5
    assert calls == ["new", "new"]
    assert got.requires_grad


# ---- continuous batching -----------------------------------------------------------------------------


def generate_batch(model):
    """Return the tokens of four prompts by transformers' continuous batching, whose cache is paged."""
    sizes = {"page_size": 8, "num_blocks": 64, "max_batch_tokens": 32}
    outputs = model.generate_batch(
        [tokens(1, count, seed=count)[0].tolist() for count in (20, 3, 9, 33)],
        generation_config=transformers.GenerationConfig(
            max_new_tokens=12, do_sample=False, eos_token_id=-1, pad_token_id=0
        ),
        continuous_batching_config=transformers.ContinuousBatchingConfig(**sizes),
    )
    return sorted((output.prompt_ids, output.generated_tokens) for output in outputs.values())


@pytest.mark.long
@pytest.mark.parametrize("family", [*KINDS, "phi3"])
def test_continuous_batching_gives_the_same_tokens(family, calls):
    model = make(family)
    model.set_attn_implementation("sdpa")
    expected = generate_batch(model)
    assert [len(generated) for _, generated in expected] == [12] * 4  # each prompt begins another page
    fuse(model)
    assert generate_batch(model) == expected
    # A sliding layer reads its old rows first, so it stores what the operator returns. A batch of prompts
    # without old rows gets its keys from a second call.
    assert calls.count("slots") >= (12 if family == "gemma3" else 24)
    assert "new" not in calls


def paged(model, page=4, blocks=6):
    """Return a paged cache for this model, and the length of its rows' dimension."""
    config = model.config
    from transformers.generation.continuous_batching.cache_allocators import (
        CachePool,
        FullAttentionCacheAllocator,
    )

    layers = list(range(config.num_hidden_layers))
    allocator = FullAttentionCacheAllocator(
        index=0,
        config=config,
        num_key_value_heads=config.num_key_value_heads,
        cache_dtype=torch.float32,
        page_size=page,
        layer_indices=layers,
        allow_block_sharing=False,
    )
    sector = allocator.bytes_per_block
    memory = torch.zeros((blocks + 2) * sector, dtype=torch.uint8)
    allocator.register_cache_tensor(sector, blocks * sector, memory, CachePool(blocks, 1))
    cache = object.__new__(PagedAttentionCache)
    cache.layer_to_allocator = dict.fromkeys(layers, allocator)
    return cache, allocator


def paged_step(model, cache, allocator, ids, at, rows, read):
    """Run one step of a paged cache: tokens ids at positions, stored in rows; attention reads others."""
    with torch.no_grad():
        return model(
            ids,
            position_ids=torch.tensor([at]),
            cache=cache,
            write_index=[torch.tensor(rows)],
            read_index=[torch.tensor(read, dtype=torch.int64)],
            cu_seq_lens_k={"full_attention": torch.tensor([0, len(read) or len(rows)])},
            max_length_k={"full_attention": len(read) or len(rows)},
        ).logits


@pytest.mark.parametrize("reads", [True, False])
def test_a_paged_cache_gets_its_rows_and_padding_tokens_write_no_row_that_is_read(reads, calls):
    model = make("qwen3")
    model.set_attn_implementation("eager")
    results = []
    for fused in (False, True):
        if fused:
            fuse(model)
        cache, allocator = paged(model)
        trash, block = allocator.write_trash_index, allocator.block_physical_stride
        rows = [3 * block, 3 * block + 1, 3 * block + 2, 5 * block, 5 * block + 3]
        out = paged_step(
            model, cache, allocator, tokens(1, 7), range(7), [*rows, trash, trash], rows if reads else []
        )
        memory = allocator.cache_tensor.clone()
        flat = memory.view(-1, *memory.shape[2:])
        for start in (trash, trash + 4, trash + 8, trash + 12):  # the rows of padding tokens in each page
            flat[start] = 0
        results.append((out, memory))
    (expected, expected_memory), (got, memory) = results
    assert worst(got[:, :5], expected[:, :5]) <= 1e-5
    assert worst(memory, expected_memory) <= 1e-5
    assert torch.equal(memory == 0, expected_memory == 0)
    assert calls == (["slots"] * 2 if reads else ["slots", "out"] * 2)


@pytest.mark.parametrize("shares_memory", [False, True])
def test_a_paged_cache_of_another_layout_stores_what_the_operator_returns(shares_memory, calls):
    model = make("qwen3")
    model.set_attn_implementation("eager")
    memories = []
    for fused in (False, True):
        if fused:
            fuse(model)
        cache, allocator = paged(model)
        # The values' pages follow all pages of the keys.
        for number, (keys, _) in allocator._kv_token_views.items():
            both = torch.zeros(2, *keys.shape)
            allocator._kv_token_views[number] = (
                tuple(both) if shares_memory else (both[0].clone(), both[1].clone())
            )
        paged_step(model, cache, allocator, tokens(1, 3), range(3), [20, 21, 22], [20, 21, 22])
        memories.append([*itertools.chain(*allocator._kv_token_views.values())])
    for expected, got in zip(*memories, strict=True):
        assert worst(got, expected) <= 1e-5
    assert calls == ["out"] * 2


# ---- errors of 16 bits -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", ["qwen2.5", *KINDS])
def test_in_16_bits_keys_are_rounded_once(family, dtype):
    """The reference is the model's own module in float64, with the projections of the narrow one."""
    model = make(family).to(dtype)
    layer = model.model.layers[0]
    projected, module = {}, layer.self_attn
    hooks = [
        child.register_forward_hook(lambda _, __, y, name=name: projected.__setitem__(name, y))
        for name, child in module.named_children()
        if isinstance(child, torch.nn.Linear)
    ]
    fuse(model)
    cache = transformers.DynamicCache(config=model.config)
    with torch.no_grad():
        model(tokens(), cache=cache)
    for hook in hooks:
        hook.remove()
    keys = {"fused": cache.layers[0].keys.double()}

    kept = {}
    unpatch(model)
    hook = module.register_forward_pre_hook(lambda _, __, named: kept.update(named), with_kwargs=True)
    own_cache = transformers.DynamicCache(config=model.config)
    with torch.no_grad():
        model(tokens(), cache=own_cache)
    hook.remove()
    keys["own"] = own_cache.layers[0].keys.double()

    wide = copy.deepcopy(module).double()
    for name, child in wide.named_children():
        if name in projected:
            child.register_forward_hook(lambda _, __, ___, name=name: projected[name].double())
    exact = transformers.DynamicCache(config=model.config)
    kept["cache"], kept["attention_mask"] = exact, None
    kept["position_embeddings"] = tuple(t.double() for t in kept["position_embeddings"])
    with torch.no_grad():
        wide(**{**kept, "hidden_states": kept["hidden_states"].double()})
    expected = exact.layers[0].keys
    # One rounding, and float32 arithmetic, in which transformers' norms run in the wide module as well.
    unit = torch.finfo(dtype).eps / 2
    bound = unit * expected.abs() + 2e-6 * expected.abs().max() + torch.finfo(dtype).smallest_normal
    errors = {name: (k - expected).abs() for name, k in keys.items()}
    assert (errors["fused"] <= bound).all()
    assert errors["fused"].square().mean() <= errors["own"].square().mean()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", ["llama", "qwen2.5", "qwen3", "gemma3", "olmo2", "phi3"])
def test_logits_are_no_less_accurate_than_the_models_own(family, dtype):
    """The reference has the same rounded weights in float64. The limit of the largest error is that of the
    benchmark; the root mean square varies less, by the order in which float32 sums are added."""
    model = make(family)
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    wide = copy.deepcopy(model)
    for parameter in wide.parameters():
        parameter.data = parameter.data.double()
    ids = tokens(8, 40)
    exact, own = logits(wide, ids), logits(model, ids).double()
    fuse(model)
    error, own_error = ((x - exact) for x in (logits(model, ids).double(), own))
    assert error.abs().max() <= 2 * own_error.abs().max()
    assert error.square().mean().sqrt() <= 1.15 * own_error.square().mean().sqrt()


# ---- torch.compile -----------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("family", ["qwen3", pytest.param("gemma3", marks=pytest.mark.slow)])
def test_a_fused_model_compiles_without_graph_breaks(family):
    model = make(family)
    before, expected = logits(model), gradients(model)
    fuse(model)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=False)
    assert worst(logits(compiled), before) <= 1e-5
    assert largest_difference(gradients(compiled), expected) <= 1e-4
    torch._dynamo.reset()


@pytest.mark.long
@pytest.mark.parametrize("batch", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_compiled_decoding_step_stores_rows_by_the_operator(batch):
    model, seen = make("qwen3"), []

    def backend(graph, inputs):
        seen.extend(str(node.target) for node in graph.graph.nodes if "npu_rope" in str(node.target))
        from torch._dynamo.backends.debugging import aot_eager

        return aot_eager(graph, inputs)

    def decode(step):
        cache = transformers.StaticCache(config=model.config, max_cache_len=32)
        with torch.no_grad():
            last = model(tokens(batch), cache=cache).logits[:, -1:].argmax(-1)
            chosen = [last]
            for _ in range(5):
                last = step(last, cache=cache).logits[:, -1:].argmax(-1)
                chosen.append(last)
        return torch.cat(chosen, 1), [x for layer in cache.layers for x in (layer.keys, layer.values)]

    expected, rows = decode(model)
    fuse(model)
    got, compiled_rows = decode(torch.compile(model, fullgraph=True, backend=backend, dynamic=False))
    assert torch.equal(got, expected)
    assert all(worst(c, r) <= 1e-5 for c, r in zip(compiled_rows, rows, strict=True))
    stores = [name for name in seen if "qkv_norm_rope_cache" in name]
    assert stores
    assert all("_out" in name for name in stores)
    torch._dynamo.reset()


# ---- training, copies --------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["tables", "positions"])
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_gradient_checkpointing_gives_the_same_gradients(level, use_reentrant):
    model = make("qwen3").train()
    expected = gradients(model)
    fuse(model, level=level)
    model.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
    model.enable_input_require_grads()
    assert largest_difference(gradients(model), expected) <= 1e-5


def test_a_deep_copy_stays_fused_and_uses_its_own_weights(calls):
    model = make("qwen3")
    before = logits(model)
    fuse(model)
    copied = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert worst(logits(copied), before) <= 1e-5
    assert calls == ["new"] * 2
    assert logits(model).abs().max() == 0
    unpatch(copied)
    assert torch.equal(logits(copied), before)


def test_a_pickled_model_comes_back_unpatched():
    model = make("llama")
    before = logits(model)
    fuse(model)
    assert torch.equal(logits(pickle.loads(pickle.dumps(model))), before)


def test_adapters_that_replace_a_projection_later_are_used():
    """A fused module looks its projections up in each call."""
    model = make("llama")
    fuse(model)
    module = model.model.layers[0].self_attn
    module.q_proj = copy.deepcopy(module.q_proj)
    with torch.no_grad():
        module.q_proj.weight.mul_(0.5)
    got = logits(model)
    unpatch(model)
    assert worst(got, logits(model)) <= 1e-5


# ---- calls that take the separate operators ----------------------------------------------------------


def test_a_hooked_norm_is_called(calls):
    model, inputs = make("qwen3"), []
    before = logits(model)
    fuse(model)
    norm = model.model.layers[0].self_attn.q_norm
    hook = norm.register_forward_hook(lambda _, given, __: inputs.append(given[0].shape))
    assert worst(logits(model), before) <= 1e-5
    assert len(inputs) == 1
    assert calls == ["new"]
    hook.remove()
    logits(model)
    assert calls == ["new"] * 3


@pytest.mark.parametrize("family", ["gemma3", "olmo2"])
def test_a_norm_of_another_dtype_is_called(family, calls):
    model = make(family).to(torch.bfloat16)
    for layer in model.model.layers:
        layer.self_attn.k_norm.float()
    apply_npu_rope(model)
    expected = generate(model, cache="static")
    fuse(model)
    assert torch.equal(generate(model, cache="static"), expected)
    assert not calls


def test_norms_with_different_epsilons_are_called(calls):
    model = make("qwen3")
    for layer in model.model.layers:
        layer.self_attn.k_norm.variance_epsilon = 1e-2
    before = logits(model)
    report = apply_npu_rope(model, fuse=True)
    assert [e.form_or_reason for e in report.not_fused] == [
        "its rotation or its norms do not fit the operator"
    ] * 2
    for layer in model.model.layers:
        layer.self_attn.k_norm.variance_epsilon = layer.self_attn.q_norm.variance_epsilon
    fuse(model)
    for layer in model.model.layers:
        layer.self_attn.k_norm.variance_epsilon = 1e-2
    assert worst(logits(model), before) <= 1e-5
    assert not calls


# ---- modules that are left ---------------------------------------------------------------------------


class Attention(LlamaAttention):
    """Llama's attention, with something else between projections and cache."""

    def changed(self, what, *tensors):
        return tensors if len(tensors) > 1 else tensors[0]

    def forward(self, hidden_states, position_embeddings=None, attention_mask=None, cache=None, **kwargs):
        shape = (*hidden_states.shape[:-1], -1, self.head_dim)
        q, k, v = (
            p(hidden_states).view(shape).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k, v = self.changed("projected", q, k, v)
        cos, sin = position_embeddings
        q, k = apply_rotary_pos_emb(q, k, cos, sin)
        q, k, v = self.changed("rotated", q, k, v)
        if cache is not None and self.changed("cache", True):
            k, v = cache.update(k, v, self.layer_idx)
        q = self.changed("stored", q)
        weights = torch.softmax(q @ k.repeat_interleave(2, 1).transpose(2, 3) * self.scaling, -1)
        attended = (weights @ v.repeat_interleave(2, 1)).transpose(1, 2).flatten(2)
        return self.o_proj(attended), weights


class ScaledAfterTheCache(Attention):
    def changed(self, what, *tensors):
        tensors = super().changed(what, *tensors)
        return tensors * 1.5 if what == "stored" else tensors


class ValueNorm(Attention):
    def __init__(self, config, layer):
        super().__init__(config, layer)
        self.v_norm = LlamaRMSNorm(self.head_dim)

    def changed(self, what, *tensors):
        if what == "projected":
            return *tensors[:2], self.v_norm(tensors[2])
        return super().changed(what, *tensors)


class ScaledKeys(Attention):
    def changed(self, what, *tensors):
        if what == "rotated":
            return tensors[0], tensors[1] * 2, tensors[2]
        return super().changed(what, *tensors)


class ScaledQueries(Attention):
    def changed(self, what, *tensors):
        if what == "rotated":
            return tensors[0] * 2, *tensors[1:]
        return super().changed(what, *tensors)


class AddedBias(Attention):
    def changed(self, what, *tensors):
        if what == "projected":
            return tensors[0], tensors[1] + 1, tensors[2]
        return super().changed(what, *tensors)


class NormalizedTwice(Attention):
    def __init__(self, config, layer):
        super().__init__(config, layer)
        self.q_norm = LlamaRMSNorm(self.head_dim)

    def changed(self, what, *tensors):
        if what == "projected":
            return self.q_norm(self.q_norm(tensors[0])), *tensors[1:]
        return super().changed(what, *tensors)


class NormOfHalfHeads(Attention):
    """A norm whose rows are two heads each."""

    def __init__(self, config, layer):
        super().__init__(config, layer)
        self.q_norm = LlamaRMSNorm(2 * self.head_dim)

    def changed(self, what, *tensors):
        if what != "projected":
            return super().changed(what, *tensors)
        q = tensors[0].transpose(1, 2)
        return self.q_norm(q.flatten(2).unflatten(2, (2, -1))).view(q.shape).transpose(1, 2), *tensors[1:]


class LayerNormOfHeads(Attention):
    def __init__(self, config, layer):
        super().__init__(config, layer)
        self.q_norm = torch.nn.LayerNorm(self.head_dim)

    def changed(self, what, *tensors):
        if what == "projected":
            return self.q_norm(tensors[0]), *tensors[1:]
        return super().changed(what, *tensors)


class NormUsedForValues(Attention):
    """The norm of the keys also scales the queries after the cache."""

    def __init__(self, config, layer):
        super().__init__(config, layer)
        self.k_norm = LlamaRMSNorm(self.head_dim)

    def changed(self, what, *tensors):
        if what == "projected":
            return tensors[0], self.k_norm(tensors[1]), tensors[2]
        tensors = super().changed(what, *tensors)
        return self.k_norm(tensors) if what == "stored" else tensors


class RotatedTwice(Attention):
    def changed(self, what, *tensors):
        tensors = super().changed(what, *tensors)
        if what == "projected":
            angles = torch.ones(1, tensors[0].shape[2], self.head_dim)
            return *apply_rotary_pos_emb(*tensors[:2], angles.cos(), angles.sin()), tensors[2]
        return tensors


class SharedKeys(Attention):
    """Even layers have no cache of their own."""

    def changed(self, what, *tensors):
        return self.layer_idx % 2 == 1 if what == "cache" else super().changed(what, *tensors)


NOT_SAME = "its results change if one operator normalizes, rotates and stores"
LEFT = {
    ValueNorm: "its values are changed between projection and cache",
    ScaledKeys: "the keys that it stores are not its rotation's result but made from it",
    ScaledQueries: NOT_SAME,
    AddedBias: "its keys are changed between projection and rotation",
    NormalizedTwice: "its queries are changed between projection and rotation",
    NormOfHalfHeads: "q_norm normalizes neither each head nor all heads",
    LayerNormOfHeads: "its queries are changed between projection and rotation",
    NormUsedForValues: NOT_SAME,
    RotatedTwice: "its queries are changed between projection and rotation",
    SharedKeys: "its forward updates its cache 0 times",
}


def with_attention(kind):
    """Return a Llama whose attentions are of that class."""
    model = make("llama")
    for number, layer in enumerate(model.model.layers):
        attention = kind(model.config, number).eval()
        attention.load_state_dict(layer.self_attn.state_dict(), strict=False)
        layer.self_attn = attention
    return model


@pytest.mark.parametrize("kind", LEFT)
def test_a_module_that_does_something_else_is_left(kind, calls):
    model = with_attention(kind)
    before, generated = logits(model), generate(model, cache="static") if kind is not SharedKeys else None
    report = apply_npu_rope(model, fuse=True)
    assert [e.form_or_reason for e in report.not_fused][:1] == [LEFT[kind]]
    assert [e.module for e in report.not_fused][:1] == ["model.layers.0.self_attn"]
    assert len(report.fused) == (1 if kind is SharedKeys else 0)
    assert all(e.kind == kind.__name__ for e in report.attentions)
    calls.clear()
    assert worst(logits(model), before) <= 1e-5
    if generated is not None:
        assert torch.equal(generate(model, cache="static"), generated)
        assert not calls


@pytest.mark.parametrize("kind", [Attention, ScaledAfterTheCache])
def test_a_users_module_is_fused(kind, calls):
    model = with_attention(kind)
    before, generated = logits(model), generate(model, cache="static")
    fuse(model)
    assert worst(logits(model), before) <= 1e-5
    assert torch.equal(generate(model, cache="static"), generated)
    assert "slots" in calls


class Sometimes(Attention):
    """A module that stops updating its cache."""

    updates = True

    def changed(self, what, *tensors):
        return self.updates if what == "cache" else super().changed(what, *tensors)


def test_a_fused_module_that_does_not_update_its_cache_is_an_error():
    model = with_attention(Sometimes)
    fuse(model)
    model.model.layers[1].self_attn.updates = False
    message = r"^\[apply_npu_rope\] a fused module must update its cache but Sometimes did not\.$"
    with pytest.raises(RuntimeError, match=message), torch.no_grad():
        model(tokens(), cache=transformers.StaticCache(config=model.config, max_cache_len=24))


# ---- rows --------------------------------------------------------------------------------------------


class OtherCache(transformers.StaticCache):
    """A static cache that uses keys and values in other ways."""

    def __init__(self, config, use):
        super().__init__(config=config, max_cache_len=20)
        self.use = use

    def update(self, keys, values, *_, **__):
        assert isinstance(keys, Rows) is self.gets_rows
        return self.use(keys, values)

    gets_rows = True
    update.__module__ = "transformers.cache_utils"  # only such a cache gets rows


class UsersCache(OtherCache):
    """A cache that is not of transformers, and reads the keys before it stores the values."""

    def update(self, keys, values, *given, **named):
        return super().update(keys, values, *given, **named)

    gets_rows = False


def keys_only(keys, values):
    stored = torch.zeros(keys.shape, dtype=keys.dtype, device=keys.device)
    stored.index_copy_(2, torch.arange(keys.shape[2]), keys)
    return stored, torch.cat([values], 2)


def values_first(keys, values):
    stored = [torch.zeros(x.shape) for x in (values, keys)]
    for target, x in zip(stored, (values, keys), strict=True):
        target.index_copy_(2, torch.arange(x.shape[2]), x)
    return stored[1], stored[0]


def different_order(keys, values):
    """The values' rows are in another order than the keys'."""
    order = torch.arange(keys.shape[2]).flip(0)
    stored = torch.zeros(keys.shape).index_copy_(2, torch.arange(keys.shape[2]), keys)
    return stored, torch.zeros(values.shape).index_copy_(2, order, values).flip(2)


USES = {
    "nothing": lambda keys, values: (keys, values),
    "keys only": keys_only,
    "values first": values_first,
    "values in another order": different_order,
    "indexed": lambda keys, values: (keys[:, :, :], values[:, :, :]),
    "cloned": lambda keys, values: (keys.clone(), values.contiguous()),
    "cat": lambda keys, values: (torch.cat([keys], 2), torch.cat((values,), dim=2)),
    "copied": lambda keys, values: (torch.zeros(keys.shape).copy_(keys), values),
    "views": lambda keys, values: (
        keys.transpose(1, 2).unsqueeze(0).squeeze(0).transpose(1, 2),
        values.transpose(1, 2).transpose(2, 1),
    ),
    "along heads": lambda keys, values: (
        torch.zeros(keys.shape).index_copy_(1, torch.arange(keys.shape[1]), keys),
        torch.zeros(values.shape).index_copy_(1, torch.arange(values.shape[1]), values),
    ),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("family", ["qwen3", "gpt-neox"])
def test_every_use_of_rows_gets_the_keys_and_values(family, use, calls):
    model = make(family)
    expected = logits(model)
    fuse(model)
    with torch.no_grad():
        got = model(tokens(), cache=OtherCache(model.config, USES[use])).logits
    assert worst(got, expected) <= 1e-5
    assert calls == ["out"] * 2


def test_a_cache_of_somebody_else_gets_tensors(calls):
    def use(keys, values):
        stored = torch.zeros(keys.shape).index_copy_(2, torch.arange(keys.shape[2]), keys)
        read = stored.clone()
        return read, torch.zeros(values.shape).index_copy_(2, torch.arange(values.shape[2]), values)

    model = make("qwen3")
    expected = logits(model)
    fuse(model)
    with torch.no_grad():
        got = model(tokens(), cache=UsersCache(model.config, use)).logits
    assert worst(got, expected) <= 1e-5
    assert calls == ["new"] * 2


# ---- the report and bad arguments --------------------------------------------------------------------


def test_the_report_lists_fused_modules():
    report = apply_npu_rope(make("qwen3"), fuse=True)
    assert (
        str(report).splitlines()[0]
        == "2 rotations and 9 norms replaced, level tables; 0 left; 2 attentions fused"
    )
    assert str(report).splitlines()[-1] == (
        "fused     2 x Qwen3Attention: qkv_norm_rope_cache (norm of each head: q_norm, k_norm)"
    )
    assert [e.module for e in report.fused] == ["model.layers.0.self_attn", "model.layers.1.self_attn"]
    report = apply_npu_rope(make("deepseek-v3"), fuse=True)
    assert str(report).splitlines()[-1] == (
        "not fused 2 x DeepseekV3Attention: qkv_norm_rope_cache"
        " (apply_rotary_pos_emb_interleave moves the lanes of a pair)"
    )
    assert not apply_npu_rope(make("qwen3")).attentions


def test_a_forward_that_someone_else_replaced_is_not_fused():
    model = make("llama")
    attention = model.model.layers[0].self_attn
    attention.forward = lambda *given, **named: type(attention).forward(attention, *given, **named)
    report = apply_npu_rope(model, fuse=True)
    reason = "its forward is not its class's: someone else replaced it"
    assert [e.form_or_reason for e in report.not_fused] == [reason]
    assert len(report.fused) == 1


def test_a_rotation_that_is_left_is_not_fused(monkeypatch):
    monkeypatch.setattr(
        "transformers.models.llama.modeling_llama.apply_rotary_pos_emb", lambda q, k, cos, sin: (q, k)
    )
    report = apply_npu_rope(make("llama"), fuse=True)
    assert [e.form_or_reason for e in report.not_fused] == ["its rotation is left"] * 2


def test_bad_arguments_are_refused():
    model = make("llama")
    with pytest.raises(TypeError, match=r"^\[apply_npu_rope\] fuse must be True or False but got 1\."):
        apply_npu_rope(model, fuse=1)
    for name in ("rope", "rms_norm"):
        with pytest.raises(
            ValueError, match=r"^\[apply_npu_rope\] fuse must be False where rope or rms_norm is"
        ):
            apply_npu_rope(model, fuse=True, **{name: False})
    assert unpatch(model) == 0


def test_trial_calls_change_nothing_of_the_model():
    model = make("olmo2").train()
    attention = model.model.layers[1].self_attn
    hooked = []
    attention.q_norm.register_forward_hook(lambda *_: hooked.append(1))
    before = {n: v.clone() for n, v in model.state_dict().items()}
    state, config = torch.get_rng_state(), model.config.to_dict()
    fuse(model)
    unpatch(model)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.config.to_dict() == config
    assert model.config._attn_implementation == "sdpa"
    assert attention.training
    assert attention.q_norm.training
    assert attention.config is model.config
    assert not hooked
    assert all(torch.equal(v, before[n]) for n, v in model.state_dict().items())
    assert "forward" not in attention.__dict__
