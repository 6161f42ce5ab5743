"""Run many cases as one test, because pytest spends more time on a test than a short case takes."""

from __future__ import annotations

import functools
import inspect
import os

import guarded_memory
import pytest

SEPARATE_TESTS = os.environ.get("NPU_ROPE_TEST_CASES") == "apart"
# Back ends that run every third row of a test with share=True, and the first of these rows: their chip runs
# the tilings and kernels of back end sim, which runs all rows.
SHARES = {"sim:ascend950": 1}
if os.environ.get("NPU_ROPE_TEST_BACKEND"):  # a back end that the user names runs all rows
    SHARES = {}


def rows_of(backend, rows, share):
    """Return the rows that a back end runs."""
    return rows[SHARES[backend] :: 3] if share and backend in SHARES else rows


class CasesFailed(AssertionError):
    """The failed cases by name, each with the first line of its error."""

    def __init__(self, failed, count):
        lines = [f"{name}: {type(e).__name__}: {str(e).partition(chr(10))[0]}" for name, e in failed.items()]
        super().__init__("\n".join([f"{len(failed)} of {count} cases failed; the first is above", *lines]))
        self.failed = failed


def together(names, rows, ids=str, *, share=False):
    """Parametrize a test like pytest.mark.parametrize, but run all rows as one test, which reports each row
    that fails. If the test takes ``guarded``, every row gets its own guarded memory. With
    NPU_ROPE_TEST_CASES=apart, every row is a separate test.

    ``share``: the back ends of SHARES run a third of the rows; for rows that are valid calls on every chip.
    """
    rows = list(rows)
    if SEPARATE_TESTS:
        return pytest.mark.parametrize(names, rows, ids=ids)
    arguments = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    row_names = [ids(row) for row in rows] if callable(ids) else list(ids)
    rows = [dict(zip(arguments, row if len(arguments) > 1 else [row], strict=True)) for row in rows]
    named_rows = list(zip(row_names, rows, strict=True))
    assert not share or len(rows) > max(SHARES.values(), default=0), "a back end would run no row"

    def decorate(test):
        signature = inspect.signature(test)
        uses_guarded_memory = "guarded" in signature.parameters
        fixture_parameters = [
            p for name, p in signature.parameters.items() if name not in {*arguments, "guarded"}
        ]

        @functools.wraps(test)
        def run_rows(**fixtures):
            failed = {}
            for name, row in rows_of(fixtures.get("backend"), named_rows, share):
                try:
                    run_row(row, fixtures)
                except CasesFailed as error:
                    failed |= {f"{name}-{other}": e for other, e in error.failed.items()}
                # pytest's failures and skips are not subclasses of Exception. A skipped row counts as failed.
                except (Exception, pytest.fail.Exception, pytest.skip.Exception) as error:
                    failed[name] = error
            if failed:
                count = run_rows.count_cases(fixtures.get("backend"))
                raise CasesFailed(failed, count) from next(iter(failed.values()))

        def run_row(row, fixtures):
            if not uses_guarded_memory:
                test(**row, **fixtures)
                return
            guarded = guarded_memory.GuardedMemory()
            test(**row, **fixtures, guarded=guarded)
            guarded.check()

        run_rows.__signature__ = signature.replace(parameters=fixture_parameters)
        count_inner = getattr(test, "count_cases", lambda backend: 1)
        run_rows.count_cases = lambda backend: len(rows_of(backend, rows, share)) * count_inner(backend)
        return run_rows

    return decorate
