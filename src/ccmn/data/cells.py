"""Values in the cells of tables: numbers, gaps, and names of categories."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

MISSING_WORDS = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
"""Texts that mean a missing value, in any case."""
NUMBER_WORDS = {"true": True, "false": False, "yes": True, "no": False}
"""Words that are numbers, in any case."""
DECIMAL_COMMA = r"\s*[+-]?\d+(?:,\d+)?\s*"
"""Numbers in files that are separated by semicolons."""

FloatArray = NDArray[np.float64]


def to_numbers(values: Any, place: Callable[[int], str] = "row {} (from 0)".format) -> FloatArray:
    """Return a column of a table as numbers, NaN where missing; raise an error that names any other value.

    ``place`` returns the position of a row in a file.
    """
    numbers, wrong = parse_numbers(values)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"{place(row)}: {str(values.iloc[row])[:40]!r} in column {values.name!r} is not a number (leave missing "
            "values empty; ccmn.data.TablePreprocessor encodes texts, categories and dates)"
        )
    large = np.abs(numbers) > np.finfo(np.float32).max
    if large.any():
        raise ValueError(f"{place(int(large.argmax()))}: infinite (or too large) value in column {values.name!r}")
    return numbers


def category_name(value: Any) -> str:
    """Return the name of a category; whole numbers have no decimals, so that 3 and 3.0 agree."""
    whole = isinstance(value, (float, np.floating)) and np.isfinite(value) and value == np.floor(value)
    return str(int(value)) if whole else str(value)


def cell_text(value: Any, width: int = 80) -> str:
    """Return a cell of a table as text: a dash if it is missing, a date without a time of day at midnight.

    >>> cell_text(3.0), cell_text(None), cell_text("Rome")
    ('3', '–', 'Rome')
    """
    import pandas as pd

    if pd.api.types.is_scalar(value) and pd.isna(value):
        return "–"
    text = f"{value:.6g}" if isinstance(value, (float, np.floating)) else str(value)
    text = text.removesuffix(" 00:00:00") if isinstance(value, pd.Timestamp) else text
    return text if len(text) <= width else text[: width - 1] + "…"


def without_gap_words(frame: Any) -> dict[str, Any]:
    """Return the columns of a table of texts with None for the words that mean a missing value."""
    return {
        name: frame[name].where(~frame[name].str.strip().str.lower().isin(MISSING_WORDS), None)
        for name in frame.columns
    }


def with_decimal_points(frame: Any) -> dict[str, Any]:
    """Return the columns of a table of texts, None where missing, whose numbers have decimal commas, with points."""
    columns = {}
    for name in frame.columns:
        known = frame[name].dropna()
        if len(known) and known.str.contains(",").any() and known.str.fullmatch(DECIMAL_COMMA).all():
            columns[name] = frame[name].str.replace(",", ".")
    return columns


def parse_numbers(values: Any) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return the numbers in a column, NaN where there is none, and which values are not numbers."""
    import pandas as pd

    if values.dtype.kind in "biuf" and not hasattr(values.dtype, "na_value"):
        return values.to_numpy(np.float64), np.zeros(len(values), dtype=bool)
    if values.dtype.kind in "mM":  # pandas would return nanoseconds
        return np.full(len(values), np.nan), values.notna().to_numpy()

    def number(value: Any) -> Any:
        if isinstance(value, int) and abs(value) > int(np.finfo(np.float32).max):
            return np.inf  # Python's integers can be too large for a float
        if not isinstance(value, str):
            return value
        return "not a number" if "_" in value else NUMBER_WORDS.get(value.strip().lower(), value)  # Python reads 1_0

    numbers = pd.to_numeric(values.map(number), errors="coerce").to_numpy(np.float64, na_value=np.nan)
    return numbers, np.isnan(numbers) & values.notna().to_numpy()
