"""Compare the bits of the CPU library's results between machines and instruction sets."""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import random_calls
import random_judge
import random_norm_calls
import random_norm_ropes
import random_operators
import random_pmx
import random_qkv
import random_tables
from instruction_sets import NAMES, SUPPORTED
from random_operators import OPERATORS
from random_options import parse, parser_of, show_failures

import npu_rope
from npu_rope import native
from npu_rope.executors import rms_norm as norm_executors
from npu_rope.executors import rotations

HELP = """\
Draw random calls of every operator, run them with the C library, and write hashes of their results, or
compare the results with the hashes that another machine or another instruction set wrote.

A hash covers the bits of all results. NaNs count as equal to each other: the sign of the NaN that an invalid
operation returns differs between x86 (negative) and aarch64 (positive). Another hash covers the inputs, so a
machine whose NumPy draws other numbers is noticed.
"""
EXAMPLES = """\
examples:

  random_bits.py --write here.json                 2,000 calls of each operator
  random_bits.py --compare here.json --isa avx2    the same calls on another instruction set
  random_bits.py --compare here.json --op rope --only 29    repeat and describe one call
  random_bits.py --isas                            the instruction sets of this machine

exit status: 0 all bits are equal; 1 some are not; 2 bad usage.
"""
Array = npt.NDArray[Any]


@dataclass
class Call:
    """A call that is ready to run.

    Attributes:
        text: the call in words.
        floats: the arrays of numbers that it reads.
        others: the other arrays that it reads.
        run: runs it and returns the results.
    """

    text: str
    floats: list[Array]
    others: list[Array]
    run: Callable[[], Sequence[Array]]


# The unsigned type of a float type's bits, and the number of its lower bits that `exactly` replaces.
LOWER_BITS = {"float64": (np.uint64, 30), "float32": (np.uint32, 8)}


def exactly(array: Array, rng: np.random.Generator) -> None:
    """Replace the lower bits of each float64 and float32 by random bits. NumPy's functions may differ in the
    last bit between machines; in the narrower types, rounding removes this difference."""
    if array.dtype.name not in LOWER_BITS or not array.flags.writeable:
        return
    bits_type, count = LOWER_BITS[array.dtype.name]
    mask = bits_type(2**count - 1)
    bits = np.array(array).view(bits_type)
    low = rng.integers(0, 2**count, array.shape, bits_type)
    special = ~np.isfinite(array) | (array == 0)
    array[...] = np.where(special, array, ((bits & ~mask) | low).view(array.dtype))


# ---- calls ---------------------------------------------------------------------------------------------


def call_of(op: str, seed: int, index: int) -> Call:
    """Return a call of the draws (random_operators.py), on arrays."""
    drawn, _ = random_operators.draw(op, seed, index, "cpu")
    text = random_operators.text(drawn)
    if isinstance(drawn, random_calls.RandomCall):
        call = replace(drawn, arrays="numpy")
        data = random_judge.make_data(call, random_calls.limits_of("cpu"))
        return _call(
            text,
            [*data.x, data.factors, data.positions, data.rows],
            lambda: random_judge.execute(call, data, "cpu"),
        )
    if isinstance(drawn, random_tables.TableCall):
        on_arrays = replace(drawn, arrays="numpy")
        return _call(text, drawn.tensors.values(), lambda: on_arrays.run("cpu"))
    if isinstance(drawn, random_pmx.PmxCall):
        return _call(text, [drawn.query, drawn.key], lambda: drawn.case.call(drawn.query, drawn.key, "cpu"))
    if isinstance(drawn, random_norm_calls.NormDraw):
        read = [drawn.x, drawn.scale, drawn.grad, drawn.residual]
        return _call(text, read, lambda: norm_executors.run("cpu", drawn.tensors(), drawn.attributes))
    if isinstance(drawn, random_norm_ropes.NormRopeDraw):
        read = [*drawn.t.xs.values(), *drawn.t.other_inputs.values()]
        return _call(text, read, lambda: rotations.run("cpu", drawn.t, drawn.attributes))
    if isinstance(drawn, random_qkv.QkvCase):
        read = [*drawn.xs.values(), *drawn.named.values()]
        return _call(text, read, lambda: list(random_qkv.results_of(drawn, "cpu")))
    return _call(text, [drawn.q, drawn.k], lambda: [npu_rope.qk_square_sums(drawn.q, drawn.k, backend="cpu")])


def _call(text: str, read: Iterable[Any], run: Callable[[], Sequence[Array]]) -> Call:
    """Return a call that reads these arrays; other values are ignored."""
    arrays = [a for a in read if isinstance(a, np.ndarray)]
    floats = [a for a in arrays if a.dtype.kind not in "iu"]
    return Call(text, floats, [a for a in arrays if a.dtype.kind in "iu"], run)


# ---- hashes --------------------------------------------------------------------------------------------


def hash_of(arrays: Sequence[Array], text: str = "") -> str:
    """Return a hash of types, shapes and bits. All NaNs count as the same number."""
    digest = hashlib.blake2b(text.encode(), digest_size=8)
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape}".encode())
        dense = np.array(array, order="C")
        if dense.dtype.kind not in "iu":
            dense[np.isnan(dense)] = np.nan
        digest.update(dense.tobytes())
    return digest.hexdigest()


def run(op: str, seed: int, index: int) -> tuple[Call, str, Sequence[Array]]:
    """Draw and run a call; return it, the hash of its inputs and its results."""
    call = call_of(op, seed, index)
    rng = np.random.default_rng((seed, index))
    for array in call.floats:
        exactly(array, rng)
    inputs = hash_of([*call.floats, *call.others], call.text)
    return call, inputs, call.run()


def hashes_of(op: str, seed: int, count: int) -> list[tuple[str, str]]:
    """Return the hashes of the inputs and results of an operator's calls."""
    found = []
    for index in range(count):
        _, inputs, results = run(op, seed, index)
        found.append((inputs, hash_of(results)))
    return found


# ---- the program ---------------------------------------------------------------------------------------


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = parser_of("random_bits.py", HELP, EXAMPLES, "call", 2000)
    add = parser.add_argument
    add("--op", action="append", choices=OPERATORS, help="this operator only; repeatable")
    add("--isa", choices=NAMES, help="the instruction set (the widest)")
    add("--write", type=Path, metavar="FILE", help="write the hashes")
    add("--compare", type=Path, metavar="FILE", help="compare with this file's hashes, of its seed")
    add("--isas", action="store_true", help="print the instruction sets of this machine")
    options = parse(parser, given, smallest_count=1)
    if not options.isas and (options.write is None) == (options.compare is None):
        parser.error("one of --write, --compare and --isas must be given")
    return options


def main(given: Sequence[str] | None = None) -> int:
    options = arguments(given)
    if options.isas:
        print(*SUPPORTED)
        return 0
    library = native.load()
    if options.isa:
        library.force_isa(options.isa)
    here = f"{platform.machine()} {library.isa()}"
    ops = options.op or list(OPERATORS)
    if options.write:
        found = {op: hashes_of(op, options.seed, options.count) for op in ops}
        content = {"machine": here, "seed": options.seed, "calls": found}
        options.write.write_text(json.dumps(content))
        print(f"{here}: {options.count} calls of each of {len(ops)} operators, in {options.write}")
        return 0
    there = json.loads(options.compare.read_text())
    different: list[str] = []
    by_op = Counter[str]()
    other_inputs = compared = 0
    for op in ops:
        expected = there["calls"][op]
        count = min(options.count, len(expected))
        indices = range(count) if options.only is None else [options.only]
        for index in indices:
            call, inputs, results = run(op, there["seed"], index)
            if options.only is not None:
                print(f"{call.text}\n{results}")
            if inputs != expected[index][0]:
                other_inputs += 1
                different.append(f"--op {op} --only {index}: the inputs differ: {call.text}")
                continue
            compared += 1
            if hash_of(results) != expected[index][1]:
                different.append(f"--op {op} --only {index}: {call.text}")
                by_op[op] += 1
    show_failures(different, print)
    if by_op:
        print("other bits: " + ", ".join(f"{count} of {op}" for op, count in by_op.items()))
    print(
        f"{'FAIL' if different else 'OK'}: {here} and {there['machine']}: {compared} calls of {len(ops)}"
        f" operators, {len(different) - other_inputs} with other bits, {other_inputs} with other inputs"
    )
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
