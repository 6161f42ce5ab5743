"""rope, rope_qk and rope_set_rows through aclnn's two phases, on the simulated operator package. The results
equal those of the back end sim bit for bit, and only the outputs are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import aclnn_calls
import numpy as np
import pytest
import random_calls
import random_judge
from aclnn_calls import CHIPS
from choices import Choices


def random_call(seed: int, index: int, backend: str) -> random_calls.RandomCall:
    """Return a random call whose attributes are exact in CANN's float32."""
    op = random_calls.OPERATORS[index % len(random_calls.OPERATORS)]
    call = random_calls.draw(Choices(f"{seed}/{index}"), op, random_calls.limits_of(backend))
    return replace(call, params=aclnn_calls.in_float32(call.params))


def is_empty(call: random_calls.RandomCall) -> bool:
    return call.tokens * sum(call.heads) == 0


def with_unit_stride(array: Any) -> Any:
    """Return what a binding passes: the array, or a copy if its last dimension has another stride than 1."""
    has_unit_stride = array.shape[-1] <= 1 or array.strides[-1] == array.itemsize
    return array if has_unit_stride else np.ascontiguousarray(array)


def through_aclnn(device: Any, call: random_calls.RandomCall, data: random_judge.Data) -> Sequence[Any]:
    """Run the call like random_judge.execute, but through aclnn."""
    x = [with_unit_stride(a) for a in data.x]
    outs = (
        x
        if call.out == "in place"
        else [
            np.empty_like(a, order="C") if o is None else with_unit_stride(o)
            for a, o in zip(x, data.out, strict=True)
        ]
    )
    tensors: dict[str, Any] = {"positions": data.positions, "freq_factors": data.factors}
    if call.op == "rope_qk":
        tensors |= {"q": x[0], "k": x[1], "q_out": outs[0], "k_out": outs[1]}
    elif call.op == "rope_set_rows":
        assert data.rows is not None
        tensors |= {"x": x[0], "rows": data.rows.astype(np.int64), "cache": outs[0]}
    else:
        tensors |= {"x": x[0], "out": outs[0]}
    aclnn_calls.call(device, call.op, tensors, call.params, forward=call.forward)
    results = []
    for written, destination in zip(outs, data.x if call.out == "in place" else data.out, strict=True):
        if destination is not None and destination is not written:
            destination[...] = written
        results.append(written if destination is None else destination)
    return results


def memory_of(data: random_judge.Data, results: Sequence[Any]) -> list[bytes]:
    """Return the bytes of the results and of the buffers that hold the tensors."""
    return [np.ascontiguousarray(r).tobytes() for r in results] + [
        b.flat.tobytes() for b in data.buffers.values()
    ]


@pytest.mark.long
@pytest.mark.parametrize("backend", CHIPS)
def test_random_calls_equal_the_simulators_bit_for_bit(device, backend):
    device.set_soc(CHIPS[backend])
    limits, calls, views = random_calls.limits_of(backend), 0, 0
    for index in range(120):
        call = random_call(11, index, backend)
        if is_empty(call):
            continue
        aclnn_data, sim_data = random_judge.make_data(call, limits), random_judge.make_data(call, limits)
        expected = memory_of(sim_data, random_judge.execute(call, sim_data, backend))
        launches = device.launches()
        got = memory_of(aclnn_data, through_aclnn(device, call, aclnn_data))
        assert device.launches() == launches + 1
        assert got == expected, str(call)
        calls += 1
        views += any(layout != random_calls.PLAIN for layout in call.layouts)
    assert calls > 80
    assert views > 10


@pytest.mark.parametrize("backend", CHIPS)
def test_random_calls_meet_the_bound_of_the_reference(device, backend):
    device.set_soc(CHIPS[backend])
    for index in range(20):
        call = random_call(12, index, backend)
        if is_empty(call):
            continue
        verdict = random_judge.judge(call, backend, lambda c, d, _: through_aclnn(device, c, d))
        assert not verdict.problem, f"{call}: {verdict.problem}"
