"""Run every check_* function of a module and print the results as JSON; also helpers of the checks."""

import json
import traceback

import torch


def run(checks):
    """Run the checks in a dictionary of names, such as globals()."""
    found = {}
    for name, check in list(checks.items()):
        if not name.startswith("check_"):
            continue
        try:
            check()
            found[name] = "ok"
        except Exception:
            found[name] = traceback.format_exc()
    print(json.dumps(found))


def refusal(work):
    """The text of the RuntimeError that work() must raise."""
    try:
        work()
    except RuntimeError as error:
        return str(error)
    raise AssertionError("it was not refused")


def values(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def near(got, expected, units=2):
    """Check that the error is at most `units` roundings of the dtype at the largest element."""
    assert got.device.type == "npu", got.device
    assert got.dtype == expected.dtype
    unit = max(torch.finfo(got.dtype).eps, 2.0**-19) * expected.abs().max().float()
    assert (got.cpu().float() - expected.float()).abs().max() <= units * unit
