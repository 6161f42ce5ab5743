"""Compare operators that fall back to the host with the CPU: results, aliases, gradients, random numbers."""

import sys
import threading

import torch
from run_checks import refusal, run
from torch import nn
from torch.nn import functional as F

fallback = sys.modules["ascend_sim_fallback"]  # imported when torch loaded torch_npu


def numbers(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def same(on_device, on_host):
    if isinstance(on_host, (list, tuple)):
        assert len(on_device) == len(on_host)
        for a, b in zip(on_device, on_host, strict=True):
            same(a, b)
        return
    assert on_device.device.type == "npu", on_device.device
    assert on_device.dtype == on_host.dtype
    assert on_device.shape == on_host.shape, (on_device.shape, on_host.shape)
    torch.testing.assert_close(on_device.detach().cpu(), on_host.detach(), rtol=0, atol=0, equal_nan=True)


def check_calls_are_counted_by_operator():
    x = numbers(3).npu()
    before = fallback.counts["aten.exp.default"]
    x.exp()
    assert fallback.counts["aten.exp.default"] == before + 1
    x + x
    assert "aten.add.Tensor" not in fallback.counts


def check_reads_through_views_of_views():
    x = numbers(6, 8, 4)
    y = x.npu()
    for view in (
        lambda t: t[1:5][:, ::2].transpose(0, 2)[1],
        lambda t: t.permute(2, 0, 1)[:, 3].unsqueeze(1).expand(-1, 3, -1),
        lambda t: t.flatten(1)[:, 5:29:3].view(6, 2, 4),
        lambda t: t.unfold(1, 3, 2)[2],
        lambda t: t.as_strided((3, 3), (2, 5), 7),
    ):
        same(view(y).exp(), view(x).exp())
        same(view(y).sum(-1), view(x).sum(-1))
        same(view(y).sort(-1), view(x).sort(-1))


def check_writes_through_views_reach_the_base():
    for change in (
        lambda t: t[1:4, ::2].exp_(),
        lambda t: t.t()[2].clamp_(-0.5, 0.5),
        lambda t: t[:, 1:3][2:].sigmoid_(),
        lambda t: t.view(-1)[3:9].view(2, 3).t().tanh_(),
        lambda t: t[2].index_fill_(0, torch.tensor([0, 3], device=t.device), 9.0),
        lambda t: t.diagonal().relu_(),
        lambda t: t.masked_fill_(t > 0, -1.0),
        lambda t: t.index_copy_(0, torch.tensor([4, 0], device=t.device), t[:2].clone()),
        lambda t: t.scatter_(1, torch.tensor([[0], [2]], device=t.device), 5.0),
        lambda t: t.__setitem__((slice(None), torch.tensor([1, 2], device=t.device)), 3.0),
        lambda t: t.index_put_((torch.tensor([0, 0], device=t.device),), t[1].clone(), accumulate=True),
        lambda t: t[t > 0.3].exp_(),
        lambda t: t.__setitem__(t > 0.3, 0.25),
    ):
        x = numbers(6, 6)
        y = x.npu()
        address = y.data_ptr()
        change(x)
        change(y)
        same(y, x)
        assert y.data_ptr() == address


def check_in_place_returns_the_same_tensor():
    y = numbers(4).npu()
    assert y.exp_() is y
    assert torch.sigmoid(y, out=y) is y


def check_a_kernel_returns_its_arguments_and_views_of_them():
    aten, y, out = torch.ops.aten, numbers(4, 3).npu(), torch.empty(0, device="npu")
    expected = y.exp().cpu()
    assert fallback.HostKernel(aten.exp_.default)(y) is y
    assert fallback.HostKernel(aten.sigmoid.out)(y, out=out) is out
    view = fallback.HostKernel(aten.slice.Tensor)(y, 1, 1, 3)
    view.zero_()
    expected[:, 1:3].zero_()
    same(y, expected)
    parts = fallback.HostKernel(aten.split.Tensor)(y, 2)
    assert [part.data_ptr() for part in parts] == [y.data_ptr(), y[2].data_ptr()]


def check_out_is_filled_and_resized():
    x = numbers(3, 4)
    y = x.npu()
    out = torch.empty(3, 4, device="npu")
    address = out.data_ptr()
    assert torch.exp(y, out=out) is out
    assert out.data_ptr() == address
    same(out, x.exp())
    empty = torch.empty(0, device="npu")
    torch.mm(y, y.t(), out=empty)
    same(empty, x @ x.t())
    base = torch.zeros(6, 8, device="npu")
    torch.cos(y, out=base[::2, ::2])
    expected = torch.zeros(6, 8)
    torch.cos(x, out=expected[::2, ::2])
    same(base, expected)
    values, indices = torch.empty(0, device="npu"), torch.empty(0, dtype=torch.int64, device="npu")
    torch.sort(y, out=(values, indices))
    same((values, indices), tuple(x.sort()))


def check_out_that_is_an_input():
    x = numbers(5, 5)
    y = x.npu()
    torch.mm(y, y, out=y)
    same(y, x @ x)


def check_a_result_that_is_a_view_shares_memory():
    x = numbers(4, 6)
    y = x.npu()
    for view in (
        lambda t: t.reshape(2, 12),
        lambda t: t.select(0, 2),
        lambda t: t.split(2, dim=1)[1],
        lambda t: t.chunk(3)[0],
        lambda t: t.unbind(1)[3],
        lambda t: t.narrow(1, 2, 3),
        lambda t: t.squeeze(0).movedim(0, 1),
        lambda t: t.view(torch.int32).view(torch.float32),
        lambda t: torch.view_as_real(torch.view_as_complex(t.view(4, 3, 2))),
    ):
        a, b = view(x), view(y)
        same(b, a)
        a.zero_()
        b.zero_()
        same(y, x)
        x.copy_(numbers(4, 6, seed=2))
        y.copy_(x)


def check_strides_of_results_are_the_cpus():
    x = numbers(4, 6)
    for op in (
        lambda t: t.t().exp(),
        lambda t: t.t().clone(),
        lambda t: t.t().sum(0, keepdim=True),
        lambda t: t.t().sort(0).values,
        lambda t: torch.linalg.qr(t).Q,
    ):
        assert op(x.npu()).stride() == op(x).stride()
        same(op(x.npu()), op(x))


def check_sizes_that_depend_on_the_data():
    x = torch.tensor([3, 0, 2, 3, 0, 1])
    same(x.npu().nonzero(), x.nonzero())
    same(x.npu().unique(return_counts=True), x.unique(return_counts=True))
    same(x.npu()[x.npu() > 0], x[x > 0])
    same(torch.repeat_interleave(x.npu(), 2), torch.repeat_interleave(x, 2))
    same(torch.bincount(x.npu()), torch.bincount(x))


def check_lists_of_tensors():
    x, y = numbers(2, 3), numbers(4, 3, seed=2)
    same(torch.cat([x.npu(), y.npu()]), torch.cat([x, y]))
    same(torch.stack([x.npu(), x.npu()], 1), torch.stack([x, x], 1))
    a, b = [x.npu(), y.npu()], [x.clone(), y.clone()]
    torch._foreach_mul_(a, 2.0)
    torch._foreach_mul_(b, 2.0)
    same(a, b)
    same(torch._foreach_norm(a), torch._foreach_norm(b))
    same(torch.einsum("ij,kj->ik", x.npu(), y.npu()), torch.einsum("ij,kj->ik", x, y))


def check_values_without_tensors():
    same(torch.arange(3, 20, 4, device="npu"), torch.arange(3, 20, 4))
    same(torch.eye(3, 4, device="npu"), torch.eye(3, 4))
    same(torch.linspace(0, 1, 7, device="npu"), torch.linspace(0, 1, 7))
    same(torch.tril_indices(4, 4, device="npu"), torch.tril_indices(4, 4))
    same(torch.tensor([[1, 2], [3, 4]], device="npu"), torch.tensor([[1, 2], [3, 4]]))
    assert torch.equal(torch.ones(2, device="npu"), torch.ones(2).npu()) is True
    assert torch.allclose(torch.ones(2, device="npu"), torch.ones(2).npu()) is True
    assert numbers(3).npu().sum().item() == numbers(3).sum().item()


def check_empty_tensors():
    x = torch.empty(0, 4)
    same(x.npu().exp(), x.exp())
    same(x.npu().sum(0), x.sum(0))
    same(torch.cat([x.npu(), x.npu()]), torch.cat([x, x]))
    same(x.npu() @ numbers(4, 3).npu(), x @ numbers(4, 3))


def check_complex_and_conjugate():
    x = torch.view_as_complex(numbers(5, 2))
    same(x.npu().conj().exp(), x.conj().exp())
    same(x.npu().conj().resolve_conj(), x.conj().resolve_conj())
    same(x.npu().abs(), x.abs())
    same(x.npu().imag.exp(), x.imag.exp())


def check_a_tensor_of_the_cpu_is_refused():
    for op in (
        lambda a, b: torch.atan2(a, b),
        lambda a, b: torch.mm(a, b),
        lambda a, b: torch.cat([a, b]),
    ):
        message = refusal(lambda op=op: op(numbers(3, 3).npu(), numbers(3, 3)))
        assert "same device" in message, message
    same(torch.atan2(numbers(3).npu(), torch.tensor(2.0)), torch.atan2(numbers(3), torch.tensor(2.0)))
    same(numbers(4, 2).npu()[torch.tensor([3, 1])], numbers(4, 2)[torch.tensor([3, 1])])


def compare_gradients(work, *inputs):
    """Compare the result of work and its gradients on both devices."""
    hosts = [i.clone().requires_grad_() for i in inputs]
    devices = [i.npu().requires_grad_() for i in inputs]
    host, device = work(*hosts), work(*devices)
    torch.testing.assert_close(device.detach().cpu(), host.detach())
    (host * 1.5).sum().backward()
    (device * 1.5).sum().backward()
    for a, b in zip(devices, hosts, strict=True):
        torch.testing.assert_close(a.grad.cpu(), b.grad)


def check_gradients():
    index = torch.tensor([[0, 2], [1, 1], [3, 0]])
    for work in (
        lambda a, b: a @ b,
        lambda a, b: torch.matmul(a.view(3, 1, 4), b),
        lambda a, b: F.linear(a, b.t(), b[0, :5]),
        lambda a, b: F.softmax(a @ b, -1).log(),
        lambda a, b: F.scaled_dot_product_attention(a[None], (b.t())[None], (b.t())[None]),
        lambda a, b: a.gather(1, index.to(a.device)) @ b[:2],
        lambda a, b: torch.where(a > 0, a, a.exp()) @ b,
        lambda a, b: F.layer_norm(a @ b, (5,)),
        lambda a, b: F.silu(a) @ F.gelu(b),
        lambda a, b: F.binary_cross_entropy_with_logits(a @ b, torch.ones(3, 5, device=a.device)),
        lambda a, b: F.l1_loss(a @ b, torch.zeros(3, 5, device=a.device)) + F.mse_loss(a, a * 2),
        lambda a, b: torch.cdist(a, b.t()),
        lambda a, b: F.log_softmax(a @ b, 1) + F.logsigmoid(a @ b),
        lambda a, b: torch.repeat_interleave(a @ b, 2, dim=0).cumsum(0),
        lambda a, b: (a @ b).renorm(2, 0, 1.0),
        lambda a, b: torch.fft.rfft(a @ b).abs(),
        lambda a, b: torch.linalg.cholesky(a @ a.t() + 5 * torch.eye(3, device=a.device)) @ (a @ b),
        lambda a, b: a.index_select(0, index[0].to(a.device)) @ b,
        lambda a, b: F.adaptive_avg_pool2d((a @ b)[None], (2, 2)),
        lambda a, b: torch.max(a @ b, dim=1).values + (a @ b).sort(1).values[:, 0],
        lambda a, b: F.kl_div(
            F.log_softmax(a @ b, 1), torch.full((3, 5), 0.2, device=a.device), reduction="sum"
        ),
        lambda a, b: F.cross_entropy(a @ b, torch.tensor([1, 4, 0], device=a.device)),
        lambda a, b: torch.stack([a @ b, a @ b]).prod(0),
    ):
        compare_gradients(work, numbers(3, 4), numbers(4, 5, seed=2))


def check_convolution_and_norm_layers_train():
    def trained(device):
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2),
            nn.GroupNorm(2, 6), nn.Flatten(), nn.Linear(54, 7),
        )  # fmt: skip
        net = net.to(device)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        for step in range(3):
            optimizer.zero_grad()
            loss = F.cross_entropy(
                net(numbers(4, 3, 6, 6, seed=step).to(device)), torch.arange(4, device=device)
            )
            loss.backward()
            optimizer.step()
        return {name: value.cpu() for name, value in net.state_dict().items()}

    torch.testing.assert_close(trained("npu"), trained("cpu"))


def check_implementations_of_adamw():
    def trained(device, **options):
        torch.manual_seed(0)
        net = nn.Linear(5, 3).to(device)
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, **options)
        for step in range(4):
            optimizer.zero_grad()
            net(numbers(6, 5, seed=step).to(device)).square().mean().backward()
            optimizer.step()
        return net.weight.detach().cpu()

    for options in ({"foreach": False}, {"foreach": True}, {"fused": True}, {"amsgrad": True}):
        torch.testing.assert_close(trained("npu", **options), trained("cpu", **options))


def check_autocast():
    x, net = numbers(4, 5), nn.Linear(5, 3)
    with torch.autocast("cpu", torch.bfloat16):
        expected = net(x)
    device = net.npu()
    with torch.autocast("npu", torch.bfloat16):
        same(device(x.npu()), expected)


def check_seeds_repeat_and_the_cpus_generator_stays():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    torch.npu.manual_seed(5)
    a = torch.randn(4, device="npu")
    state = torch.npu.get_rng_state()
    b = torch.rand(4, device="npu")
    c = F.dropout(torch.ones(64, device="npu"))
    torch.npu.set_rng_state(state)
    same(torch.rand(4, device="npu"), b.cpu())
    same(F.dropout(torch.ones(64, device="npu")), c.cpu())
    torch.npu.manual_seed(5)
    same(torch.randn(4, device="npu"), a.cpu())
    assert not torch.equal(a, torch.randn(4, device="npu"))
    assert torch.equal(torch.get_rng_state(), before)
    own = torch.Generator(device="npu").manual_seed(9)
    first = torch.randn(4, device="npu", generator=own)
    again = torch.randn(4, device="npu", generator=torch.Generator(device="npu").manual_seed(9))
    same(again, first.cpu())


def check_random_numbers_look_random():
    torch.npu.manual_seed(1)
    x = torch.randn(20000, device="npu").cpu()
    assert abs(x.mean()) < 0.05, x.mean()
    assert abs(x.std() - 1) < 0.05, x.std()
    y = torch.empty(20000, device="npu").uniform_(2, 4).cpu()
    assert y.min() >= 2
    assert y.max() < 4
    assert abs(y.mean() - 3) < 0.05
    assert sorted(torch.randperm(50, device="npu").tolist()) == list(range(50))
    picked = torch.multinomial(torch.tensor([0.0, 1.0, 0.0], device="npu"), 4, replacement=True)
    assert picked.tolist() == [1, 1, 1, 1]


def check_dropout_of_a_checkpoint_is_the_same_again():
    from torch.utils.checkpoint import checkpoint

    def gradient(checkpointed):
        torch.npu.manual_seed(2)
        x = numbers(8, 8).npu().requires_grad_()
        work = lambda t: F.dropout(t.exp(), 0.5) * t  # noqa: E731
        (checkpoint(work, x, use_reentrant=False) if checkpointed else work(x)).sum().backward()
        return x.grad.cpu()

    assert torch.equal(gradient(True), gradient(False))


def check_threads():
    x, failures = numbers(32, 32), []
    expected = (x @ x).softmax(-1).cumsum(0)

    def work():
        try:
            for _ in range(20):
                y = x.npu()
                same((y @ y).softmax(-1).cumsum(0), expected)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def check_compiled_by_aot_eager():
    work = torch.compile(lambda t: (t.exp() @ t.t()).softmax(-1), backend="aot_eager")
    x = numbers(4, 6)
    torch.testing.assert_close(work(x.npu()).cpu(), (x.exp() @ x.t()).softmax(-1))


def check_saved_and_loaded():
    import io

    stream = io.BytesIO()
    x = numbers(3, 4)
    torch.save(x.npu(), stream)
    stream.seek(0)
    same(torch.load(stream), x)


def check_operators_that_torch_npu_lacks():
    x = numbers(5).abs() + 0.5
    for op in (torch.lgamma, torch.digamma, torch.i0):
        before = sum(fallback.counts.values())
        same(op(x.npu()), op(x))
        assert sum(fallback.counts.values()) == before + 1


if __name__ == "__main__":
    run(globals())
