"""Run the check_* functions of a script, each in a forked process, and print the results as JSON."""

import json
import os
import sys
import traceback


def result_in_child(check):
    """Run the check in a forked process and return "ok" or its traceback."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            check()
            text = "ok"
        except BaseException:
            text = traceback.format_exc()
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        text = file.read()
    os.wait()
    return text


def run_checks(names):
    """Run the checks among the names of a script, and print the result of each as JSON."""
    checks = {name: value for name, value in list(names.items()) if name.startswith("check_")}
    print(json.dumps({name: result_in_child(checks[name]) for name in sys.argv[2:] or checks}))
