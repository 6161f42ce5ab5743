"""The process in which a back end runs cases: it reads cases and writes their results.

python -m npu_rope.testing.backend_worker BACKEND
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
            case = receive(sys.stdin.buffer)
        except EOFError:
            return
        send(answers, judge(case, [sys.argv[1]], None).judgements)


if __name__ == "__main__":
    main()
