"""Operators of torch on types and ranks that the real aclnn functions refuse or convert.

Needs TASK_QUEUE_ENABLE=0, so that a refusal is an exception of the call.
"""

import operator
import re
import sys

import torch
from run_checks import refusal, run

SOC = torch.npu.get_device_name()
IS_310P = SOC.startswith("Ascend310P")
CHIP = "310P" if IS_310P else "950" if SOC.startswith("Ascend950") else "910B"


def ones(dtype):
    return torch.ones(3).to(dtype).npu()


def assert_refused(work, argument, got):
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
        assert_refused(lambda x=x: x * x, "self", str(dtype).split(".")[1])
        assert_refused(lambda x=x: x + 1, "self", str(dtype).split(".")[1])


def check_negatives():
    for dtype in (torch.uint8, torch.int16):
        x = ones(dtype)
        assert_refused(lambda x=x: -x, "self", str(dtype).split(".")[1])
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
    ints, halves, flags = ones(torch.int64), ones(torch.float32) / 2, ones(torch.bool)
    works = (
        lambda: ints.add_(1.5), lambda: ints.sub_(1.5), lambda: ints.int().add_(halves),
        lambda: ints.int().mul_(halves), lambda: ints.div_(halves), lambda: flags.add_(1),
        lambda: flags.mul_(ints), lambda: halves.add_(1j), lambda: torch.add(halves, halves, out=ints),
        lambda: ints.add_(halves[0]),
    )  # fmt: skip
    for work in works:
        assert "out must have a type to which " in refusal(work)
    assert (ints.tolist(), halves.tolist(), flags.tolist()) == ([1] * 3, [0.5] * 3, [True] * 3)


def check_results_that_convert_to_the_output():
    ints, flags = torch.tensor([1, 2, 3]), torch.tensor([True, False, True])
    npu_ints, npu_flags = ints.npu(), flags.npu()
    floats = torch.tensor([1.5, 2.5, -3.0])
    for from_npu, from_cpu in (
        (npu_ints + 1.5, ints + 1.5), (npu_ints * 0.5, ints * 0.5), (npu_ints / 2, ints / 2),
        (npu_ints / npu_ints, ints / ints), (npu_ints - floats.npu(), ints - floats),
        (npu_flags + 1, flags + 1), (npu_flags * floats.npu(), flags * floats),
        (npu_flags + npu_flags, flags + flags), (npu_flags / 2, flags / 2),
        (floats.half().npu().add_(floats.npu()), floats.half().add_(floats)), (npu_ints > 1.5, ints > 1.5),
        (floats.npu().half().add_(1.5), floats.half().add_(1.5)), (floats.npu() * 1j, floats * 1j),
        (floats.npu().half() * torch.tensor(2.0).npu(), floats.half() * torch.tensor(2.0)),
        (npu_ints.int().add_(npu_ints), ints.int().add_(ints)),
        (floats.npu().mul_(npu_flags), floats * flags),
        (torch.add(npu_ints, 1, alpha=2), torch.add(ints, 1, alpha=2)),
        (floats.npu().eq_(npu_flags), floats.clone().eq_(flags)),
    ):  # fmt: skip
        assert from_npu.dtype == from_cpu.dtype, (from_npu, from_cpu)
        assert from_npu.tolist() == from_cpu.tolist(), (from_npu, from_cpu)
    # torch refuses these two on the CPU. aclnnInplaceMuls and aclnnInplaceDivs take them.
    assert npu_ints.mul_(1.5).tolist() == [1, 3, 4]
    assert npu_ints.div_(0.5).tolist() == [2, 6, 8]


def check_bfloat16_is_copied_and_cast_by_every_chip():
    x = torch.tensor([1.0, -2.5, 3.0]).npu().bfloat16()
    assert x.dtype == torch.bfloat16
    assert x.float().tolist() == [1.0, -2.5, 3.0]
    assert x.clone()[::2].contiguous().float().tolist() == [1.0, 3.0]


def check_ones_are_real():
    assert " but got complex64." in refusal(lambda: torch.ones(3, dtype=torch.complex64, device="npu"))
    assert torch.zeros(3, dtype=torch.complex64, device="npu").tolist() == [0, 0, 0]


def check_host_fallbacks_of_types_that_cann_lacks():
    double, integers = ones(torch.float64), ones(torch.int32)
    square, out = torch.eye(3, dtype=torch.float64).npu(), torch.empty(3).npu()
    refused = (
        (lambda: torch.linalg.vector_norm(double), "self", "float64", "norm/lp_norm_v2"),
        (lambda: square @ square, "self", "float64", "matmul/mat_mul_v3"),
        (lambda: torch.bmm(square[None], square[None]), "self", "float64", "matmul/batch_mat_mul_v3"),
        (lambda: double.expm1(), "self", "float64", "math/expm1"),
        (lambda: double.expm1_(), "self", "float64", "math/expm1"),
        (lambda: integers.exp(), "self", "int32", "math/exp"),
        (lambda: torch.exp(integers, out=out), "self", "int32", "math/exp"),
        (lambda: torch.lerp(double, double, 0.5), "self", "float64", "math/lerp"),
        (lambda: torch.nn.functional.softplus(double), "self", "float64", "activation/softplus_v2"),
        (lambda: torch.dot(double, double), "self", "float64", "math/dot"),
    )
    for work, argument, dtype, source in refused:
        text = refusal(work)
        assert f"{argument} must be one of " in text, text
        assert f" but got {dtype}: " in text, text
        assert f" {source}/aclnn_" in text, text
    half = ones(torch.float16)
    assert torch.linalg.vector_norm(half).item() > 0
    assert half.expm1().dtype == torch.float16
    assert double.exp().dtype == torch.float64  # aclnnExp has a kernel of the AI CPU


def check_host_fallbacks_of_types_that_some_chips_accept():
    int16, int32 = ones(torch.int16), ones(torch.int32)
    brain, numbers = ones(torch.bfloat16), ones(torch.complex64)
    square, numbers_square = torch.eye(3).npu(), torch.eye(3, dtype=torch.complex64).npu()
    for work, chips, got in (
        (lambda: brain.exp(), "910B 950", "bfloat16"),
        (lambda: brain.softmax(0), "910B 950", "bfloat16"),
        (lambda: int16.roll(1), "910B 950", "int16"),
        (lambda: numbers.abs(), "910B 950", "complex64"),
        (lambda: torch.cdist(square, square), "910B 950", SOC),
        (lambda: numbers.roll(1), "950", "complex64"),
        (lambda: numbers_square.tril(), "950", "complex64"),
        (lambda: numbers_square.triu(), "950", "complex64"),
        (lambda: int32.trunc(), "950", "int32"),
        (lambda: int32.trunc_(), "950", "int32"),
    ):  # fmt: skip
        if CHIP in chips.split():
            assert work().device.type == "npu"
        else:
            text = refusal(work)
            assert f" but got {got}" in text, text


def check_the_table_of_types_names_operators_and_arguments_of_host_fallbacks():
    fallback, types = sys.modules["ascend_sim_fallback"], sys.modules["ascend_sim_types"]
    chips = {chip for listed in re.findall(r"(\S+):", types.TABLE) for chip in listed.split(",")}
    assert chips <= {"910B", "310P", "950"}, chips
    assert types.chip_of("Ascend910_9391") == types.chip_of("Ascend910B4:20") == "910B"
    for name, (_, allowed) in types.OPERATORS.items():
        assert not {name, name.split(".")[0]} & fallback.KEPT, name
        assert types.form_of(name) == name
        forms = map(fallback.overload_of, (name, f"{name}.out", f"{name}.grad_input"))
        schema = next(form for form in forms if form is not None)._schema
        assert allowed.keys() <= {argument.name for argument in schema.arguments}, name
    assert types.form_of("aten.lerp_.Scalar") == types.form_of("aten.lerp.Scalar_out") == "lerp.Scalar"
    assert types.form_of("aten.exp_.default") == types.form_of("aten.exp.out") == "exp"


if __name__ == "__main__":
    run(globals())
