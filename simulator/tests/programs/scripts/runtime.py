"""The simulated runtime under torch_npu: copies, streams, events, memory, calls that are not simulated."""

import ctypes
import gc
import os

import torch
from run_checks import refusal, run

CANN = ctypes.CDLL("libascend_sim_cann.so")


def check_copies_to_the_npu_and_back():
    for x in (torch.randn(3, 4), torch.arange(7), torch.randn(0, 3), torch.tensor(2.5), torch.rand(5) > 0.5):
        assert torch.equal(x.npu().cpu(), x)
        assert torch.equal(x.to("npu:0").to("cpu"), x)


def check_strided_copies():
    x = torch.randn(6, 8, 5)
    y = torch.zeros(6, 8, 5).npu()
    for view in (
        lambda t: t[1:4, ::3],
        lambda t: t.transpose(0, 2)[1],
        lambda t: t[:, :, 2],
        lambda t: t.permute(2, 0, 1)[::2],
    ):
        view(y).copy_(view(x))  # to the device
        assert torch.equal(view(y).cpu(), view(x))
        back = torch.zeros(6, 8, 5)
        view(back).copy_(view(y))
        assert torch.equal(view(back), view(x))
        pinned = torch.empty(view(x).shape).pin_memory()
        pinned.copy_(view(y), non_blocking=True)
        torch.npu.synchronize()
        assert torch.equal(pinned, view(x))


def check_the_chip_is_that_of_ascend_sim_soc():
    assert torch.npu.get_device_name(0) == os.environ["ASCEND_SIM_SOC"]
    assert torch.npu.device_count() == 1
    assert torch.npu.is_available()
    assert torch.npu.get_device_properties(0).total_memory > 2**30
    assert len(str(torch.npu.get_device_properties(0).uuid)) == 36


def check_streams_and_events():
    first, second = torch.npu.Stream(), torch.npu.Stream()
    start, end = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
    x = torch.ones(100).npu()
    with torch.npu.stream(first):
        start.record()
        y = x * 3
        end.record()
    second.wait_event(end)
    with torch.npu.stream(second):
        z = y + 1
    second.synchronize()
    assert z.cpu().unique().tolist() == [4.0]
    end.synchronize()
    assert end.query()
    assert start.elapsed_time(end) >= 0
    assert first.query()
    torch.npu.current_stream().wait_stream(second)
    assert first != second


def check_the_queue_keeps_its_order():
    x = torch.zeros(1000).npu()
    for step in range(300):
        x.add_(1)
        if step % 7 == 0:
            x.mul_(2)
            x.sigmoid_()  # a host fallback, after the work in the queue
    y = torch.zeros(1000)
    for step in range(300):
        y.add_(1)
        if step % 7 == 0:
            y.mul_(2)
            y.sigmoid_()
    assert torch.equal(x.cpu(), y)


def check_memory_is_counted_and_given_back():
    gc.collect()
    torch.npu.synchronize()
    free, total = torch.npu.mem_get_info()
    x = torch.empty(1 << 20, device="npu")
    assert torch.npu.mem_get_info()[0] <= free - (4 << 20)
    del x
    torch.npu.synchronize()
    assert torch.npu.mem_get_info() == (free, total)


def check_fresh_memory_is_nan():
    assert torch.empty(64, device="npu").cpu().isnan().all()


def check_too_much_memory_is_refused():
    message = refusal(lambda: torch.empty(1 << 45, dtype=torch.uint8, device="npu"))
    assert "error code is 207001" in message, message
    assert "no memory left" in message, message


def check_the_time_between_events_without_timing():
    events = [torch.npu.Event() for _ in range(2)]
    for event in events:
        event.record()
    torch.npu.synchronize()
    assert "error code is 107006" in refusal(lambda: events[0].elapsed_time(events[1]))


def check_an_aclnn_function_without_stand_in_is_named():
    def fast_gelu():
        torch.ops.npu.npu_fast_gelu(torch.randn(2, 3).npu())
        torch.npu.synchronize()

    if os.environ.get("TASK_QUEUE_ENABLE") == "2":
        fast_gelu()  # its queue calls the first phase and raises no error: the report names the function
    else:
        message = refusal(fast_gelu)
        assert "aclnnFastGelu" in message, message


def acl_tensor(x, dtype):
    """The aclTensor of a contiguous tensor of the NPU."""
    sizes, strides = ((ctypes.c_int64 * x.dim())(*values) for values in (x.shape, x.stride()))
    rank, nd = ctypes.c_uint64(x.dim()), 2
    CANN.aclCreateTensor.restype = ctypes.c_void_p
    made = CANN.aclCreateTensor(
        sizes, rank, dtype, strides, ctypes.c_int64(0), nd, sizes, rank, ctypes.c_void_p(x.data_ptr())
    )
    return ctypes.c_void_p(made)


def check_an_index_out_of_range_is_an_error_of_the_kernel():
    acl_float, acl_int32 = 0, 3
    x, out = torch.zeros(3, 4).npu(), torch.zeros(2, 4).npu()
    index = torch.tensor([0, 9], dtype=torch.int32).npu()
    torch.npu.synchronize()
    size, executor = ctypes.c_uint64(), ctypes.c_void_p()
    tensors = acl_tensor(x, acl_float), acl_tensor(index, acl_int32), acl_tensor(out, acl_float)
    status = CANN.aclnnIndexSelectGetWorkspaceSize(
        tensors[0], ctypes.c_int64(0), *tensors[1:], ctypes.byref(size), ctypes.byref(executor)
    )
    assert status == 0
    stream = ctypes.c_void_p(torch.npu.current_stream().npu_stream)
    assert CANN.aclnnIndexSelect(None, size, executor, stream) == 0
    message = refusal(torch.npu.synchronize)
    assert "error code is 507035" in message, message
    assert "aclnnIndexSelect: index must be in [0, 3) but got 9 in element 1." in message, message


def check_a_stub_names_the_call_and_the_file():
    stub = ctypes.CDLL("libascendcl.so").aclrtMemGetAccess
    assert stub(None, None, None) == 200001
    CANN.aclGetRecentErrMsg.restype = ctypes.c_char_p
    text = CANN.aclGetRecentErrMsg().decode()
    assert "aclrtMemGetAccess is not simulated" in text, text
    assert "simulator/cann/runtime/" in text


if __name__ == "__main__":
    run(globals())
