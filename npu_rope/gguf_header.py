"""Read values and float32 tensors of a GGUF file by name, with bounded memory and time for any content.

Source: ggml's ``docs/gguf.md``. The gguf package defines the numbers of the types. Its class GGUFReader is
not used: it makes several arrays of each value, item and tensor, and accepts every length. A file of a
megabyte can therefore take half a gigabyte, or minutes. GgufHeader indexes names and reads values on request.
"""

from __future__ import annotations

import math
import struct
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

VERSIONS = (2, 3)
# Models have about a hundred keys, a few thousand tensors at most, and up to a million tokens and merges.
MOST_KEYS = MOST_TENSORS = 1 << 16
MOST_STRINGS = 1 << 22  # in all lists of a file together
MOST_DIMS = 4
LONGEST_NAME = 128  # bytes; longer names of keys and tensors are not indexed
# Limits of the values and tensors that are read on request.
LONGEST_STRING = 1 << 16  # bytes
LONGEST_LIST = 1 << 12  # items
MOST_ELEMENTS = 1 << 16  # of a tensor

BUFFER_BYTES = 1 << 18  # requested in one read of the file, or more for a longer value


class TensorInfo(NamedTuple):
    """The shape, the type and the place of a tensor's data, from the header."""

    shape: tuple[int, ...]  # in ggml's order: the innermost dimension first
    type: Any  # gguf.GGMLQuantizationType
    begin: int  # in bytes from the start of the tensor data, as is end
    end: int


class GgufHeader:
    """The header of an open GGUF file. The stream must stay open while values or tensors are read.

    Raises:
        ValueError: the file is not GGUF, is truncated or invalid, or exceeds a limit. Methods also raise it.
        ImportError: gguf is not installed.
    """

    def __init__(self, stream: BinaryIO) -> None:
        import gguf

        kinds = gguf.GGUFValueType
        self._kinds = {int(kind): kind for kind in kinds}
        self._string, self._list = kinds.STRING, kinds.ARRAY
        self._formats = {  # struct's format characters
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
        # The block of a tensor type: elements and bytes.
        block_sizes = gguf.GGML_QUANT_SIZES
        self._tensor_types = {int(kind): (kind, *sizes) for kind, sizes in block_sizes.items()}
        self._float32 = gguf.GGMLQuantizationType.F32

        self._file = _Cursor(stream)
        if self._file.number("I") != gguf.GGUF_MAGIC:
            raise ValueError("it does not begin with GGUF")
        self._read_version()
        n_tensors, n_keys = self._file.number("Q"), self._file.number("Q")
        if n_keys > MOST_KEYS or n_tensors > MOST_TENSORS:
            raise ValueError(f"it has {n_keys} keys and {n_tensors} tensors")
        # Offsets in the file, by name. A value or a tensor's info follows its name.
        self._value_offsets: dict[str, int] = {}
        self._info_offsets: dict[str, int] = {}
        self._n_strings = 0  # in the lists skipped so far
        for _ in range(n_keys):
            self._index_name(self._value_offsets, "key")
            self._skip_value()
        end = 0
        for _ in range(n_tensors):
            self._index_name(self._info_offsets, "tensor")
            end = max(end, self._read_info().end)
        self._data_begin = self._aligned(self._file.at, gguf.GGUF_DEFAULT_ALIGNMENT)
        if n_tensors:
            self._file.must_reach(self._data_begin + end)

    def _read_version(self) -> None:
        version = self._file.number("I")
        if version & 0xFFFF == 0:  # the file is big-endian
            self._file.order = ">"
            version = int.from_bytes(version.to_bytes(4, "little"), "big")
        if version not in VERSIONS:
            raise ValueError(f"it is of version {version}")

    def _index_name(self, offsets: dict[str, int], entry: str) -> None:
        """Read the name of a key or a tensor and store the offset after it. Skip a name that is too long."""
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
            self._file.skip(_size(self._formats[kind]))

    def _skip_items(self, kind: Any, count: int) -> None:
        if kind == self._list:
            raise ValueError("it has a list of lists")
        if kind != self._string:
            self._file.skip(count * _size(self._formats[kind]))
            return
        self._n_strings += count
        if self._n_strings > MOST_STRINGS:
            raise ValueError(f"it has lists of {self._n_strings} strings")
        self._file.skip_strings(count)

    def value(self, key: str) -> Any:
        """Return a number, a bool, a string, or a list of numbers or bools; None if the key is missing."""
        if key not in self._value_offsets:
            return None
        self._file.at = self._value_offsets[key]
        kind = self._read_kind()
        if kind == self._string:
            length = self._file.number("Q")
            if length > LONGEST_STRING:
                raise ValueError(f"its {key} has {length} bytes")
            return _decoded(self._file.take(length), f"its {key}")
        if kind != self._list:
            return self._file.number(self._formats[kind])
        kind, count = self._read_kind(), self._file.number("Q")
        if kind == self._string or count > LONGEST_LIST:
            raise ValueError(f"its {key} is a list of {count} values of type {kind.name}")
        return list(self._file.numbers(self._formats[kind], count))

    # ---- tensors

    def _read_info(self) -> TensorInfo:
        n_dims = self._file.number("I")
        if n_dims > MOST_DIMS:
            raise ValueError(f"it has a tensor of {n_dims} dimensions")
        shape = self._file.numbers("Q", n_dims)
        number, begin = self._file.number("I"), self._file.number("Q")
        if number not in self._tensor_types:
            raise ValueError(f"it has a tensor of type {number}")
        tensor_type, block_elements, block_bytes = self._tensor_types[number]
        return TensorInfo(shape, tensor_type, begin, begin + math.prod(shape) // block_elements * block_bytes)

    def _aligned(self, end: int, default: int) -> int:
        """Return the header's end rounded up to the file's alignment. The tensor data starts there."""
        alignment = self.value("general.alignment")
        alignment = default if alignment is None else alignment
        if type(alignment) is not int or alignment <= 0 or alignment & (alignment - 1):
            raise ValueError(f"its general.alignment is {alignment!r}")
        return -(-end // alignment) * alignment

    def floats(self, name: str) -> npt.NDArray[np.float32] | None:
        """Return a float32 tensor with its outermost dimension first; None if it is missing."""
        if name not in self._info_offsets:
            return None
        self._file.at = self._info_offsets[name]
        info = self._read_info()
        count = math.prod(info.shape)
        if info.type != self._float32:
            raise ValueError(f"its {name} is {info.type.name} and not F32")
        if count > MOST_ELEMENTS:
            raise ValueError(f"its {name} has {count} elements")
        self._file.at = self._data_begin + info.begin
        elements = np.frombuffer(self._file.take(4 * count), f"{self._file.order}f4").astype(np.float32)
        return elements.reshape(info.shape[::-1])


class _Cursor:
    """A position in a file that is read through a buffer. A read past the file's end raises ValueError."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self.order = stream, "<"
        self._file_size = stream.seek(0, 2)
        self._buffer, self._buffer_begin = b"", 0
        self.at = 0

    def must_reach(self, end: int) -> None:
        """Require that the file has at least ``end`` bytes."""
        if end > self._file_size:
            raise ValueError(f"it ends after {self._file_size} bytes, before byte {end}")

    def take(self, count: int) -> bytes:
        """Return the next ``count`` bytes."""
        begin = self._offset_in_buffer(count)
        self.at += count
        return self._buffer[begin : begin + count]

    def skip(self, count: int) -> None:
        """Skip ``count`` bytes."""
        self.at += count
        self.must_reach(self.at)

    def numbers(self, code: str, count: int) -> tuple[Any, ...]:
        """Return the next ``count`` numbers; ``code`` is struct's format character."""
        return struct.unpack(f"{self.order}{count}{code}", self.take(count * _size(code)))

    def number(self, code: str) -> Any:
        """Return the next number."""
        return self.numbers(code, 1)[0]

    def skip_strings(self, count: int) -> None:
        """Skip strings. Each is stored as its length in 8 bytes, then its text."""
        length_at = struct.Struct(f"{self.order}Q").unpack_from
        for _ in range(count):
            begin = self._offset_in_buffer(8)
            self.at += 8 + length_at(self._buffer, begin)[0]
        self.must_reach(self.at)

    def _offset_in_buffer(self, count: int) -> int:
        """Return the offset in the buffer of the next ``count`` bytes. Read them if it lacks some."""
        begin = self.at - self._buffer_begin
        if 0 <= begin <= len(self._buffer) - count:
            return begin
        self.must_reach(self.at + count)
        self._stream.seek(self.at)
        self._buffer, self._buffer_begin = self._stream.read(max(count, BUFFER_BYTES)), self.at
        if len(self._buffer) < count:
            raise ValueError("it became shorter while it was read")
        return 0


def _size(code: str) -> int:
    return struct.calcsize(f"<{code}")


def _decoded(text: bytes, what: str) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{what} is {text[:LONGEST_NAME]!r}, which is not UTF-8") from None
