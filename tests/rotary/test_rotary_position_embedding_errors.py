"""Bad calls of rotary_position_embedding raise the same error on every back end and in torch.ops. No
argument changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from rope_cases import to_torch
from together import together

from npu_rope import RopeParams, rotary_position_embedding

B, S, N, D = 2, 3, 4, 8


@dataclass(frozen=True)
class BadPmx:
    """A correct call in which the arguments ``changed`` are replaced, and the error that it must raise."""

    name: str
    text: str
    changed: dict[str, Any]
    kind: type[Exception] = ValueError

    def __str__(self):
        return self.name


def bad(name, text, kind=ValueError, **changed):
    return BadPmx(name, text, changed, kind)


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


TYPES = "must be float32, float16, bfloat16, float64 or int8 but got"
SHAPE = "must have shape [B,S,N,D] but got"
PACKED = {"query": ones(7, N, D), "key": ones(7, 1, D), "start_pos": [0, 5], "seqstarts": [0, 3, 7]}
INT32_RANGE = "must be in the int32 range but got"
ONE_INTEGER = "start_pos must be an integer or an integer tensor of one element but got"
WIDTH = "rotary_dim must be 0 or an even number up to the head size 8 but got"
ONE_START_EACH = "start_pos must be [B] = [2] integers where seqstarts is given but got"
SCALED = {"scaling_type": "dynamic", "max_position_embeddings": 4}

BAD = [
    bad("query-int32", f"query {TYPES} int32.", TypeError, query=ones(B, S, N, D, dtype=np.int32)),
    bad("key-bool", f"key {TYPES} bool.", TypeError, key=ones(B, S, 1, D, dtype=bool)),
    bad("query-3d", f"query {SHAPE} [3, 4, 8].", query=ones(S, N, D)),
    bad("key-3d", f"key {SHAPE} [3, 1, 8].", key=ones(S, 1, D)),
    bad(
        "key-dtype",
        "key must have query's dtype float32 but got float16.",
        TypeError,
        key=ones(B, S, 1, D, dtype=np.float16),
    ),
    bad(
        "key-tokens",
        "key must have query's shape [2, 3, 4, 8] except for the heads but got [2, 4, 1, 8].",
        key=ones(B, 4, 1, D),
    ),
    bad(
        "key-head-size",
        "key must have query's shape [2, 3, 4, 8] except for the heads but got [2, 3, 1, 6].",
        key=ones(B, S, 1, 6),
    ),
    bad(
        "packed-4d",
        "query must have shape [T,N,D] where seqstarts is given but got [2, 3, 4, 8].",
        seqstarts=[0, 3, 6],
    ),
    bad("rotary-odd", f"{WIDTH} 3.", rotary_dim=3),
    bad("rotary-wide", f"{WIDTH} 10.", rotary_dim=10),
    bad("rotary-negative", f"{WIDTH} -2.", rotary_dim=-2),
    bad(
        "head-odd",
        "the head size must be even and positive where rotary_dim is 0 but got 7.",
        query=ones(B, S, N, 7),
        key=ones(B, S, 1, 7),
    ),
    bad("theta-zero", "theta must be positive and finite but got 0.", theta=0.0),
    bad("theta-inf", "theta must be positive and finite but got inf.", theta=float("inf")),
    bad("theta-nan", "theta must be positive and finite but got nan.", theta=float("nan")),
    bad(
        "scaling_factor-negative",
        "scaling_factor must be positive and finite but got -1.",
        scaling_factor=-1.0,
    ),
    bad(
        "max_positions-zero", "max_position_embeddings must be positive but got 0.", max_position_embeddings=0
    ),
    bad(
        "scaling_type-unknown",
        "scaling_type must be '', 'linear' or 'dynamic' but got 'yarn'.",
        scaling_type="yarn",
    ),
    bad(
        "dynamic-two",
        "scaling_type must be '' or 'linear' where 2 dimensions rotate but got 'dynamic'.",
        scaling_type="dynamic",
        rotary_dim=2,
    ),
    bad(
        "theta-scaled",
        "theta must be positive and finite after its scaling but got 8.54988e+38.",
        start_pos=9,
        theta=1e38,
        scaling_factor=2.0,
        **SCALED | {"rotary_dim": 8},
    ),
    bad("start-vector", f"{ONE_INTEGER} shape [2].", start_pos=[1, 2]),
    bad(
        "start-float", "start_pos must be int32 or int64 but got float64.", TypeError, start_pos=np.array(1.0)
    ),
    bad("start-far", f"start_pos + s - pad_len {INT32_RANGE} 2147483648.", start_pos=2**31 - 2),
    bad(
        "pad-far", f"start_pos + s - pad_len {INT32_RANGE} -2147483649.", start_pos=0, pad_len=[0, 2**31 + 1]
    ),
    bad("pad-shape", "pad_len must be [B] = [2] integers but got shape [3].", pad_len=[0, 1, 2]),
    bad("pad-2d", "pad_len must be [B] = [2] integers but got shape [2, 1].", pad_len=[[0], [1]]),
    bad("pad-float", "pad_len must be int32 or int64 but got float64.", TypeError, pad_len=[0.0, 1.0]),
    bad(
        "pad-with-seqstarts",
        "pad_len must be None where seqstarts is given but got both.",
        pad_len=[0, 0],
        **PACKED,
    ),
    bad("packed-start-scalar", f"{ONE_START_EACH} shape [].", **PACKED | {"start_pos": np.array(3)}),
    bad("packed-start-short", f"{ONE_START_EACH} shape [1].", **PACKED | {"start_pos": [3]}),
    bad(
        "seqstarts-empty", "seqstarts must be [B+1] integers but got shape [0].", **PACKED | {"seqstarts": []}
    ),
    bad(
        "seqstarts-float",
        "seqstarts must be int32 or int64 but got float32.",
        TypeError,
        **PACKED | {"seqstarts": np.array([0, 3, 7], np.float32)},
    ),
    bad("seqstarts-begin", "seqstarts must begin with 0 but got 1.", **PACKED | {"seqstarts": [1, 3, 7]}),
    bad(
        "seqstarts-decrease",
        "seqstarts must not decrease but got 7 after 9.",
        **PACKED | {"seqstarts": [0, 9, 7]},
    ),
    bad(
        "seqstarts-end",
        "seqstarts must end with the number of tokens (7) but got 6.",
        **PACKED | {"seqstarts": [0, 3, 6]},
    ),
    bad("packed-far", f"start_pos + s {INT32_RANGE} 2147483649.", **PACKED | {"start_pos": [0, 2**31 - 2]}),
]

# Arguments of types that the schema of torch's operator does not accept.
PYTHON_ONLY = [
    bad(
        "start-beyond",
        "start_pos must be in the int64 range but got 99999999999999999997.",
        start_pos=99999999999999999997,
    ),
    bad("query-list", "query must be a torch tensor or a NumPy array but got list.", TypeError, query=[1.0]),
    bad("key-none", "key must be a torch tensor or a NumPy array but got NoneType.", TypeError, key=None),
    bad("rotary-float", "rotary_dim must be an integer but got 4.0.", TypeError, rotary_dim=4.0),
    bad("rotary-bool", "rotary_dim must be an integer but got True.", TypeError, rotary_dim=True),
    bad("theta-text", "theta must be a number but got '1e4'.", TypeError, theta="1e4"),
    bad("theta-list", "theta must be a number but got [10000.0].", TypeError, theta=[1e4]),
    bad("bypass-text", "bypass_key must be True or False but got 'no'.", TypeError, bypass_key="no"),
    bad("start-text", f"{ONE_INTEGER} str.", TypeError, start_pos="0"),
    bad("start-none", f"{ONE_INTEGER} NoneType.", TypeError, start_pos=None),
    bad("start-bool", f"{ONE_INTEGER} bool.", TypeError, start_pos=True),
    bad("start-number", f"{ONE_INTEGER} float.", TypeError, start_pos=1.0),
    bad("pad-number", "pad_len must be [B] = [2] integers but got int.", TypeError, pad_len=3),
    bad("pad-ragged", "pad_len must be [B] = [2] integers but got list.", TypeError, pad_len=[[0], [1, 2]]),
    bad("pad-none-inside", "pad_len must be [B] = [2] integers but got list.", TypeError, pad_len=[0, None]),
    bad(
        "scaling_type-none", "scaling_type must be '', 'linear' or 'dynamic' but got None.", scaling_type=None
    ),
]


def correct():
    return {"query": ones(B, S, N, D), "key": ones(B, S, 1, D), "start_pos": 3}


def copied(value):
    return value.copy() if isinstance(value, np.ndarray) else value


@together("case", BAD + PYTHON_ONLY)
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_a_bad_call_raises_the_same_error_on_every_back_end(case, framework, backend):
    arguments = {name: copied(v) for name, v in {**correct(), **case.changed}.items()}
    before = {name: v.tobytes() for name, v in arguments.items() if isinstance(v, np.ndarray)}
    passed = arguments
    if framework == "torch":
        passed = {name: to_torch(v) if isinstance(v, np.ndarray) else v for name, v in arguments.items()}
    with pytest.raises(case.kind) as caught:
        rotary_position_embedding(**passed, backend=backend)
    assert str(caught.value) == f"[rotary_position_embedding] {case.text}"
    assert before == {name: v.tobytes() for name, v in arguments.items() if isinstance(v, np.ndarray)}


@pytest.mark.parametrize("case", BAD, ids=str)
def test_the_torch_operator_raises_the_same_error(case):
    arguments = {name: copied(v) for name, v in {**correct(), **case.changed}.items()}
    start = arguments["start_pos"]
    if isinstance(start, int):
        arguments["start_pos"] = np.array(start)
    tensors = ("query", "key", "start_pos", "pad_len", "seqstarts")
    passed = {n: v if v is None or n not in tensors else as_tensor(v) for n, v in arguments.items()}
    with pytest.raises(case.kind) as caught:
        torch.ops.npu_rope.rotary_position_embedding(**passed)
    assert str(caught.value) == f"[rotary_position_embedding] {case.text}"


def as_tensor(value):
    if isinstance(value, list):
        value = np.array(value) if value else np.zeros(0, np.int64)
    return to_torch(value)


def test_query_and_key_of_different_frameworks_are_refused(backend):
    query, key = ones(B, S, N, D), torch.ones(B, S, 1, D)
    message = "key must be a NumPy array like query but got Tensor."
    with pytest.raises(TypeError, match=rf"^\[rotary_position_embedding\] {message}$"):
        rotary_position_embedding(query, key, 0, backend=backend)
    message = "key must be a torch tensor like query but got ndarray."
    with pytest.raises(TypeError, match=rf"^\[rotary_position_embedding\] {message}$"):
        rotary_position_embedding(key, query, 0, backend=backend)


def test_integers_may_be_of_the_other_framework(backend):
    query = ones(B, S, N, D)
    expected = rotary_position_embedding(query, query, 3, [0, 2], backend=backend)[0]
    got = rotary_position_embedding(query, query, torch.tensor([3]), torch.tensor([0, 2]), backend=backend)[0]
    assert np.array_equal(got, expected)
    x = torch.ones(B, S, N, D)
    got = rotary_position_embedding(x, x, np.int64(3), np.array([0, 2], np.int32), backend=backend)[0]
    assert np.array_equal(got.numpy(), expected)


def test_an_unknown_backend_is_named():
    query = ones(B, S, N, D)
    with pytest.raises(
        ValueError, match=r"^\[rotary_position_embedding\] backend must be .* but got 'cuda'\.$"
    ):
        rotary_position_embedding(query, query, 0, backend="cuda")


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"rotary_dim": 3}, f"{WIDTH} 3."),
        ({"theta": -1.0}, "theta must be positive and finite but got -1."),
        ({"scaling_type": "ntk"}, "scaling_type must be '', 'linear' or 'dynamic' but got 'ntk'."),
    ],
)
def test_from_pmx_raises_the_same_error(attributes, text):
    with pytest.raises(ValueError, match="must be") as caught:
        RopeParams.from_pmx(8, **attributes)
    assert str(caught.value) == f"[rotary_position_embedding] {text}"


@pytest.mark.parametrize(
    ("end", "kind", "text"),
    [
        ("5", TypeError, "be an integer but got '5'."),
        (5000.7, TypeError, "be an integer but got 5000.7."),
        (float("nan"), TypeError, "be an integer but got nan."),
        (True, TypeError, "be an integer but got True."),
        (-5, ValueError, "be >= 0 but got -5."),
        (2**63, ValueError, "be in the int64 range but got 9223372036854775808."),
    ],
)
@pytest.mark.parametrize("scaling_type", ["", "dynamic"])
def test_from_pmx_checks_the_end(scaling_type, end, kind, text):
    with pytest.raises(kind) as caught:
        RopeParams.from_pmx(8, scaling_type=scaling_type, end=end)
    assert str(caught.value) == f"[rotary_position_embedding] end must {text}"
