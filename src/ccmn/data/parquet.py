"""Parquet files: the same table as CSV; null is a missing feature or an unobserved label. They require pyarrow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ccmn._files import PathLike, atomic_write, check_unpacked_size, prefix_errors, unpacked_limit
from ccmn.data.column_roles import ColumnRoles, check_column_names
from ccmn.data.labeled_table import RawTable

ROLES_KEY = b"ccmn"
"""Key of the metadata in which a file that ccmn wrote declares the roles of its columns."""
_ROWS_PER_BATCH = 4096
"""Rows are decoded in batches, so that a small file that unpacks to a large one is noticed early."""
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "BYTE_ARRAY": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12}
"""Bytes per value of the physical types, without the content of texts."""


def read_parquet(path: Path) -> RawTable:
    """Return all columns; the metadata of ccmn or of Hugging Face datasets can declare the roles of columns."""
    import pandas as pd

    with open_parquet(path) as file, prefix_errors(path):
        schema = file.schema_arrow
        check_column_names([str(name) for name in schema.names])
        try:
            batches = [batch.to_pandas() for batch in read_batches(file, path)]
            frame = pd.concat(batches, ignore_index=True) if batches else schema.empty_table().to_pandas()
        except (LookupError, TypeError, AttributeError, RecursionError, OverflowError, NotImplementedError) as error:
            raise ValueError(f"the file has invalid metadata of pandas: {first_line(error)}") from None
        roles, tag_names = _declared_roles(schema)
    return RawTable(path, frame, roles=roles, tag_names=tag_names)


def write_parquet_table(frame: Any, roles: ColumnRoles, path: PathLike) -> None:
    """Write a DataFrame to a Parquet file that declares the roles of its columns."""
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.Table.from_pandas(frame, preserve_index=False)
    metadata = {**(table.schema.metadata or {}), ROLES_KEY: json.dumps(roles.to_dict())}
    with atomic_write(path) as stream:
        pyarrow.parquet.write_table(table.replace_schema_metadata(metadata), stream)


def _declared_roles(schema: Any) -> tuple[ColumnRoles, list[str] | None]:
    """Return the roles of columns, and the names of numbered tags, that the metadata of a file declare, if any.

    A sequence of ``ClassLabel`` of Hugging Face datasets is the column of tags.
    """
    metadata = schema.metadata or {}
    try:
        roles = ColumnRoles.from_dict(json.loads(metadata[ROLES_KEY]))
        if {roles.tags, roles.image, roles.id, *roles.text} - {None} <= set(schema.names):
            return roles, None
    except (KeyError, ValueError, RecursionError):
        pass
    try:
        features = json.loads(metadata[b"huggingface"])["info"]["features"]
        for column, kind in features.items():
            inner = kind.get("feature", kind) if isinstance(kind, dict) else kind[0]
            if inner.get("_type") == "ClassLabel" and column in schema.names and inner is not kind:
                return ColumnRoles(tags=str(column)), [str(name) for name in inner["names"]]
    except (KeyError, ValueError, TypeError, AttributeError, IndexError, RecursionError):
        pass
    return ColumnRoles(), None


def open_parquet(path: Path, **settings: Any) -> Any:
    """Return a ``pyarrow.parquet.ParquetFile``; errors name the file or the missing package."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ImportError('reading Parquet requires pyarrow: pip install "ccmn[app]"') from None
    try:
        return pyarrow.parquet.ParquetFile(path, **settings)
    except (FileNotFoundError, PermissionError):
        raise  # pyarrow names the file
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a complete Parquet file: {first_line(error)}") from None


def read_batches(file: Any, path: Path) -> Any:
    """Yield the record batches of a file, up to the limit of what it may unpack to."""
    import pyarrow

    size, limit = 0, unpacked_limit(path)
    try:
        for group in range(file.metadata.num_row_groups):
            # Damaged metadata of columns are an error here; pyarrow would end the process when they are inspected.
            next(file.iter_batches(1, row_groups=[group], use_threads=False), None)
        check_unpacked_size(declared_bytes(file), limit)
        _check_texts(file, path, limit)
        for batch in file.iter_batches(_ROWS_PER_BATCH):
            size += batch.nbytes
            check_unpacked_size(size, limit)
            batch.validate(full=True)  # for example that texts are UTF-8
            yield batch
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"the file is not a complete Parquet file: {first_line(error)}") from None


def declared_bytes(file: Any) -> int:
    """Return the bytes that the values of a file take in memory; a text counts as the four bytes of its offset.

    Equal values are stored once with their number: 100 bytes of a file can be a billion values.
    """
    groups = [file.metadata.row_group(g) for g in range(file.metadata.num_row_groups)]
    widths = [
        column.length if column.physical_type == "FIXED_LEN_BYTE_ARRAY" else _WIDTHS.get(column.physical_type, 8)
        for column in map(file.schema.column, range(file.metadata.num_columns))
    ]
    return sum(group.column(i).num_values * width for group in groups for i, width in enumerate(widths))


def _check_texts(file: Any, path: Path, limit: int) -> None:
    """Reject texts that take too much memory before they are decoded: Parquet stores equal texts once."""
    columns = [file.schema.column(i) for i in range(file.metadata.num_columns)]
    texts = [i for i, column in enumerate(columns) if column.physical_type == "BYTE_ARRAY"]
    groups = [file.metadata.row_group(g) for g in range(file.metadata.num_row_groups)]
    largest = max((group.column(i).total_uncompressed_size for group in groups for i in texts), default=0)
    if _ROWS_PER_BATCH * largest <= limit:
        return  # no text is larger than all texts together
    names = list(dict.fromkeys(columns[i].path.partition(".")[0] for i in texts))
    size = 0
    with open_parquet(path, read_dictionary=[columns[i].path for i in texts]) as packed:
        for batch in packed.iter_batches(_ROWS_PER_BATCH, columns=names):
            size += sum(_decoded_bytes(column) for column in batch.columns)
            check_unpacked_size(size, limit)


def _decoded_bytes(values: Any) -> int:
    """Return the bytes that the texts in an array take after they are decoded."""
    import pyarrow.compute as compute
    import pyarrow.types as types

    if types.is_struct(values.type):
        return sum(map(_decoded_bytes, values.flatten()))
    if types.is_list(values.type) or types.is_large_list(values.type) or types.is_fixed_size_list(values.type):
        return _decoded_bytes(values.flatten())
    if not types.is_dictionary(values.type):
        return int(values.nbytes)
    return int(compute.sum(compute.binary_length(values.dictionary).take(values.indices)).as_py() or 0)


def first_line(error: Exception) -> str:
    """Return the first line of the message of an error of pyarrow, which may have several."""
    return (str(error).splitlines() or [type(error).__name__])[0]
