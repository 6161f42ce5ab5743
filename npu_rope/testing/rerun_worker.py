"""The process in which a back end runs cases again: it reads lists of cases and writes the last one's result.

python -m npu_rope.testing.rerun_worker
"""

from __future__ import annotations

import sys

from npu_rope.testing.child import answer_pipe, receive, send
from npu_rope.testing.suites import judge


def main() -> None:
    """Answer requests until the input ends."""
    answers = answer_pipe()
    while True:
        try:
            cases, backends = receive(sys.stdin.buffer)
        except EOFError:
            return
        for case in cases:
            result = judge(case, backends, None)
        send(answers, result)


if __name__ == "__main__":
    main()
