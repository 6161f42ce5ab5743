"""Operators of torch on types and ranks that the real aclnn functions refuse. Needs TASK_QUEUE_ENABLE=0."""

import operator

import torch
from run_checks import refusal, run

IS_310P = torch.npu.get_device_name().startswith("Ascend310P")


def ones(dtype, *shape):
    return torch.ones(shape or (3,)).to(dtype).npu()


def refused(work, argument, got):
    text = refusal(work)
    assert f"{argument} must be " in text, text
    assert f" but got {got}." in text, text


def check_nine_dimensions():
    x = torch.ones(1, 1, 1, 1, 1, 1, 1, 1, 3).npu()
    works = (
        lambda: x * x, lambda: x + x, lambda: -x, lambda: x == x, lambda: x * 2, lambda: x - 1, lambda: x < 1,
        lambda: x.mul_(2), lambda: x.half(), lambda: x.fill_(1), lambda: torch.ones_like(x),
    )  # fmt: skip
    for work in works:
        assert " must have at most 8 dimensions but got 9." in refusal(work)
    y = x[0]
    assert (y * y + y == 2).sum().item() == 3


def check_products_of_wide_unsigned_types():
    for dtype in (torch.uint16, torch.uint32, torch.uint64):
        x = ones(dtype)
        refused(lambda x=x: x * x, "self", str(dtype).split(".")[1])
        refused(lambda x=x: x + 1, "self", str(dtype).split(".")[1])


def check_negatives():
    for dtype in (torch.uint8, torch.int16):
        x = ones(dtype)
        refused(lambda x=x: -x, "self", str(dtype).split(".")[1])
    assert refusal(lambda: -ones(torch.bool))
    for dtype in (torch.int8, torch.int32, torch.int64, torch.float16, torch.float32):
        assert (-ones(dtype)).tolist() == [-1, -1, -1]


def check_bfloat16_from_ascend910b_on():
    x, flag = ones(torch.bfloat16), torch.ones(3).npu()
    operators = (
        operator.add,
        operator.sub,
        operator.mul,
        operator.truediv,
        operator.eq,
        operator.lt,
        operator.ge,
    )
    works = [lambda op=op, y=y: op(x, y) for op in operators for y in (x, 2, flag)]
    works += [lambda: -x, lambda: torch.ones_like(x), lambda: x.fill_(2)]
    works += [lambda: torch.arange(3, dtype=torch.bfloat16, device="npu")]
    works += [lambda: torch.full((3,), 2, dtype=torch.bfloat16, device="npu")]
    works += [lambda: torch.full((3,), 2, out=torch.empty(3).bfloat16().npu())]
    for work in works:
        if IS_310P:
            text = refusal(work)
            assert " on Ascend310P3 but got bfloat16." in text, text
        else:
            work()


def check_every_chip_makes_zeros_of_bfloat16():
    x = ones(torch.bfloat16)
    for zeros in (torch.zeros(3, dtype=torch.bfloat16, device="npu"), torch.zeros_like(x), x.zero_()):
        assert zeros.float().tolist() == [0, 0, 0]


def check_results_that_do_not_convert_to_the_output():
    whole, half, flags = ones(torch.int64), ones(torch.float32) / 2, ones(torch.bool)
    works = (
        lambda: whole.add_(1.5), lambda: whole.sub_(1.5), lambda: whole.int().add_(half),
        lambda: whole.int().mul_(half), lambda: whole.div_(half), lambda: flags.add_(1),
        lambda: flags.mul_(whole), lambda: half.add_(1j), lambda: torch.add(half, half, out=whole),
        lambda: whole.add_(half[0]),
    )  # fmt: skip
    for work in works:
        assert "out must have a type that " in refusal(work)
    assert (whole.tolist(), half.tolist(), flags.tolist()) == ([1, 1, 1], [0.5, 0.5, 0.5], [True, True, True])


def check_results_that_convert_to_the_output():
    whole, flags = torch.tensor([1, 2, 3]), torch.tensor([True, False, True])
    on_npu, mask = whole.npu(), flags.npu()
    single = torch.tensor([1.5, 2.5, -3.0])
    for there, here in (
        (on_npu + 1.5, whole + 1.5), (on_npu * 0.5, whole * 0.5), (on_npu / 2, whole / 2),
        (on_npu / on_npu, whole / whole), (on_npu - single.npu(), whole - single), (mask + 1, flags + 1),
        (mask * single.npu(), flags * single), (mask + mask, flags + flags), (mask / 2, flags / 2),
        (single.half().npu().add_(single.npu()), single.half().add_(single)), (on_npu > 1.5, whole > 1.5),
        (single.npu().half().add_(1.5), single.half().add_(1.5)), (single.npu() * 1j, single * 1j),
        (single.npu().half() * torch.tensor(2.0).npu(), single.half() * torch.tensor(2.0)),
        (on_npu.int().add_(on_npu), whole.int().add_(whole)), (single.npu().mul_(mask), single * flags),
        (torch.add(on_npu, 1, alpha=2), torch.add(whole, 1, alpha=2)),
        (single.npu().eq_(mask), single.clone().eq_(flags)),
    ):  # fmt: skip
        assert there.dtype == here.dtype, (there, here)
        assert there.tolist() == here.tolist(), (there, here)
    # torch refuses these two on the CPU. aclnnInplaceMuls and aclnnInplaceDivs take them.
    assert on_npu.mul_(1.5).tolist() == [1, 3, 4]
    assert on_npu.div_(0.5).tolist() == [2, 6, 8]


def check_bfloat16_is_copied_and_cast_by_every_chip():
    x = torch.tensor([1.0, -2.5, 3.0]).npu().bfloat16()
    assert x.dtype == torch.bfloat16
    assert x.float().tolist() == [1.0, -2.5, 3.0]
    assert x.clone()[::2].contiguous().float().tolist() == [1.0, 3.0]


def check_ones_are_real():
    assert " but got complex64." in refusal(lambda: torch.ones(3, dtype=torch.complex64, device="npu"))
    assert torch.zeros(3, dtype=torch.complex64, device="npu").tolist() == [0, 0, 0]


if __name__ == "__main__":
    run(globals())
