"""Read the header of a GGUF file, its keys and tensors, with bounded memory and time for any content.

Source: ggml's ``docs/gguf.md``; the gguf package has the numbers of the types. Its reader is not used: it
makes several arrays of each value, item and tensor, and accepts every length, so that a file of a megabyte
can take half a gigabyte, or minutes. This reader skips all values, and reads one on request.
"""

from __future__ import annotations

import math
import struct
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

VERSIONS = (2, 3)
# Models have about a hundred keys, at most a few thousand tensors, and up to a million tokens and merges.
MOST_KEYS = MOST_TENSORS = 1 << 16
MOST_STRINGS = 1 << 22  # in all lists together
MOST_DIMS = 4
LONGEST_NAME = 128  # bytes; entries with a longer name are skipped
# Limits of the values that are read on request.
LONGEST_STRING = 1 << 16  # bytes
LONGEST_LIST = 1 << 12
MOST_ELEMENTS = 1 << 16

BLOCK_BYTES = 1 << 18


class TensorInfo(NamedTuple):
    """The header's entry of a tensor."""

    shape: tuple[int, ...]  # in ggml's order: the innermost dimension first
    type: Any  # gguf.GGMLQuantizationType
    begin: int  # in bytes, from the first byte of the tensors
    end: int


class GgufHeader:
    """The header of an open file.

    Raises:
        ValueError: it is no GGUF file, ends too early, or exceeds a limit above.
    """

    def __init__(self, stream: BinaryIO) -> None:
        import gguf

        kinds = gguf.GGUFValueType
        self._kinds = {int(kind): kind for kind in kinds}
        self._string, self._list = kinds.STRING, kinds.ARRAY
        self._codes = {  # the letters of struct
            kinds.UINT8: "B",
            kinds.INT8: "b",
            kinds.UINT16: "H",
            kinds.INT16: "h",
            kinds.UINT32: "I",
            kinds.INT32: "i",
            kinds.UINT64: "Q",
            kinds.INT64: "q",
            kinds.FLOAT32: "f",
            kinds.FLOAT64: "d",
            kinds.BOOL: "?",
        }
        self._blocks = {int(kind): (kind, *block) for kind, block in gguf.GGML_QUANT_SIZES.items()}
        self._float32 = gguf.GGMLQuantizationType.F32

        self._file = _Cursor(stream)
        if self._file.number("I") != gguf.GGUF_MAGIC:
            raise ValueError("it does not begin with GGUF")
        self._read_version()
        n_tensors, n_keys = self._file.number("Q"), self._file.number("Q")
        if n_keys > MOST_KEYS or n_tensors > MOST_TENSORS:
            raise ValueError(f"it has {n_keys} keys and {n_tensors} tensors")
        # By name: the offset in the file after the name.
        self._values: dict[str, int] = {}
        self._infos: dict[str, int] = {}
        self._n_strings = 0  # in lists, so far
        for _ in range(n_keys):
            self._index(self._values, "key")
            self._skip_value()
        end = 0
        for _ in range(n_tensors):
            self._index(self._infos, "tensor")
            end = max(end, self._info().end)
        self._begin = self._aligned(self._file.at, gguf.GGUF_DEFAULT_ALIGNMENT)
        if n_tensors:
            self._file.must_reach(self._begin + end)

    def _read_version(self) -> None:
        version = self._file.number("I")
        if version & 0xFFFF == 0:  # written by a machine of the other byte order
            self._file.order = ">"
            version = int.from_bytes(version.to_bytes(4, "little"), "big")
        if version not in VERSIONS:
            raise ValueError(f"it is of version {version}")

    def _index(self, offsets: dict[str, int], entry: str) -> None:
        """Read the name of a key or a tensor, and store the offset after it."""
        length = self._file.number("Q")
        if length > LONGEST_NAME:
            self._file.skip(length)
            return
        name = _decoded(self._file.take(length), f"the name of a {entry}")
        if name in offsets:
            raise ValueError(f"it has the {entry} {name!r} twice")
        offsets[name] = self._file.at

    # ---- values

    def _read_kind(self) -> Any:
        number = self._file.number("I")
        if number not in self._kinds:
            raise ValueError(f"it has a value of type {number}")
        return self._kinds[number]

    def _skip_value(self) -> None:
        kind = self._read_kind()
        if kind == self._string:
            self._file.skip(self._file.number("Q"))
        elif kind == self._list:
            self._skip_items(self._read_kind(), self._file.number("Q"))
        else:
            self._file.skip(_size(self._codes[kind]))

    def _skip_items(self, kind: Any, count: int) -> None:
        if kind == self._list:
            raise ValueError("it has a list of lists")
        if kind != self._string:
            self._file.skip(count * _size(self._codes[kind]))
            return
        self._n_strings += count
        if self._n_strings > MOST_STRINGS:
            raise ValueError(f"it has lists of {self._n_strings} strings")
        self._file.skip_strings(count)

    def value(self, key: str) -> Any:
        """Return a number, a bool, a string, or a list of numbers; None if the key is missing."""
        if key not in self._values:
            return None
        self._file.at = self._values[key]
        kind = self._read_kind()
        if kind == self._string:
            length = self._file.number("Q")
            if length > LONGEST_STRING:
                raise ValueError(f"its {key} has {length} bytes")
            return _decoded(self._file.take(length), f"its {key}")
        if kind != self._list:
            return self._file.number(self._codes[kind])
        kind, count = self._read_kind(), self._file.number("Q")
        if kind == self._string or count > LONGEST_LIST:
            raise ValueError(f"its {key} is a list of {count} values of type {kind.name}")
        return list(self._file.numbers(self._codes[kind], count))

    # ---- tensors

    def _info(self) -> TensorInfo:
        n_dims = self._file.number("I")
        if n_dims > MOST_DIMS:
            raise ValueError(f"it has a tensor of {n_dims} dimensions")
        shape = self._file.numbers("Q", n_dims)
        number, begin = self._file.number("I"), self._file.number("Q")
        if number not in self._blocks:
            raise ValueError(f"it has a tensor of type {number}")
        kind, elements, size = self._blocks[number]
        return TensorInfo(shape, kind, begin, begin + math.prod(shape) // elements * size)

    def _aligned(self, end: int, default: int) -> int:
        """Return the first byte of the tensors: the aligned end of the header."""
        alignment = self.value("general.alignment")
        alignment = default if alignment is None else alignment
        if type(alignment) is not int or alignment <= 0 or alignment & (alignment - 1):
            raise ValueError(f"its general.alignment is {alignment!r}")
        return -(-end // alignment) * alignment

    def floats(self, name: str) -> npt.NDArray[np.float32] | None:
        """Return a float32 tensor with its dimensions in NumPy's order; None if it is missing."""
        if name not in self._infos:
            return None
        self._file.at = self._infos[name]
        info = self._info()
        count = math.prod(info.shape)
        if info.type != self._float32:
            raise ValueError(f"its {name} is {info.type.name} and not F32")
        if count > MOST_ELEMENTS:
            raise ValueError(f"its {name} has {count} elements")
        self._file.at = self._begin + info.begin
        elements = np.frombuffer(self._file.take(4 * count), f"{self._file.order}f4").astype(np.float32)
        return elements.reshape(info.shape[::-1])


class _Cursor:
    """A position in a file, which is read a block at a time and never past its end."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self.order = stream, "<"
        self._size = stream.seek(0, 2)
        self._block, self._start = b"", 0
        self.at = 0

    def must_reach(self, end: int) -> None:
        """Require that the file has at least ``end`` bytes."""
        if end > self._size:
            raise ValueError(f"it ends after {self._size} bytes, before byte {end}")

    def take(self, count: int) -> bytes:
        """Return the next ``count`` bytes."""
        begin = self._in_block(count)
        self.at += count
        return self._block[begin : begin + count]

    def skip(self, count: int) -> None:
        """Skip ``count`` bytes."""
        self.at += count
        self.must_reach(self.at)

    def numbers(self, code: str, count: int) -> tuple[Any, ...]:
        """Return the next ``count`` numbers; ``code`` is struct's letter."""
        return struct.unpack(f"{self.order}{count}{code}", self.take(count * _size(code)))

    def number(self, code: str) -> Any:
        """Return the next number."""
        return self.numbers(code, 1)[0]

    def skip_strings(self, count: int) -> None:
        """Skip strings. Each has its length, then its bytes."""
        length = struct.Struct(f"{self.order}Q").unpack_from
        for _ in range(count):
            begin = self._in_block(8)
            self.at += 8 + length(self._block, begin)[0]
        self.must_reach(self.at)

    def _in_block(self, count: int) -> int:
        """Return the offset of the next ``count`` bytes in the block. Read a new block if it lacks some."""
        begin = self.at - self._start
        if 0 <= begin <= len(self._block) - count:
            return begin
        self.must_reach(self.at + count)
        self._stream.seek(self.at)
        self._block, self._start = self._stream.read(max(count, BLOCK_BYTES)), self.at
        if len(self._block) < count:
            raise ValueError("it became shorter while it was read")
        return 0


def _size(code: str) -> int:
    return struct.calcsize(f"<{code}")


def _decoded(text: bytes, what: str) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{what} is {text[:LONGEST_NAME]!r}, which is not UTF-8") from None
