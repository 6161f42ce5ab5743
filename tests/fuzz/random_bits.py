"""Compare the bits of the CPU library's results between machines and instruction sets."""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import random_calls
import random_judge
import random_norm_calls
import random_norm_ropes
import random_qkv
import random_square_sums
from random_options import parse, parser_of, show_failures

import npu_rope
from npu_rope import native
from npu_rope.executors import rms_norm as norm_executors
from npu_rope.executors import rotations
from npu_rope.rms_norm_calls import add_rms_norm_tensors, rms_norm_backward_tensors, rms_norm_tensors

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
ISAS = ("neon", "baseline", "avx2", "avx512", "avx512_bf16")
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


# ---- draws ---------------------------------------------------------------------------------------------


def rotated(op: str, seed: int, index: int) -> Call:
    """rope, rope_qk or rope_set_rows."""
    limits = random_calls.limits_of("cpu")
    call = random_calls.draw(seed, index, limits, (op,))
    data = random_judge.make_data(call, limits)
    others = [data.positions, *([] if data.rows is None else [data.rows])]
    floats = [*data.x, *([] if data.factors is None else [data.factors])]

    def run() -> Sequence[Array]:
        return random_judge.execute(replace(call, arrays="numpy"), data, "cpu")

    return Call(str(call), floats, others, run)


def normalized(op: str, seed: int, index: int) -> Call:
    """rms_norm, rms_norm_backward or add_rms_norm: the next draw of this operator."""
    kinds = {"rms_norm": "forward", "rms_norm_backward": "backward", "add_rms_norm": "add"}
    attempts = (random_norm_calls.draw(seed, 1000 * index + k) for k in range(1000))
    call = next(draw for draw in attempts if draw.kind == kinds[op])

    def run() -> Sequence[Array]:
        if call.grad is not None:
            tensors = rms_norm_backward_tensors(call.grad, call.x, call.scale)
        elif call.residual is not None:
            tensors = add_rms_norm_tensors(call.x, call.residual, call.scale, call.outs)
        else:
            tensors = rms_norm_tensors(call.x, call.scale, *call.outs)
        return norm_executors.run("cpu", tensors, call.attributes)

    floats = [a for a in (call.x, call.scale, call.grad, call.residual) if a is not None]
    return Call(call.text, floats, [], run)


def normalized_and_rotated(op: str, seed: int, index: int) -> Call:
    """rms_norm_rope, with and without a cache."""
    call = random_norm_ropes.draw(seed, index)
    read = [*call.t.xs.values(), *(a for a in call.t.other_inputs.values() if a is not None)]
    floats = [a for a in read if a.dtype.kind not in "iu"]
    others = [a for a in read if a.dtype.kind in "iu"]
    return Call(call.text, floats, others, lambda: rotations.run("cpu", call.t, call.attributes))


def qkv(op: str, seed: int, index: int) -> Call:
    """qkv_norm_rope_cache."""
    case = random_qkv.draw(seed, index)
    read = [*case.xs.values(), *(a for a in case.named.values() if isinstance(a, np.ndarray))]
    floats = [a for a in read if a.dtype.kind not in "iu"]
    others = [a for a in read if a.dtype.kind in "iu"]
    return Call(case.text, floats, others, lambda: list(random_qkv.results_of(case, "cpu")))


def square_sums(op: str, seed: int, index: int) -> Call:
    """qk_square_sums."""
    call = random_square_sums.draw(seed, index)
    return Call(
        call.text, [call.q, call.k], [], lambda: [npu_rope.qk_square_sums(call.q, call.k, backend="cpu")]
    )


def by_tables(op: str, seed: int, index: int) -> Call:
    """rotary_mul, rotary_mul_qk or rotary_embedding."""
    rng = random.Random(f"{op}/{seed}/{index}")
    values = np.random.default_rng(rng.getrandbits(63))
    dtype = rng.choice(random_norm_calls.DTYPES)
    table_dtype = rng.choice((dtype, "float32")) if op != "rotary_embedding" else dtype
    batch, tokens, size = (
        rng.choice((1, 2, 3)),
        rng.choice((1, 2, 5, 33)),
        rng.choice((2, 6, 32, 34, 66, 80, 128, 200)),
    )
    width = rng.choice((size, max(2, size // 4 * 2)))
    interleaved = rng.random() < 0.5
    per_pair = op == "rotary_embedding" or rng.random() < 0.5

    def numbers(shape: tuple[int, ...], kind: str) -> Array:
        return random_norm_calls.rounded(values.standard_normal(shape) * 10.0 ** rng.choice((-3, 0, 2)), kind)

    def heads() -> Array:
        made = numbers((batch, tokens, rng.choice((1, 2, 3, 9)), size + rng.choice((0, 0, 3))), dtype)
        return made[..., :size]

    cos, sin = (numbers((tokens, width // 2 if per_pair else width), table_dtype) for _ in range(2))
    xs = [heads() for _ in range(2 if op == "rotary_mul_qk" else 1)]
    text = f"{op} {dtype} {[list(x.shape) for x in xs]}, tables {table_dtype}{list(cos.shape)}"
    text += f", interleaved {interleaved}"
    if op == "rotary_embedding":
        x, ids = np.ascontiguousarray(xs[0].swapaxes(1, 2)), values.integers(0, tokens, (batch, tokens))
        options = {"interleaved": int(interleaved), "rotary_embedding_dim": width, "backend": "cpu"}
        return Call(
            text, [x, cos, sin], [ids], lambda: [npu_rope.rotary_embedding(x, cos, sin, ids, **options)]
        )
    window = {"interleaved": interleaved, "rotary_dim": width, "backend": "cpu"}
    if op == "rotary_mul_qk":
        return Call(text, [*xs, cos, sin], [], lambda: npu_rope.rotary_mul_qk(*xs, cos, sin, **window))
    return Call(text, [*xs, cos, sin], [], lambda: [npu_rope.rotary_mul(*xs, cos, sin, **window)])


OPS: dict[str, Callable[[str, int, int], Call]] = {
    **dict.fromkeys(("rope", "rope_qk", "rope_set_rows"), rotated),
    **dict.fromkeys(("rotary_mul", "rotary_mul_qk", "rotary_embedding"), by_tables),
    **dict.fromkeys(("rms_norm", "rms_norm_backward", "add_rms_norm"), normalized),
    "rms_norm_rope": normalized_and_rotated,
    "qkv_norm_rope_cache": qkv,
    "qk_square_sums": square_sums,
}


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
    call = OPS[op](op, seed, index)
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


def isas() -> list[str]:
    """Return the names of the instruction sets that this machine has, of those built."""
    library, present = native.load(), []
    for name in ISAS:
        try:
            library.force_isa(name)
        except ValueError:
            continue
        present.append(name)
    library.force_isa(None)
    return present


# ---- the program ---------------------------------------------------------------------------------------


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = parser_of("random_bits.py", HELP, EXAMPLES, "call", 2000)
    add = parser.add_argument
    add("--op", action="append", choices=OPS, help="this operator only; repeatable")
    add("--isa", choices=ISAS, help="the instruction set (the widest)")
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
        print(*isas())
        return 0
    library = native.load()
    if options.isa:
        library.force_isa(options.isa)
    here = f"{platform.machine()} {library.isa()}"
    ops = options.op or list(OPS)
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
