"""Runs every check_* function of a module and prints what became of each as JSON."""

import json
import traceback


def run(checks):
    """Checks by name, as globals() has them."""
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
