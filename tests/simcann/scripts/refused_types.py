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
    works += [lambda: -x, lambda: torch.zeros_like(x), lambda: torch.ones_like(x), lambda: x.fill_(2)]
    works += [lambda: torch.arange(3, dtype=torch.bfloat16, device="npu")]
    for work in works:
        if IS_310P:
            text = refusal(work)
            assert " on Ascend310P3 but got bfloat16." in text, text
        else:
            work()


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
