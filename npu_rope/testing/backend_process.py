"""A back end in a process of its own. If the process ends early, only one case fails."""

from __future__ import annotations

from types import TracebackType

from npu_rope.testing.child import Child, ChildEnded, module_arguments
from npu_rope.testing.outcomes import FAIL, AnyCase, CaseResult, Judgement
from npu_rope.testing.ports import PEER

# Executors with libraries that end their process after an error. All of them use torch.
ISOLATED = ("npu", PEER)


class BackendProcess:
    """A back end in a child process. After its end the next case starts another process.

    Attributes:
        cases: the cases that ran in the current child, in order.
    """

    # The child's command; a test replaces it.
    worker: tuple[str, ...] = ()

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.cases: list[AnyCase] = []
        self._child: Child | None = None

    def __enter__(self) -> BackendProcess:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.close()
        self._child, self.cases = None, []

    def judge(self, case: AnyCase) -> CaseResult:
        """Run and judge a case."""
        if self._child is None:
            module = "npu_rope.testing.backend_worker"
            worker = self.worker or module_arguments(module, has_torch=self.backend in ISOLATED)
            self._child = Child([*worker, self.backend])
        self.cases.append(case)
        try:
            return CaseResult(case, self._child.call(case))
        except ChildEnded as ended:
            self._child, self.cases = None, []
            message = f"{self.backend} ended with {ended}"
            return CaseResult(case, [Judgement(self.backend, FAIL, message=message, output=ended.output)])
