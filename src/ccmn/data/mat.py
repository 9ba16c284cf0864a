"""MATLAB files with ``data`` (n x d), ``target`` (q x n) and, for candidate sets, ``partial_labels`` (q x n).

A file of versions 5 to 7 has a header of 128 bytes, then elements: a type, a size in bytes, the bytes, and padding to a
multiple of eight. An element is a variable, whose flags, dimensions, name and values are elements inside it, or a
compressed variable. Numbers are stored in the smallest type that holds them.

This reader is written by hand because the reader of scipy follows types and sizes without checks, so that a malformed
file can crash the process. Here every type and size is checked first, and a malformed file raises ``ValueError``.
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

from ccmn._containers import is_sparse
from ccmn._files import (
    DEFAULT_MAX_UNPACKED_BYTES,
    PathLike,
    check_file,
    check_unpacked_size,
    data_name,
    prefix_errors,
    unpacked_limit,
)
from ccmn.data.dataset import Matrix, MultiLabelData

_VARIABLES = ("data", "target", "partial_labels")
_HEADER = 128
_MATRIX, _COMPRESSED = 14, 15
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
"""Element types and the numpy types of their numbers."""
_SPARSE, _NUMERIC, _OPAQUE = 5, range(6, 16), 17
"""Classes of variables; the others are text, cells, structures and objects."""
_COMPLEX, _LOGICAL = 0x8, 0x2

Variable = Any
"""An array, or for a sparse matrix a ``csc_array``."""


def read_mat(path: PathLike) -> MultiLabelData:
    """Read a MATLAB file of versions 5 to 7 with ``data`` (n x d), ``target`` (q x n) and perhaps ``partial_labels``.

    Labels are in {0, 1} or {-1, +1}; ``partial_labels`` become ``candidates``. Features are sparse if they are stored
    as sparse. Version 4 and version 7.3 (HDF5) are rejected: save such files in MATLAB with '-v7'.
    """
    path = check_file(path)
    content, limit = path.read_bytes(), unpacked_limit(path)
    version = _other_version(content)
    if version:
        raise ValueError(f"{path} is a MAT file of version {version}; save it in MATLAB with '-v7'")
    try:
        variables, names = read_variables(content, _VARIABLES, limit)
    except MemoryError:  # sizes in the file are checked: the memory of the machine is exhausted
        raise
    except Exception as error:  # damaged content can make a parser fail in any way
        raise ValueError(f"{path} is not a complete MAT file: {error}") from None
    with prefix_errors(path):
        for variable in ("data", "target"):
            if variable not in variables:
                raise ValueError(
                    f"the variable {variable!r} is missing; expected data (n x d), target (q x n) and, for "
                    f"candidate sets, partial_labels (q x n); found {', '.join(names) or 'none'}"
                )
        X = _matrix(variables["data"], "data", limit)
        partial = variables.get("partial_labels")
        with np.errstate(over="ignore"):  # values beyond float32 become infinite and are rejected
            features = X.astype(np.float32)
        return MultiLabelData(
            X=features,
            Y=_labels(variables["target"], "target", X.shape[0], limit),
            candidates=None if partial is None else _labels(partial, "partial_labels", X.shape[0], limit),
            name=data_name(path),
        )


def _other_version(content: bytes) -> str:
    """Return the version of a file that is not of versions 5 to 7, if its first bytes identify it."""
    if content[124:126] in (b"\x00\x02", b"\x02\x00") and content[126:128] in (b"IM", b"MI"):
        return "7.3 (HDF5)"
    # Version 4 begins with a type code below 5000 in four bytes; later versions begin with text.
    code = content[:4]
    kinds = (int.from_bytes(code, "little"), int.from_bytes(code, "big"))
    return "4" if len(code) == 4 and 0 in code and any(kind < 5000 for kind in kinds) else ""


def _matrix(values: Any, variable: str, limit: int) -> Matrix:
    """Return a matrix of numbers, dense or CSR."""
    if values.dtype.kind not in "biuf":
        raise ValueError(f"{variable} must be a matrix of numbers; got {values.dtype}")
    if values.ndim != 2:
        raise ValueError(f"{variable} must be a matrix; got shape {values.shape}")
    if not is_sparse(values):
        return values
    # A CSR matrix takes at least 8 bytes per row, even if the file stores no value of it.
    check_unpacked_size(8 * values.shape[0], limit)
    values.check_format(full_check=True)  # before an operation follows the indices
    return scipy.sparse.csr_array(values)


def _labels(values: Any, variable: str, n: int, limit: int) -> Matrix:
    """Return labels (n, q) in {0, 1}."""
    if values.ndim == 2 and values.shape[1] != n:
        remedy = f"; it has a row per sample: save {variable}' instead" if values.shape[0] == n else ""
        raise ValueError(f"{variable} must be q x n with n = {n}, the rows of data; got {values.shape}{remedy}")
    values = _matrix(values, variable, limit)
    if is_sparse(values):
        check_unpacked_size(values.shape[0] * values.shape[1] * values.dtype.itemsize, limit)
    dense = values.toarray() if is_sparse(values) else values
    if np.isin(dense, (-1, 1)).all():
        return (dense.T == 1).astype(np.uint8)
    if not np.isin(dense, (0, 1)).all():
        raise ValueError(f"{variable} must hold 0 and 1 only, or -1 and +1 only; got {np.unique(dense)[:5].tolist()}")
    return dense.T


def read_variables(
    content: bytes, wanted: Collection[str], max_bytes: int = DEFAULT_MAX_UNPACKED_BYTES
) -> tuple[dict[str, Variable], list[str]]:
    """Return the wanted variables that exist, and the names of all variables.

    Compressed variables may unpack to ``max_bytes`` in total.
    """
    if content[_HEADER - 2 : _HEADER] != b"IM":
        raise ValueError("it has no header of a MAT file in little-endian byte order")
    variables: dict[str, Variable] = {}
    names: list[str] = []
    for kind, data in _elements(memoryview(content)[_HEADER:]):
        if kind == _COMPRESSED:
            kind, data = _unpacked(data, max_bytes)
            max_bytes -= len(data)
        if kind != _MATRIX:
            raise ValueError(f"expected a variable; got an element of type {kind}")
        name, values = _variable(data, wanted)
        names += [name] if name else []
        if name in wanted:
            variables[name] = values
    return variables, names


def _elements(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield type and bytes of every element."""
    at = 0
    while at < len(data):
        if len(data) - at < 8:
            raise ValueError("it is truncated")
        kind, size = struct.unpack_from("<II", data, at)
        start = at + 8
        if kind >> 16:  # up to four bytes are stored next to their type
            kind, size, start = kind & 0xFFFF, kind >> 16, at + 4
            if size > 4:
                raise ValueError(f"a small element has {size} bytes; at most 4 are allowed")
        if size > len(data) - start:
            raise ValueError("it is truncated")
        yield kind, data[start : start + size]
        end = start + size
        at = end if kind == _COMPRESSED else end + -end % 8


def _unpacked(data: memoryview, max_bytes: int) -> tuple[int, memoryview]:
    """Return the single element inside a compressed one."""
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(data, max_bytes + 1)
    except zlib.error as error:
        raise ValueError(f"its compressed data are damaged ({error})") from None
    check_unpacked_size(len(content), max_bytes)
    if not unpacking.eof:
        raise ValueError("its compressed data are truncated")
    # Two elements are enough to reject it; a few compressed bytes can contain millions.
    inside = list(islice(_elements(memoryview(content)), 2))
    if len(inside) != 1:
        raise ValueError(f"expected one variable; got {'several elements' if inside else 'no element'}")
    return inside[0]


def _variable(data: memoryview, wanted: Collection[str]) -> tuple[str, Variable]:
    """Return the name of a variable and, if it is wanted, its values; other values than real numbers are objects."""
    parts = _elements(data)
    flags = _numbers(parts)
    if flags.dtype.kind != "u" or flags.size < 1:
        raise ValueError("a variable has no flags")
    kind, flag = int(flags[0]) & 0xFF, int(flags[0]) >> 8
    if kind == _OPAQUE:  # the layout of opaque objects is not documented
        return "", None
    shape = tuple(_numbers(parts).tolist())
    name = bytes(_next(parts)[1]).decode("latin-1")
    if name not in wanted:
        return name, None
    if flag & _COMPLEX or (kind != _SPARSE and kind not in _NUMERIC):
        return name, np.empty((), dtype=object)
    if not all(isinstance(size, int) and size >= 0 for size in shape):
        raise ValueError(f"{name} has invalid dimensions {shape}")
    if kind == _SPARSE:
        return name, _sparse(name, shape, parts, bool(flag & _LOGICAL))
    numbers = _numbers(parts)
    if numbers.size != math.prod(shape):
        raise ValueError(f"{name} has {numbers.size} numbers, but dimensions {shape}")
    return name, numbers.reshape(shape, order="F")


def _sparse(name: str, shape: tuple[int, ...], parts: Iterator[tuple[int, memoryview]], logical: bool) -> Any:
    """Return a sparse matrix, whose rows, ends of columns and numbers follow."""
    rows, ends = _numbers(parts), _numbers(parts)
    if len(shape) != 2 or rows.dtype.kind == "f" or ends.dtype.kind == "f" or not ends.size:
        raise ValueError(f"{name} is not a complete sparse matrix")
    stored = int(ends[-1])
    # Logical values take one byte each, although MATLAB declares them as doubles.
    numbers = _numbers(parts, bytewise=stored if logical else None)
    increasing = ends.size == shape[1] + 1 and ends[0] == 0 and bool((ends[1:] >= ends[:-1]).all())
    if not increasing or stored > min(rows.size, numbers.size):
        raise ValueError(f"{name} is not a complete sparse matrix")
    rows = rows[:stored]
    if stored and not 0 <= rows.min() <= rows.max() < shape[0]:
        raise ValueError(f"{name} has values in rows beyond its {shape[0]}")
    return scipy.sparse.csc_array((numbers[:stored], rows, ends), shape=shape)


def _numbers(parts: Iterator[tuple[int, memoryview]], bytewise: int | None = None) -> NDArray[Any]:
    """Return the numbers in the next element; an element of ``bytewise`` bytes contains one number per byte."""
    kind, data = _next(parts)
    if kind not in _NUMBERS:
        raise ValueError(f"expected numbers; got an element of type {kind}")
    dtype = np.dtype("u1" if len(data) == bytewise else _NUMBERS[kind]).newbyteorder("<")
    if len(data) % dtype.itemsize:
        raise ValueError(f"{len(data)} bytes is not a multiple of {dtype.itemsize}, the size of a number")
    return np.frombuffer(data, dtype).astype(dtype.newbyteorder("="), copy=False)


def _next(parts: Iterator[tuple[int, memoryview]]) -> tuple[int, memoryview]:
    part = next(parts, None)
    if part is None:
        raise ValueError("a variable is truncated")
    return part
