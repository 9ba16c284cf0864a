"""Conversion of tables to numeric features: a fixed list of steps that JSON can store, without pickles.

Numbers and parts of dates are imputed by their median and standardized, categories are one-hot encoded, texts become
TF-IDF features. A column with gaps has an indicator feature for them. These are the transformations of
``SimpleImputer``, ``StandardScaler``, ``OneHotEncoder`` and ``TfidfVectorizer`` of scikit-learn. They are written out
here because fitted transformers of scikit-learn can only be stored as pickles, and because scikit-learn takes longer to
import than 1,000 rows to predict.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import scipy.sparse
from typing_extensions import Self

from ccmn._containers import is_dataframe, is_other_table, is_sparse
from ccmn.data.cells import FloatArray, category_name, parse_numbers, to_numbers
from ccmn.data.column_roles import name_some
from ccmn.data.dataset import Matrix

_WORD = re.compile(r"\b\w\w+\b")
"""The words of ``TfidfVectorizer``, in lower case."""
MAX_TERMS = 50_000
"""Only the most frequent terms are used: rare terms add little, and more would make models of many labels large."""
MIN_CATEGORY_COUNT = 2
"""A category that occurs in fewer rows cannot be learned; it shares the feature of the rare categories."""
MAX_DISTINCT_SHARE = 0.5
"""A column of words with more distinct values than this share of its rows is a text or an identifier."""
MIN_ROWS_FOR_SHARE = 20
"""Below this number of rows the share of distinct values is not meaningful."""
MIN_NUMBER_SHARE = 0.9
"""A column of which at least this share are numbers is numeric; its other values are errors."""
MAX_DENSE_FEATURES = 1000
"""Tables with more features of categories, and tables with texts, become sparse matrices."""
OTHER_SPELLINGS = {
    "dates": (r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}(?:[ T][\d:]+)?", "2026-01-31"),
    "numbers": (
        r"[€$£¥]?\s?[+-]?\d+(?:[., '’]\d+)*\s?[€$£¥%]?",
        "1234.5, without thousands separators and units",
    ),
}
"""Frequent spellings of dates and numbers that are not read, and how to write them."""
DATE_PARTS = ("days", "month", "weekday", "hour")
"""Numbers that describe a date: elapsed days, month, day of the week, and the hour if there are times of day."""
_ISO_DATE = r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?"


@dataclass(frozen=True)
class NumberFeatures:
    """Standardized numbers, or a part of dates; gaps are filled with the median and may be indicated."""

    column: str
    median: float
    mean: float
    scale: float
    gaps: bool
    part: str = ""

    def __post_init__(self) -> None:
        if not (np.abs([self.median, self.mean, self.scale]) <= np.finfo(np.float32).max).all() or self.scale <= 0:
            raise ValueError(f"the numbers of column {self.column!r} must be finite in float32, and scale positive")
        if self.part not in ("", *DATE_PARTS):
            raise ValueError(f"unknown part of the dates {self.column!r}")

    @classmethod
    def fit(cls, values: Any, part: str = "") -> NumberFeatures:
        """Return the statistics of a column of a table."""
        numbers = _date_part(values, part) if part else to_numbers(values)
        known = numbers[~np.isnan(numbers)]
        median = float(np.median(known)) if known.size else 0.0
        filled = np.where(np.isnan(numbers), median, numbers)
        mean, scale = float(filled.mean()), float(filled.std())
        return cls(values.name, median, mean, scale if scale > 0 else 1.0, bool(known.size < numbers.size), part)

    @property
    def names(self) -> list[str]:
        """Names of the features."""
        name = f"{self.column}:{self.part}" if self.part else self.column
        return [name, f"{self.column}:missing"] if self.gaps else [name]

    def encode(self, values: Any) -> Matrix:
        """Return the features of a column of a table, a float32 array."""
        numbers = _date_part(values, self.part) if self.part else to_numbers(values)
        missing = np.isnan(numbers)
        filled = (np.where(missing, self.median, numbers) - self.mean) / self.scale
        return np.column_stack((filled, missing) if self.gaps else (filled,)).astype(np.float32)


@dataclass(frozen=True)
class CategoryFeatures:
    """One-hot encoding of the frequent categories; the rare and unknown ones share a feature, gaps have their own."""

    column: str
    categories: Sequence[str]
    rare: bool
    gaps: bool

    def __post_init__(self) -> None:
        if len(set(self.categories)) < len(self.categories):
            raise ValueError(f"column {self.column!r} repeats a category")

    @classmethod
    def fit(cls, values: Any, max_categories: int) -> CategoryFeatures:
        """Return the frequent categories of a column, in sorted order."""
        counts = values.dropna().map(category_name).value_counts()
        order = sorted(counts.index, key=lambda name: (-counts[name], name))
        kept = sorted(name for name in order[:max_categories] if counts[name] >= MIN_CATEGORY_COUNT)
        return cls(values.name, kept, len(kept) < len(order), bool(values.isna().any()))

    @property
    def names(self) -> list[str]:
        """Names of the features."""
        extra = [f"{self.column}:{name}" for name, used in (("rare", self.rare), ("missing", self.gaps)) if used]
        return [*(f"{self.column}={name}" for name in self.categories), *extra]

    def encode(self, values: Any) -> Matrix:
        """Return the features of a column of a table, a float32 CSR array."""
        q, place = len(self.categories), {name: j for j, name in enumerate(self.categories)}
        rare = q if self.rare else -1
        codes = np.array([place.get(category_name(value), rare) for value in values], dtype=np.int64)
        codes[values.isna().to_numpy()] = q + self.rare if self.gaps else -1
        rows = np.flatnonzero(codes >= 0)
        ones = np.ones(rows.size, dtype=np.float32)
        return scipy.sparse.csr_array((ones, (rows, codes[rows])), shape=(len(codes), len(self.names)))


@dataclass(frozen=True, eq=False)
class TextFeatures:
    """TF-IDF features of a text column: words, logarithmic term frequencies, rows of norm 1."""

    column: str
    terms: Sequence[str]
    idf: Sequence[float]

    def __post_init__(self) -> None:
        if not self.terms or not len(self.terms) == len(set(self.terms)) == len(self.idf):
            raise ValueError("terms must be unique and have one idf each")
        if not np.isfinite(np.array(self.idf, dtype=np.float64)).all():
            raise ValueError("idf must be finite; got NaN or infinite values")

    @classmethod
    def fit(cls, values: Any) -> TextFeatures:
        """Return the vocabulary and the weights of a column."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        vectorizer = TfidfVectorizer(max_features=MAX_TERMS, sublinear_tf=True, dtype=np.float64)
        try:
            vectorizer.fit(_texts(values))
        except ValueError:  # the message of scikit-learn mentions stop words, which are not used
            raise ValueError(
                f"the text column {values.name!r} has no words (of two letters or more) in its {len(values)} rows"
            ) from None
        terms = vectorizer.get_feature_names_out().tolist()
        return cls(values.name, terms, vectorizer.idf_.astype(np.float64).tolist())

    @property
    def names(self) -> list[str]:
        """Names of the features."""
        return [f"{self.column}:{term}" for term in self.terms]

    def encode(self, values: Any) -> Matrix:
        """Return the features of a column, a float32 CSR array; unknown words are ignored, missing texts are empty."""
        place = {term: j for j, term in enumerate(self.terms)}
        rows = [[place[word] for word in _WORD.findall(text.lower()) if word in place] for text in _texts(values)]
        ends = np.cumsum([0, *map(len, rows)], dtype=np.int32)
        terms = np.fromiter(chain.from_iterable(rows), np.int32, ends[-1])
        counts = scipy.sparse.csr_array((np.ones(ends[-1]), terms, ends), shape=(len(rows), len(place)))
        counts.sum_duplicates()
        counts.data = (1 + np.log(counts.data)) * np.array(self.idf)[counts.indices]
        norms = np.sqrt(counts.power(2).sum(1))
        counts.data /= np.repeat(norms, np.diff(counts.indptr))
        return counts.astype(np.float32)


Step = NumberFeatures | CategoryFeatures | TextFeatures
STEPS: dict[str, type[Step]] = {"number": NumberFeatures, "category": CategoryFeatures, "text": TextFeatures}
"""Steps by the name under which a model stores them; no other step can be loaded."""


class FittedTable:
    """Fitted steps of a table. They need no scikit-learn, so that predictions with a saved model start at once."""

    def set_steps(self, steps: Sequence[Step]) -> Self:
        """Set the fitted attributes."""
        if not steps:
            raise ValueError("there are no features in these data")
        self.steps_ = tuple(steps)
        self.feature_names_out_ = [name for step in steps for name in step.names]
        self.feature_names_in_ = np.array(list(dict.fromkeys(step.column for step in steps)), dtype=object)
        self.n_features_in_ = len(self.feature_names_in_)
        return self

    def transform(self, X: Any) -> Matrix:
        """Return the features of a table."""
        frame = check_frame(X)
        missing = [name for name in self.feature_names_in_ if name not in frame.columns]
        if missing:
            raise ValueError(
                f"the table was fitted on {self.n_features_in_} columns, of which {len(missing)} are missing: "
                f"{name_some(missing)}"
            )
        blocks = [step.encode(frame[step.column]) for step in self.steps_]
        n_sparse = sum(block.shape[1] for block in blocks if is_sparse(block))
        if n_sparse > MAX_DENSE_FEATURES or any(isinstance(step, TextFeatures) for step in self.steps_):
            return scipy.sparse.hstack([scipy.sparse.csr_array(block) for block in blocks], format="csr")
        return np.hstack([block.toarray() if is_sparse(block) else block for block in blocks])

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that JSON can store; ``from_dict`` reads it."""
        kinds = {step: name for name, step in STEPS.items()}
        return {"steps": [{"kind": kinds[type(step)], **asdict(step)} for step in self.steps_]}

    @classmethod
    def from_dict(cls, d: Any) -> Self:
        """Return the fitted steps described by ``to_dict``."""
        try:
            steps = [STEPS[step["kind"]](**{k: v for k, v in step.items() if k != "kind"}) for step in d["steps"]]
            if len({(step.column, getattr(step, "part", "")) for step in steps}) < len(steps):
                raise ValueError("expected one step per column")
            return cls().set_steps(steps)
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise ValueError(f"not a description of the preprocessing of a table: {error}") from None


def fit_steps(values: Any, categorical: bool, max_categories: int) -> list[Step]:
    """Return the steps of a column, by the kind of its values."""
    if categorical or values.dtype.name == "category":
        return [CategoryFeatures.fit(values, max_categories)]
    if values.dtype.kind == "M":
        return _fit_dates(values)
    name, known, option = values.name, values.dropna(), shlex.quote(values.name)
    if any(isinstance(value, (list, tuple, set, dict, np.ndarray)) for value in known.head(100)):
        raise ValueError(
            f"column {name!r} contains lists. Select it as the column of tags (--tags {option}), or remove it "
            f"(--ignore {option})."
        )
    _, wrong = parse_numbers(values)
    if wrong.sum() <= (1 - MIN_NUMBER_SHARE) * len(known):
        return [NumberFeatures.fit(values)]
    words = known.astype(str)
    if words.str.fullmatch(_ISO_DATE).all():
        return _fit_dates(values)
    distinct = words.nunique()
    if len(words) >= MIN_ROWS_FOR_SHARE and distinct > MAX_DISTINCT_SHARE * len(words):
        start = f"column {name!r} has {distinct} different values in {len(words)} rows, such as {words.iloc[0][:40]!r}"
        for kind, (pattern, advice) in OTHER_SPELLINGS.items():
            if words.str.fullmatch(pattern).mean() >= MIN_NUMBER_SHARE:
                raise ValueError(f"{start}: {kind} must be written as {advice}; or use --ignore {option}")
        raise ValueError(
            f"{start}: is it a text (--text {option}), an identifier (--id {option}), or not a feature (--ignore "
            f"{option})? In Python: text=[{name!r}] or ignore=[{name!r}]."
        )
    return [CategoryFeatures.fit(values, max_categories)]


def _fit_dates(values: Any) -> list[Step]:
    """Return the steps of a column of dates; they share one indicator of gaps."""
    parts = [NumberFeatures.fit(values, part) for part in DATE_PARTS]
    *others, last = parts if parts[-1].mean > 0 else parts[:-1]
    return [*(replace(part, gaps=False) for part in others), last]


def _date_part(values: Any, part: str) -> FloatArray:
    """Return a part of dates, in UTC, as numbers, NaN where missing; raise an error that names any other value."""
    import pandas as pd

    dates = pd.to_datetime(values, utc=True, format=None if values.dtype.kind == "M" else "ISO8601", errors="coerce")
    wrong = (dates.isna() & values.notna()).to_numpy()
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"{str(values.iloc[row])[:40]!r} in column {values.name!r}, row {row} (from 0), is not a date such as "
            "2026-01-31"
        )
    days = (dates - pd.Timestamp("1970-01-01", tz="UTC")) / pd.Timedelta(days=1)
    parts = (days, dates.dt.month, dates.dt.day_of_week, dates.dt.hour)
    numbers: FloatArray = parts[DATE_PARTS.index(part)].to_numpy(np.float64, na_value=np.nan)
    return numbers


def _texts(values: Any) -> Any:
    return values.astype(object).where(values.notna(), "").map(str)


def check_frame(X: Any) -> Any:
    """Return a DataFrame with unique text names."""
    X = X.to_pandas() if is_other_table(X) else X
    if not is_dataframe(X):
        raise ValueError(f"Expected a DataFrame with named columns; got {type(X).__name__}")
    if not len(X):
        raise ValueError("Expected at least one row; got none")
    names = [str(name) for name in X.columns]
    if len(set(names)) < len(names):
        raise ValueError("the column names of the table must be unique")
    return X.set_axis(names, axis=1).reset_index(drop=True)
