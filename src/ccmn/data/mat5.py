"""MAT files of versions 5 to 7, as far as matrices of numbers go.

A header of 128 bytes, then elements: a type, a size in bytes, as many bytes, and padding to a multiple of eight. An
element is a variable (its flags, dimensions, name and values are elements inside it), or a compressed one. Numbers are
stored in whatever type is small enough.

scipy's reader follows types and sizes unchecked, so that a damaged file can end the whole process; here each is looked
at before it is believed, and the worst that comes of it is a ValueError.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

_HEADER = 128
_MATRIX, _COMPRESSED = 14, 15
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
"""Types of elements -> how their numbers are stored."""
_SPARSE, _NUMERIC, _OPAQUE = 5, range(6, 16), 17
"""Classes of variables; all others are text, cells, structures or objects."""
_COMPLEX, _LOGICAL = 0x8, 0x2

Variable = Any
"""An array, or for a sparse matrix a ``csc_array``."""


def read_variables(content: bytes, wanted: Collection[str]) -> tuple[dict[str, Variable], list[str]]:
    """The variables wanted, as far as they are there, and the names of all."""
    order = {b"IM": "<", b"MI": ">"}.get(content[_HEADER - 2 : _HEADER])
    if order is None:
        raise ValueError("it does not begin with the header of one")
    found: dict[str, Variable] = {}
    names: list[str] = []
    for kind, data in _elements(memoryview(content)[_HEADER:], order):
        kind, data = _unpacked(data, order) if kind == _COMPRESSED else (kind, data)
        if kind != _MATRIX:
            raise ValueError(f"an element of type {kind} where a variable is expected")
        read = _Variable(data, order)
        names.append(read.name)
        if read.name in wanted:
            found[read.name] = read.values()
    return found, [name for name in names if name]


def _elements(data: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Type and bytes of one element after another."""
    at = 0
    while at < len(data):
        if len(data) - at < 8:
            raise ValueError("it ends too early")
        kind, size = struct.unpack_from(order + "II", data, at)
        start = at + 8
        if kind >> 16:  # up to four bytes stand beside their type
            kind, size, start = kind & 0xFFFF, kind >> 16, at + 4
            if size > 4:
                raise ValueError(f"{size} bytes in the place of four")
        if size > len(data) - start:
            raise ValueError("it ends too early")
        yield kind, data[start : start + size]
        end = start + size
        at = end if kind == _COMPRESSED else end + -end % 8


def _unpacked(data: memoryview, order: str) -> tuple[int, memoryview]:
    """The one element inside a compressed one."""
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(data)
    except zlib.error as error:
        raise ValueError(f"its compressed data are damaged ({error})") from None
    if not unpacking.eof:
        raise ValueError("its compressed data end too early")
    # Two tell that it is not one; a few compressed bytes can hold millions.
    inside = list(islice(_elements(memoryview(content), order), 2))
    if len(inside) != 1:
        raise ValueError(f"{'several elements' if inside else 'no element'} where one variable is expected")
    return inside[0]


class _Variable:
    """A variable: flags, dimensions and name first, values when they are asked for."""

    def __init__(self, data: memoryview, order: str) -> None:
        self._order, self._parts = order, _elements(data, order)
        flags = self._next_numbers()
        if flags.dtype.kind != "u" or flags.size < 1:
            raise ValueError("a variable has no flags")
        self._class, self._flags = int(flags[0]) & 0xFF, int(flags[0]) >> 8
        self.shape: tuple[int, ...] = ()
        self.name = ""
        if self._class != _OPAQUE:  # nothing is known of what these are made of
            self.shape = tuple(self._next_numbers().tolist())
            self.name = bytes(self._next()[1]).decode("latin-1")

    def values(self) -> Variable:
        """An array or ``csc_array``; anything that is no matrix of (real) numbers is an array of objects."""
        if self._flags & _COMPLEX or (self._class != _SPARSE and self._class not in _NUMERIC):
            return np.empty(self.shape[:0], dtype=object)
        if not all(isinstance(size, int) and size >= 0 for size in self.shape):
            raise ValueError(f"{self.name} cannot have the dimensions {self.shape}")
        return self._sparse() if self._class == _SPARSE else self._dense()

    def _dense(self) -> NDArray[Any]:
        numbers = self._next_numbers()
        if numbers.size != math.prod(self.shape):
            raise ValueError(f"{self.name} has {numbers.size} numbers, but dimensions {self.shape}")
        return numbers.reshape(self.shape, order="F")

    def _sparse(self) -> Any:
        rows, ends = self._next_numbers(), self._next_numbers()
        if len(self.shape) != 2 or rows.dtype.kind == "f" or ends.dtype.kind == "f" or not ends.size:
            raise ValueError(f"{self.name} is not a whole sparse matrix")
        stored = int(ends[-1])
        # True and false take a byte each, though MATLAB says that they are doubles.
        numbers = self._next_numbers(bytewise=stored if self._flags & _LOGICAL else None)
        increasing = ends.size == self.shape[1] + 1 and ends[0] == 0 and bool((ends[1:] >= ends[:-1]).all())
        if not increasing or stored > min(rows.size, numbers.size):
            raise ValueError(f"{self.name} is not a whole sparse matrix")
        rows = rows[:stored]
        if stored and not 0 <= rows.min() <= rows.max() < self.shape[0]:
            raise ValueError(f"{self.name} has values in rows beyond its {self.shape[0]}")
        return scipy.sparse.csc_array((numbers[:stored], rows, ends), shape=self.shape)

    def _next_numbers(self, bytewise: int | None = None) -> NDArray[Any]:
        """The numbers in the next element; so many bytes are so many numbers, whatever their type is said to be."""
        kind, data = self._next()
        if kind not in _NUMBERS:
            raise ValueError(f"an element of type {kind} where numbers are expected")
        dtype = np.dtype("u1" if len(data) == bytewise else _NUMBERS[kind]).newbyteorder(self._order)  # type: ignore[arg-type]
        if len(data) % dtype.itemsize:
            raise ValueError(f"{len(data)} bytes of numbers of {dtype.itemsize} bytes")
        return np.frombuffer(data, dtype).astype(dtype.newbyteorder("="), copy=False)

    def _next(self) -> tuple[int, memoryview]:
        part = next(self._parts, None)
        if part is None:
            raise ValueError("a variable ends too early")
        return part
