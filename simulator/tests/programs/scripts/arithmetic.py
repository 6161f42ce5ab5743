"""Compare stand-ins of libopapi with torch's CPU kernels: same dtype, shape and values."""

import itertools
import operator

import torch
from run_checks import refusal, run

COPIED_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
HAS_BFLOAT16 = not torch.npu.get_device_name().startswith("Ascend310P")
FLOATS = COPIED_FLOATS if HAS_BFLOAT16 else COPIED_FLOATS[:2]
DTYPES = (*FLOATS, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool)
COMPARISONS = (torch.eq, torch.ne, torch.lt, torch.le, torch.gt, torch.ge)


def values(shape, dtype, seed):
    """Random numbers, so small that no dtype overflows, with both signs if the dtype has them."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    if dtype.is_floating_point:
        return (torch.randn(shape, generator=generator) * 3).to(dtype)
    low = 0 if dtype == torch.uint8 else -5
    return torch.randint(low, 6, shape, generator=generator).to(dtype)


def same(on_device, on_host):
    assert on_device.device.type == "npu"
    assert on_device.dtype == on_host.dtype, (on_device.dtype, on_host.dtype)
    assert on_device.shape == on_host.shape, (on_device.shape, on_host.shape)
    torch.testing.assert_close(on_device.cpu(), on_host, rtol=0, atol=0, equal_nan=True)


def torch_supports(op, a, b):
    return not (op is torch.sub and torch.bool in (a, b))


def check_two_tensors_of_any_dtypes():
    for op, a, b in itertools.product((torch.add, torch.sub, torch.mul, torch.div), DTYPES, DTYPES):
        if torch_supports(op, a, b):
            x, y = values((3, 5), a, 1), values((3, 5), b, 2)
            same(op(x.npu(), y.npu()), op(x, y))


def check_comparisons_of_any_dtypes():
    for op, a, b in itertools.product(COMPARISONS, DTYPES, DTYPES):
        x, y = values((3, 5), a, 1), values((3, 5), b, 2)
        same(op(x.npu(), y.npu()), op(x, y))


def check_ranges():
    for bounds in ((5,), (2, 9), (0, 10, 3), (10, 0, -3)):
        for dtype in (None, *FLOATS, torch.float64, torch.int32, torch.int64):
            same(torch.arange(*bounds, dtype=dtype, device="npu"), torch.arange(*bounds, dtype=dtype))
    same(torch.arange(0.0, 1.0, 0.1, device="npu"), torch.arange(0.0, 1.0, 0.1))
    out = torch.empty(10, device="npu")
    torch.arange(5, out=out[::2])
    same(out[::2], torch.arange(5.0))


def check_broadcasting():
    shapes = (
        ((2, 1, 4), (3, 1)),
        ((4,), (2, 3, 4)),
        ((), (3, 2)),
        ((1,), ()),
        ((0, 3), (3,)),
        ((2, 300), (1,)),
    )
    for op, (a, b) in itertools.product((torch.add, torch.mul, torch.lt), shapes):
        x, y = values(a, torch.float32, 1), values(b, torch.float32, 2)
        same(op(x.npu(), y.npu()), op(x, y))


def check_strides_of_every_kind():
    def views(t):
        yield t.t()
        yield t[::2, 1::3]
        yield t[:, 2]
        yield t[1:4, 2:7].t()
        yield t[3].expand(5, -1)
        yield t.as_strided((4, 4), (1, 2), 3)

    x, y = values((9, 300), torch.float32, 1), values((9, 300), torch.float32, 2)
    x_npu, y_npu = x.npu(), y.npu()
    for a, b, a_npu, b_npu in zip(views(x), views(y), views(x_npu), views(y_npu), strict=True):
        same(a_npu + b_npu, a + b)
        same(a_npu - b_npu, a - b)
        same(a_npu.contiguous(), a.contiguous())
        same(a_npu.clone(), a.clone())


def check_python_scalars():
    numbers = (2, -3, 0.5, 0.1, True)
    for op, dtype, number in itertools.product(
        (operator.add, operator.mul, operator.truediv), DTYPES, numbers
    ):
        x = values((4, 3), dtype, 1)
        same(op(x.npu(), number), op(x, number))
    for op, dtype, number in itertools.product(COMPARISONS, DTYPES, numbers):
        x = values((4, 3), dtype, 1)
        same(op(x.npu(), number), op(x, number))


def check_a_scalar_is_compared_in_the_tensors_dtype():
    for dtype in FLOATS:
        x = torch.tensor([0.1, 0.2], dtype=dtype)
        same(x.npu() == 0.1, x == 0.1)


def check_scalar_on_the_left():
    x = values((4, 3), torch.float32, 1)
    same(1.5 - x.npu(), 1.5 - x)
    same(2 / x.npu(), 2 / x)
    same(1 + x.npu(), 1 + x)
    same(torch.tensor(3.0) * x.npu(), torch.tensor(3.0) * x)


def check_alpha():
    for dtype, alpha in itertools.product((torch.float32, torch.float16, torch.int32), (2, -1)):
        x, y = values((7,), dtype, 1), values((7,), dtype, 2)
        same(torch.add(x.npu(), y.npu(), alpha=alpha), torch.add(x, y, alpha=alpha))
        same(torch.sub(x.npu(), y.npu(), alpha=alpha), torch.sub(x, y, alpha=alpha))
        same(torch.add(x.npu(), 3, alpha=alpha), torch.add(x, 3, alpha=alpha))


def check_in_place_on_views():
    for change in (
        lambda t: t[::2].add_(t[1::2]),
        lambda t: t[:, 1].mul_(3),
        lambda t: t.t()[2].sub_(t[:, 0]),
        lambda t: t[2:4, 2:4].div_(4),
        lambda t: t[0].neg_(),
        lambda t: t[1].fill_(7),
        lambda t: t[2, ::2].zero_(),
        lambda t: t[3].copy_(t[0]),
        lambda t: t[4:, :2].lt_(0.5),
        lambda t: t.diagonal().add_(1, alpha=2),
    ):
        x = values((6, 6), torch.float32, 1)
        x_npu = x.npu()
        change(x)
        change(x_npu)
        same(x_npu, x)


def check_casts_of_every_pair():
    dtypes = {*COPIED_FLOATS, *DTYPES}
    for a, b in itertools.product(dtypes, dtypes):
        x = values((2, 70), a, 1)
        if b == torch.uint8:
            x = x.abs() if a != torch.bool else x
        same(x.npu().to(b), x.to(b))
        same(x.npu()[:, ::3].to(b), x[:, ::3].to(b))


def check_halves_round_to_nearest_even():
    # Every finite float16, the midpoints between neighbours, and values that overflow or underflow.
    half = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16).view(torch.float16)
    finite = half[half.isfinite()].float().sort().values
    between = (finite[1:] + finite[:-1]) / 2
    x = torch.cat([finite, between, torch.tensor([65519.0, 65520.0, 1e30, -1e30, 1e-8, 3e-8, 0.0, -0.0])])
    x = torch.cat(
        [x, torch.nextafter(between, torch.tensor(1e9)), torch.nextafter(between, torch.tensor(-1e9))]
    )
    x = torch.cat([x, torch.tensor([float("inf"), -float("inf"), float("nan")])])
    for dtype in (torch.float16, torch.bfloat16):
        same(x.npu().to(dtype), x.to(dtype))
        same(x.npu().to(dtype).float(), x.to(dtype).float())


def check_float64_stays_float64():
    x, y = torch.randn(5, 3, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    same(x.npu() * y.npu(), x * y)
    same(x.npu() + 1e-12, x + 1e-12)
    same(x.npu()[:, 0].clone(), x[:, 0].clone())


def check_complex_numbers():
    x, y = torch.view_as_complex(torch.randn(4, 3, 2)), torch.view_as_complex(torch.randn(3, 2))
    real = torch.randn(4, 3)
    for op in (torch.add, torch.sub, torch.mul):
        same(op(x.npu(), real.npu()), op(x, real))
        torch.testing.assert_close(op(x.npu(), y.npu()).cpu(), op(x, y))
    torch.testing.assert_close((x.npu() / y.npu()).cpu(), x / y)
    same(x.npu() * 2, x * 2)
    same(-x.npu(), -x)
    same(x.npu() == x.npu().clone(), x == x)
    same(x.npu()[:, 1].clone(), x[:, 1].clone())
    same(torch.zeros(2, dtype=torch.complex64, device="npu"), torch.zeros(2, dtype=torch.complex64))
    same(x.npu().conj().clone().resolve_conj(), x.conj().resolve_conj())
    product = torch.view_as_real(x.npu() * torch.polar(real, real).npu()).flatten(-2)
    torch.testing.assert_close(product.cpu(), torch.view_as_real(x * torch.polar(real, real)).flatten(-2))


def check_integers_wrap():
    x = torch.tensor([127, -128, 100], dtype=torch.int8)
    same(x.npu() + x.npu(), x + x)
    same(x.npu() * 3, x * 3)
    big = torch.tensor([2**63 - 1, -(2**63)])
    same(big.npu() + 1, big + 1)
    same(-big.npu(), -big)


def check_nan_and_infinity():
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0])
    for op in COMPARISONS:
        same(op(x.npu(), x.flip(0).npu()), op(x, x.flip(0)))
    same(x.npu() / x.flip(0).npu(), x / x.flip(0))
    same(x.npu() - x.npu(), x - x)


def check_factories():
    for dtype in DTYPES:
        same(torch.zeros(3, 2, dtype=dtype, device="npu"), torch.zeros(3, 2, dtype=dtype))
        same(torch.ones(3, 2, dtype=dtype, device="npu"), torch.ones(3, 2, dtype=dtype))
        same(torch.full((3, 2), 1, dtype=dtype, device="npu"), torch.full((3, 2), 1, dtype=dtype))
        same(torch.ones_like(values((2, 2), dtype, 1).npu()), torch.ones(2, 2, dtype=dtype))


def check_overlapping_out_is_refused():
    assert refusal(lambda: torch.zeros(3).npu().expand(2, 3).add_(1))


if __name__ == "__main__":
    run(globals())
