"""npu_rope's operators on NPU tensors as torch uses them: gradients, compilation, views, streams, variants.

usage: operators.py — prints JSON: the result of every check.
"""

import torch
import torch_npu  # noqa: F401
from run_checks import near, run, values

import npu_rope

PARAMS = npu_rope.RopeParams(64, "neox", freq_base=1e6)
NORMAL = npu_rope.RopeParams(32, "normal", n_offs=8, freq_scale=0.5)
POSITIONS = torch.arange(1000, 1005)
ATTRIBUTES = {"n_dims": 64, "rope_mode": 2, "freq_base": 1e6}


def check_gradients_equal_the_cpu_s():
    for params in (PARAMS, NORMAL):
        grads = []
        for device in ("cpu", "npu"):
            x = values(2, 5, 3, 64).to(device).requires_grad_()
            y = npu_rope.rope(x * 2, POSITIONS.to(device), params)
            (y * values(2, 5, 3, 64, seed=1).to(device)).sum().backward()
            grads.append(x.grad)
        near(grads[1], grads[0])


def check_gradients_of_queries_and_keys():
    grads = {}
    for device in ("cpu", "npu"):
        q, k = (values(1, 5, n, 64, seed=n).to(device).requires_grad_() for n in (4, 2))
        a, b = npu_rope.rope_qk(q, k, POSITIONS.to(device), PARAMS)
        (a.square().sum() * 0.5 + (b**3).sum()).backward()
        grads[device] = q.grad, k.grad
    for on_npu, on_cpu in zip(grads["npu"], grads["cpu"], strict=True):
        near(on_npu, on_cpu, units=4)


def check_a_gradient_passes_through_in_place():
    grads = []
    for device in ("cpu", "npu"):
        x = values(1, 5, 3, 64).to(device).requires_grad_()
        y = x * 3
        npu_rope.rope_(y, POSITIONS.to(device), PARAMS)
        (y * values(1, 5, 3, 64, seed=2).to(device)).sum().backward()
        grads.append(x.grad)
    near(grads[1], grads[0])


def check_a_second_gradient():
    x = values(1, 5, 2, 64).npu().requires_grad_()
    (first,) = torch.autograd.grad(
        npu_rope.rope(x, POSITIONS.npu(), PARAMS).pow(3).sum(), x, create_graph=True
    )
    first.sum().backward()
    y = values(1, 5, 2, 64).requires_grad_()
    (first,) = torch.autograd.grad(npu_rope.rope(y, POSITIONS, PARAMS).pow(3).sum(), y, create_graph=True)
    first.sum().backward()
    near(x.grad, y.grad, units=8)


def check_full_graph_compilation():
    def step(x, q, at):
        y = npu_rope.rope(x + 1, at, PARAMS)
        npu_rope.rope_(q, at, PARAMS)
        return y * 2 + q

    x, q = values(1, 5, 3, 64), values(1, 5, 3, 64, seed=4)
    expected = step(x, q.clone(), POSITIONS)
    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    near(compiled(x.npu(), q.npu(), POSITIONS.npu()), expected)
    x = x.npu().requires_grad_()
    compiled(x, q.npu(), POSITIONS.npu()).sum().backward()
    assert x.grad.device.type == "npu"


def check_every_variant():
    ops = torch.ops.npu_rope
    q, k = values(1, 5, 4, 64), values(1, 5, 2, 64, seed=1)
    expected_q, expected_k = npu_rope.rope_qk(q, k, POSITIONS, PARAMS)
    at = POSITIONS.npu()
    near(ops.rope(q.npu(), at, **ATTRIBUTES), expected_q)
    x = q.npu()
    assert ops.rope_(x, at, **ATTRIBUTES) is None
    near(x, expected_q)
    out = torch.empty_like(x)
    ops.rope_out(q.npu(), at, **ATTRIBUTES, out=out)
    near(out, expected_q)
    both = ops.rope_qk(q.npu(), k.npu(), at, **ATTRIBUTES)
    near(both[0], expected_q), near(both[1], expected_k)
    a, b = q.npu(), k.npu()
    ops.rope_qk_(a, b, at, **ATTRIBUTES)
    near(a, expected_q), near(b, expected_k)
    a, b = torch.empty_like(a), torch.empty_like(b)
    ops.rope_qk_out(q.npu(), k.npu(), at, **ATTRIBUTES, q_out=a, k_out=b)
    near(a, expected_q), near(b, expected_k)


def check_rows_of_a_cache():
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for index in (torch.int64, torch.int32):
            k = values(2, 5, 2, 64)
            rows = torch.tensor([[3, 4, -1, 0, 9], [8, 7, 6, 5, 1]], dtype=index)
            caches = []
            for device in ("cpu", "npu"):
                cache = torch.full((10, 2, 64), 7.0, dtype=dtype, device=device)
                npu_rope.rope_set_rows(k.to(device), POSITIONS.to(device), rows.to(device), cache, PARAMS)
                caches.append(cache)
            near(caches[1], caches[0])


def check_views():
    fused = values(2, 5, 8, 64).npu()
    for view in (fused[:, :, 2:5], fused.transpose(0, 1)[:2], fused[:, ::2][:, :2], fused[..., :32]):
        params = npu_rope.RopeParams(32, "neox")
        at = POSITIONS[: view.shape[1]]
        near(npu_rope.rope(view, at.npu(), params), npu_rope.rope(view.cpu(), at, params))
    heads_first = values(2, 3, 5, 64).npu().transpose(1, 2)
    expected = npu_rope.rope(heads_first.cpu(), POSITIONS, PARAMS)
    npu_rope.rope_(heads_first, POSITIONS.npu(), PARAMS)
    near(heads_first, expected)


def check_streams():
    x, at = values(1, 5, 3, 64).npu(), POSITIONS.npu()
    torch.npu.synchronize()
    stream = torch.npu.Stream()
    with torch.npu.stream(stream):
        y = npu_rope.rope(x, at, PARAMS)
        y = npu_rope.rope(y, at, PARAMS, forward=False)
    stream.synchronize()
    near(y, x.cpu(), units=4)


def check_empty_calls():
    at = torch.zeros(0, dtype=torch.int64).npu()
    assert npu_rope.rope(torch.zeros(1, 0, 2, 64).npu(), at, PARAMS).shape == (1, 0, 2, 64)


run(globals())
