"""Outputs of stand-ins that use memory of another argument of the call."""

import numpy as np
import pytest
from aclnn import RefusedPhase

F32 = np.float32
TWO = F32(2)


def refusal(opapi, function, given):
    with pytest.raises(RefusedPhase) as refused:
        opapi.prepare(function, given)
    opapi.free_tensors()
    assert refused.value.status == 161002
    return str(refused.value)


def inputs_and_outputs():
    memory = np.arange(13, dtype=F32)
    yield "shifted", memory[:12].reshape(3, 4), memory[1:].reshape(3, 4)
    yield "transposed", memory[:9].reshape(3, 3), memory[:9].reshape(3, 3).T
    yield "repeated", np.broadcast_to(memory[:4], (3, 4)), memory[:12].reshape(3, 4)
    yield "reversed", memory[3:7], memory[:4]
    yield "repeated with gaps", np.broadcast_to(memory[1:8:2], (3, 4)), memory[:12].reshape(3, 4)


CASES = {name: (x, out) for name, x, out in inputs_and_outputs()}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("function", "others"), [("Muls", {"other": TWO}), ("Abs", {})])
def test_an_output_that_overlaps_an_input_is_refused(opapi, function, others, name):
    x, out = CASES[name]
    text = refusal(opapi, function, {"self": x, "out": out, **others})
    assert text.endswith(
        f"aclnn{function}: out must be the same view as self or share no memory with it "
        "but got memory that overlaps."
    )


@pytest.mark.parametrize("function", ["Muls", "Add"])
def test_an_output_may_be_an_input(opapi, function):
    x = np.arange(12, dtype=F32).reshape(3, 4)
    other = {"Muls": {"other": TWO}, "Add": {"other": x, "alpha": F32(1)}}[function]
    opapi.call(function, {"self": x, "out": x, **other})
    assert np.array_equal(x, 2 * np.arange(12).reshape(3, 4))


def test_an_output_may_be_an_input_in_another_shape(opapi):
    x = np.arange(12, dtype=F32)
    opapi.call("Muls", {"self": x.reshape(1, 3, 4), "other": TWO, "out": x.reshape(1, 3, 4)[:, :, :]})
    assert np.array_equal(x, 2 * np.arange(12))


def test_an_output_between_the_elements_of_an_input_is_taken(opapi):
    memory = np.arange(12, dtype=F32)
    opapi.call("Muls", {"self": memory[::2], "other": TWO, "out": memory[1::2]})
    assert np.array_equal(memory[1::2], 2 * memory[::2])


def test_an_output_beside_an_input_is_taken(opapi):
    for first, second in ((slice(0, 6), slice(6, 12)), (slice(6, 12), slice(0, 6))):
        memory = np.arange(12, dtype=F32)
        opapi.call("Muls", {"self": memory[first], "other": TWO, "out": memory[second]})
        assert np.array_equal(memory[second], 2 * memory[first])


def random_view(random, memory, shape):
    """A view with gaps, steps backwards, repeated or merged dimensions; no dimension reaches outside."""
    strides, reach = [], 0
    for size in shape:
        most = (len(memory) - 1 - reach) // max(size - 1, 1)
        step = int(random.integers(0, min(most, 24) + 1))
        if strides and random.random() < 0.5:  # continues another dimension
            at = int(random.integers(len(strides)))
            step = min(strides[at] * shape[at], most)
        strides.append(step)
        reach += (size - 1) * step
    first = int(random.integers(0, len(memory) - reach))
    places = first + sum(np.indices(shape)[i] * step for i, step in enumerate(strides))
    view = np.lib.stride_tricks.as_strided(memory[first:], shape, [4 * step for step in strides])
    flipped = tuple(slice(None, None, -1 if random.random() < 0.3 else 1) for _ in shape)
    return view[flipped], places[flipped]


def test_views_overlap_if_they_have_a_common_element(opapi_910b):
    random = np.random.default_rng(0)
    counts = {True: 0, False: 0}
    for _ in range(1500):
        memory = np.arange(120, dtype=F32)
        shape = tuple(int(n) for n in random.integers(1, 5, int(random.integers(1, 4))))
        (x, x_places), (out, out_places) = (random_view(random, memory, shape) for _ in range(2))
        overlaps = bool(set(x_places.ravel()) & set(out_places.ravel()))
        if overlaps and np.array_equal(x_places, out_places):
            continue  # the same view
        try:
            opapi_910b.prepare("Muls", {"self": x, "other": TWO, "out": out})
            is_refused = False
        except RefusedPhase:
            is_refused = True
        opapi_910b.free_tensors()
        assert is_refused == overlaps, (x_places.tolist(), out_places.tolist())
        counts[overlaps] += 1
    assert min(counts.values()) > 200, counts


def test_two_outputs_that_overlap_are_refused(opapi):
    if opapi.is_310p:
        pytest.skip("aclnnGroupNorm is one of Ascend910B")
    moments = np.zeros(3, F32)
    given = {
        "self": np.ones((1, 4, 2), F32), "gamma": None, "beta": None, "n": 1, "c": 4, "hx_w": 2, "group": 2,
        "eps": 1e-5, "out": np.zeros((1, 4, 2), F32),
        "mean_out": moments[:2].reshape(1, 2), "rstd_out": moments[1:].reshape(1, 2),
    }  # fmt: skip
    assert refusal(opapi, "GroupNorm", given).endswith(
        "aclnnGroupNorm: mean_out must share no memory with the output rstd_out but got memory that overlaps."
    )
