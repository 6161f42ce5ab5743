"""Collectives of torch.distributed on backend hccl, compared with gloo on the CPU.

usage: torchrun --nproc-per-node N collectives.py [CHECK ...]
"""

import os
import sys
import traceback

import torch
import torch.distributed as dist
import torch_npu  # noqa: F401

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
LENGTHS = (1, 7, 256, 4099)
MOVED = (
    torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32,
    torch.float64, torch.bfloat16,
)  # fmt: skip
REDUCED = (torch.int8, torch.int32, torch.int64, torch.float16, torch.float32, torch.bfloat16)
# A sum of SIZE rounded terms: each of the SIZE - 1 steps rounds once, in both back ends.
STEP = {torch.float16: 2**-11, torch.bfloat16: 2**-8, torch.float32: 2**-24}


def values(dtype, *shape, seed=0):
    """Return numbers that differ by rank."""
    generator = torch.Generator().manual_seed(1000 * seed + RANK)
    numbers = torch.randint(-4, 5, shape, generator=generator)
    if dtype.is_floating_point:
        return (numbers + torch.rand(shape, generator=generator)).to(dtype)
    return numbers.abs().to(dtype) if dtype == torch.uint8 else numbers.to(dtype)


def same(got, expected, name):
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape), name
    assert torch.equal(got.cpu(), expected), f"{name}: {got.cpu()} != {expected}"


def near(got, expected, terms, name):
    """Compare sums of ``terms``, whose magnitudes bound the rounding errors of both back ends."""
    if not expected.dtype.is_floating_point:
        return same(got, expected, name)
    magnitude = sum(term.double().abs() for term in terms)
    error = (got.cpu().double() - expected.double()).abs()
    assert (error <= 2 * (SIZE - 1) * STEP[expected.dtype] * magnitude).all(), f"{name}: {error.max()}"


def all_terms(value):
    """Return the values of all ranks. Gloo gathers their bytes, because it does not have every type."""
    terms = [torch.empty_like(value) for _ in range(SIZE)]
    dist.all_gather([term.view(torch.uint8) for term in terms], value.view(torch.uint8), group=GLOO)
    return terms


def check_all_reduce():
    for dtype in REDUCED:
        for length in LENGTHS:
            value = values(dtype, length)
            terms = all_terms(value)
            for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.MIN):
                got, expected = value.npu(), value.clone()
                dist.all_reduce(got, op)
                dist.all_reduce(expected, op, group=GLOO)
                near(got, expected, terms, f"{dtype} {length} {op}")


def check_product():
    value = values(torch.float32, 33)
    got, expected = value.npu(), value.clone()
    dist.all_reduce(got, dist.ReduceOp.PRODUCT)
    dist.all_reduce(expected, dist.ReduceOp.PRODUCT, group=GLOO)
    torch.testing.assert_close(got.cpu(), expected, rtol=SIZE * 2**-23, atol=0)


def check_mean():
    value = values(torch.float32, 33)
    got, expected = value.npu(), value.clone()
    dist.all_reduce(got, dist.ReduceOp.AVG)
    dist.all_reduce(expected, group=GLOO)
    near(got, expected / SIZE, [term / SIZE for term in all_terms(value)], "mean")


def check_broadcast():
    for dtype in MOVED:
        for root in range(SIZE):
            value = values(dtype, 5, 7, seed=root)
            got, expected = value.npu(), value.clone()
            dist.broadcast(got, root)
            dist.broadcast(expected.view(torch.uint8), root, group=GLOO)
            same(got, expected, f"{dtype} from {root}")


def check_all_gather():
    for dtype in MOVED:
        value = values(dtype, 3, 5)
        got = [torch.empty_like(value.npu()) for _ in range(SIZE)]
        dist.all_gather(got, value.npu())
        for rank, expected in enumerate(all_terms(value)):
            same(got[rank], expected, f"{dtype} of {rank}")


def check_all_gather_into_tensor():
    for length in LENGTHS:
        value = values(torch.float32, length)
        got = torch.empty(SIZE * length).npu()
        dist.all_gather_into_tensor(got, value.npu())
        same(got, torch.cat(all_terms(value)), f"{length}")


def check_all_gather_of_a_part_of_the_output():
    expected = torch.cat(all_terms(values(torch.float32, 16)))
    got = torch.zeros(SIZE * 16).npu()
    part = got[RANK * 16 : (RANK + 1) * 16]
    part.copy_(values(torch.float32, 16))
    dist.all_gather_into_tensor(got, part)
    same(got, expected, "in place")


def check_reduce_scatter():
    for dtype in REDUCED:
        value = values(dtype, SIZE, 9)
        terms = all_terms(value)
        got = torch.empty(9, dtype=dtype).npu()
        dist.reduce_scatter_tensor(got, value.reshape(-1).npu())
        expected = value.clone()
        dist.all_reduce(expected, group=GLOO)
        near(got, expected[RANK], [term[RANK] for term in terms], f"{dtype}")
        got = torch.empty(9, dtype=dtype).npu()
        dist.reduce_scatter(got, list(value.npu()))
        near(got, expected[RANK], [term[RANK] for term in terms], f"{dtype} of a list")


def check_all_to_all():
    for dtype in MOVED:
        value = values(dtype, SIZE, 6)
        expected = torch.stack([term[RANK] for term in all_terms(value)])
        got = torch.empty_like(value.npu())
        dist.all_to_all_single(got, value.npu())
        same(got, expected, f"{dtype}")
    rows = [torch.empty(6, dtype=dtype).npu() for _ in range(SIZE)]
    dist.all_to_all(rows, list(value.npu()))
    same(torch.stack(rows), expected, "list")


def check_all_to_all_of_different_sizes():
    sent = [RANK + 1 + other for other in range(SIZE)]
    value = values(torch.float32, sum(sent))
    received = [other + 1 + RANK for other in range(SIZE)]
    got, expected = torch.empty(sum(received)).npu(), torch.empty(sum(received))
    dist.all_to_all_single(got, value.npu(), received, sent)
    dist.all_to_all_single(expected, value, received, sent, group=GLOO)
    same(got, expected, "sizes")


def check_reduce():
    value = values(torch.float32, 17)
    got, expected = value.npu(), value.clone()
    dist.reduce(got, SIZE - 1)
    dist.reduce(expected, SIZE - 1, group=GLOO)
    if RANK == SIZE - 1:
        near(got, expected, all_terms(value), "root")
    else:
        all_terms(value)
        same(got, value, "other rank")


def check_scatter_and_gather():
    rows = values(torch.float32, SIZE, 4)
    got, expected = torch.empty(4).npu(), torch.empty(4)
    dist.scatter(got, list(rows.npu()) if RANK == 0 else None, 0)
    dist.scatter(expected, list(rows) if RANK == 0 else None, 0, group=GLOO)
    same(got, expected, "scatter")
    gathered = [torch.empty(4).npu() for _ in range(SIZE)] if RANK == 0 else None
    dist.gather(rows[0].npu(), gathered, 0)
    for rank, term in enumerate(all_terms(rows[0])):
        if RANK == 0:
            same(gathered[rank], term, f"gather {rank}")


def check_send_and_receive():
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        value = values(dtype, 11)
        terms = all_terms(value)
        got = torch.empty_like(value.npu())
        before, after = (RANK - 1) % SIZE, (RANK + 1) % SIZE
        if RANK % 2 == 0:
            dist.send(value.npu(), after)
            dist.recv(got, before)
        else:
            dist.recv(got, before)
            dist.send(value.npu(), after)
        same(got, terms[before], f"{dtype}")


def check_batch_of_sends_and_receives():
    value = values(torch.float32, 11)
    terms = all_terms(value)
    before, after = (RANK - 1) % SIZE, (RANK + 1) % SIZE
    sent, got = value.npu(), torch.empty_like(value.npu())
    for work in dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, sent, after), dist.P2POp(dist.irecv, got, before)]
    ):
        work.wait()
    same(got, terms[before], "ring")


def check_asynchronous_work_is_ordered_by_wait():
    value = values(torch.float32, 1000)
    got, expected = value.npu(), value.clone()
    dist.all_reduce(expected, group=GLOO)
    work = dist.all_reduce(got * 1, async_op=True)
    summed = got * 1
    other = dist.all_reduce(summed, async_op=True)
    other.wait()
    near(summed + 0, expected, all_terms(value), "sum")
    work.wait()


def check_barrier():
    dist.barrier()
    torch.npu.synchronize()


def check_groups():
    members = list(range(0, SIZE, 2))
    group = dist.new_group(members, backend="hccl")
    if RANK in members:
        got = torch.full((3,), float(RANK)).npu()
        dist.all_reduce(got, group=group)
        same(got, torch.full((3,), float(sum(members))), "even ranks")


def check_coalesced():
    got = [torch.full((5,), float(RANK + i)).npu() for i in range(3)]
    dist.all_reduce_coalesced(got)
    for i, tensor in enumerate(got):
        same(tensor, torch.full((5,), float(sum(rank + i for rank in range(SIZE)))), f"{i}")


def check_objects():
    found = [None] * SIZE
    dist.all_gather_object(found, {"rank": RANK})
    assert found == [{"rank": rank} for rank in range(SIZE)]


def main():
    global GLOO
    torch.npu.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("hccl")
    GLOO = dist.new_group(backend="gloo")
    names = sys.argv[1:] or [name for name in globals() if name.startswith("check_")]
    for name in names:
        try:
            globals()[name]()
            result = "ok"
        except Exception:
            result = traceback.format_exc()
        results = [None] * SIZE
        dist.all_gather_object(results, result, group=GLOO)
        if RANK == 0:
            print(name, "ok" if set(results) == {"ok"} else next(r for r in results if r != "ok"), flush=True)
    dist.destroy_process_group()


main()
