"""Run the check_* functions of a module and print the results as JSON. It also has helpers of checks."""

import json
import traceback

import torch


def run(checks):
    """Run the functions whose names begin with check_ in a dictionary such as globals()."""
    results = {}
    for name, check in list(checks.items()):
        if not name.startswith("check_"):
            continue
        try:
            check()
            results[name] = "ok"
        except Exception:
            results[name] = traceback.format_exc()
    print(json.dumps(results))


def refusal(work):
    """The text of the RuntimeError that work() must raise."""
    try:
        work()
    except RuntimeError as error:
        return str(error)
    raise AssertionError("no RuntimeError was raised")


def values(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def near(got, expected, units=2):
    """Check that errors are at most `units` times max(eps, 2**-19) times the largest magnitude."""
    assert got.device.type == "npu", got.device
    assert got.dtype == expected.dtype
    unit = max(torch.finfo(got.dtype).eps, 2.0**-19) * expected.abs().max().float()
    assert (got.cpu().float() - expected.float()).abs().max() <= units * unit
