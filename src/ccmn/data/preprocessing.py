"""Conversion of tables to numeric features: a fixed list of steps that JSON can store, without pickles.

Numbers and parts of dates are imputed by their median and standardized, categories are one-hot encoded, texts become
TF-IDF features. A column with gaps has an indicator feature for them. These are the transformations of
``SimpleImputer``, ``StandardScaler``, ``OneHotEncoder`` and ``TfidfVectorizer`` of scikit-learn. They are written out
here because fitted transformers of scikit-learn can only be stored as pickles.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from ccmn._containers import is_dataframe, is_other_table, is_sparse
from ccmn._validation import check_count
from ccmn.data.dataset import Matrix

MAX_TERMS = 50_000
"""Only the most frequent terms are used: rare terms add little, and more would make models of many labels large."""
DEFAULT_MAX_CATEGORIES = 50
"""Categories beyond the most frequent ones share one feature."""
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
MAX_CELL_CHARACTERS = 80
"""Cells that are displayed are cut after this number of characters."""
MISSING_WORDS = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
"""Texts that mean a missing value, in any case."""
NUMBER_WORDS = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0}
"""Words that are numbers, in any case."""
OTHER_SPELLINGS = {
    "dates": (r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}(?:[ T][\d:]+)?", "2026-01-31"),
    "numbers": (
        r"[€$£¥]?\s?[+-]?\d+(?:[., '’]\d+)*\s?[€$£¥%]?",
        "1234.5, without thousands separators and units",
    ),
}
"""Frequent spellings of dates and numbers that are not read, and how to write them."""
DECIMAL_COMMA = r"\s*[+-]?\d+(?:,\d+)?\s*"
"""Numbers in files that are separated by semicolons."""
_ISO_DATE = r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?"

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TextFeatures:
    """TF-IDF features of a text column: words, logarithmic term frequencies, rows of norm 1.

    Parameters
    ----------
    column : str
        Name of the column.
    terms : sequence of str
        Vocabulary, in the order of the features.
    idf : array of shape (len(terms),)
        Inverse document frequency of every term.

    Examples
    --------
    >>> text = TextFeatures.fit("review", ["a red boat", "a blue boat"])
    >>> text.terms
    ('blue', 'boat', 'red')
    >>> text.transform(["red, red!"]).toarray().tolist()
    [[0.0, 0.0, 1.0]]
    """

    column: str
    terms: Sequence[str]
    idf: FloatArray

    @classmethod
    def fit(cls, column: str, texts: Sequence[str]) -> TextFeatures:
        """Return the vocabulary and the weights of some texts."""
        vectorizer = _vectorizer(max_features=MAX_TERMS)
        try:
            vectorizer.fit(texts)
        except ValueError:  # the message of scikit-learn mentions stop words, which are not used
            raise ValueError(
                f"the text column {column!r} has no words (of two letters or more) in its {len(texts)} rows"
            ) from None
        return cls(column, tuple(vectorizer.get_feature_names_out().tolist()), vectorizer.idf_.astype(np.float64))

    def transform(self, texts: Sequence[str]) -> Matrix:
        """Return the features of some texts, a float32 CSR array (n, len(terms)); unknown words are ignored."""
        vectorizer = _vectorizer(vocabulary=list(self.terms))
        vectorizer.idf_ = self.idf
        return scipy.sparse.csr_array(vectorizer.transform(texts), dtype=np.float32)

    def encode(self, values: Any) -> Matrix:
        """Return the features of a column of a table; missing texts are empty."""
        return self.transform([str(text) for text in values.astype(object).where(values.notna(), "")])

    @property
    def names(self) -> list[str]:
        """Names of the features."""
        return [f"{self.column}:{term}" for term in self.terms]

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that JSON can store; ``from_dict`` reads it."""
        return {"column": self.column, "terms": list(self.terms), "idf": self.idf.tolist()}

    @classmethod
    def from_dict(cls, d: Any) -> TextFeatures:
        """Return the features described by ``to_dict``."""
        try:
            column, terms, idf = d["column"], [str(term) for term in d["terms"]], np.array(d["idf"], dtype=np.float64)
        except (KeyError, TypeError, ValueError, OverflowError):
            raise ValueError("not a description of text features: expected column, terms and idf") from None
        if not np.isfinite(idf).all():
            raise ValueError("not a description of text features: idf must be finite; got NaN or infinite values")
        if not terms or len(set(terms)) < len(terms) or idf.shape != (len(terms),):
            raise ValueError("not a description of text features: terms must be unique and have one idf each")
        return cls(str(column), tuple(terms), idf)


@dataclass(frozen=True)
class NumberFeatures:
    """Standardized numbers; gaps are filled with the median and, if there were any in training, indicated."""

    column: str
    median: float
    mean: float
    scale: float
    gaps: bool

    @classmethod
    def fit(cls, column: str, numbers: FloatArray) -> NumberFeatures:
        """Return the statistics of a column of numbers, NaN where missing."""
        known = numbers[~np.isnan(numbers)]
        median = float(np.median(known)) if known.size else 0.0
        filled = np.where(np.isnan(numbers), median, numbers)
        mean, scale = float(filled.mean()), float(filled.std())
        return cls(column, median, mean, scale if scale > 0 else 1.0, bool(known.size < numbers.size))

    @property
    def names(self) -> list[str]:
        """Names of the features."""
        return [self.column, f"{self.column}:missing"] if self.gaps else [self.column]

    def encode(self, values: Any) -> Matrix:
        """Return the features of a column of a table."""
        return self.transform(to_numbers(values))

    def transform(self, numbers: FloatArray) -> Matrix:
        """Return the features of some numbers, NaN where missing, a float32 array."""
        missing = np.isnan(numbers)
        filled = (np.where(missing, self.median, numbers) - self.mean) / self.scale
        parts = (filled, missing) if self.gaps else (filled,)
        return np.column_stack(parts).astype(np.float32)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that JSON can store; ``from_dict`` reads it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, d: Any) -> NumberFeatures:
        """Return the features described by ``to_dict``."""
        median, mean, scale = (float(d[name]) for name in ("median", "mean", "scale"))
        if not (np.abs([median, mean, scale]) <= np.finfo(np.float32).max).all() or scale <= 0:
            raise ValueError(
                f"not a description of a numeric column: median={median:g}, mean={mean:g} and scale={scale:g} must be "
                "finite in float32, and scale positive"
            )
        return cls(str(d["column"]), median, mean, scale, bool(d["gaps"]))


@dataclass(frozen=True)
class CategoryFeatures:
    """One-hot encoding of the frequent categories; the rare and unknown ones share a feature, gaps have their own."""

    column: str
    categories: Sequence[str]
    rare: bool
    gaps: bool

    @classmethod
    def fit(cls, column: str, values: Any, max_categories: int) -> CategoryFeatures:
        """Return the frequent categories of a column, in sorted order."""
        counts = values.dropna().map(category_name).value_counts()
        order = sorted(counts.index, key=lambda name: (-counts[name], name))
        kept = sorted(name for name in order[:max_categories] if counts[name] >= MIN_CATEGORY_COUNT)
        return cls(column, tuple(kept), len(kept) < len(order), bool(values.isna().any()))

    @property
    def names(self) -> list[str]:
        """Names of the features."""
        extra = [*([f"{self.column}:rare"] if self.rare else []), *([f"{self.column}:missing"] if self.gaps else [])]
        return [*(f"{self.column}={name}" for name in self.categories), *extra]

    def encode(self, values: Any) -> Matrix:
        """Return the features of a column of a table, a float32 CSR array."""
        q, place = len(self.categories), {name: j for j, name in enumerate(self.categories)}
        missing = values.isna().to_numpy()
        rare = q if self.rare else -1
        codes = np.array([place.get(category_name(value), rare) for value in values], dtype=np.int64)
        codes[missing] = q + self.rare if self.gaps else -1
        rows = np.flatnonzero(codes >= 0)
        ones = np.ones(rows.size, dtype=np.float32)
        return scipy.sparse.csr_array((ones, (rows, codes[rows])), shape=(len(codes), len(self.names)))

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that JSON can store; ``from_dict`` reads it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, d: Any) -> CategoryFeatures:
        """Return the features described by ``to_dict``."""
        names = tuple(str(name) for name in d["categories"])
        if len(set(names)) < len(names):
            raise ValueError(f"not a description of a column of categories: {d['column']!r} repeats a category")
        return cls(str(d["column"]), names, bool(d["rare"]), bool(d["gaps"]))


@dataclass(frozen=True)
class DateFeatures:
    """Parts of dates as numbers: elapsed days, month, day of the week, and the hour if there are times of day."""

    column: str
    parts: Sequence[NumberFeatures]

    @classmethod
    def fit(cls, column: str, values: Any) -> DateFeatures:
        """Return the statistics of the parts of a column of dates."""
        parts = _date_parts(to_dates(values))
        used = [name for name in parts if name != "hour" or np.nansum(parts[name]) > 0]
        return cls(column, tuple(NumberFeatures.fit(f"{column}:{name}", parts[name]) for name in used))

    @property
    def names(self) -> list[str]:
        """Names of the features; the parts share one indicator of gaps."""
        gaps = [f"{self.column}:missing"] if self.parts[0].gaps else []
        return [*(part.column for part in self.parts), *gaps]

    def encode(self, values: Any) -> Matrix:
        """Return the features of a column of a table."""
        parts = _date_parts(to_dates(values))
        encoded = [part.transform(parts[part.column.removeprefix(f"{self.column}:")]) for part in self.parts]
        return np.column_stack([*(block[:, 0] for block in encoded), *(encoded[0][:, 1:].T)])

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that JSON can store; ``from_dict`` reads it."""
        return {"column": self.column, "parts": [part.to_dict() for part in self.parts]}

    @classmethod
    def from_dict(cls, d: Any) -> DateFeatures:
        """Return the features described by ``to_dict``."""
        column, parts = str(d["column"]), tuple(NumberFeatures.from_dict(part) for part in d["parts"])
        allowed = {f"{column}:{name}" for name in ("days", "month", "weekday", "hour")}
        if not parts or not {part.column for part in parts} <= allowed:
            raise ValueError(f"not a description of a column of dates: {column!r}")
        return cls(column, parts)


Step = NumberFeatures | CategoryFeatures | DateFeatures | TextFeatures
STEPS: dict[str, type[Step]] = {
    "number": NumberFeatures,
    "category": CategoryFeatures,
    "date": DateFeatures,
    "text": TextFeatures,
}
"""Steps by the name under which a model stores them; no other step can be loaded."""


class TablePreprocessor(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Transformer of tables with numbers, categories, dates, texts and gaps to numeric features.

    The kind of a column follows from its values: numbers (also yes, no, true, false), ISO dates, or categories.
    Categories that occur once or are not among the most frequent share one feature.

    Parameters
    ----------
    text : str or sequence of str, default=()
        Text columns, converted to TF-IDF features.
    categorical : sequence of str, default=()
        Columns of categories, even if their values are numbers.
    ignore : sequence of str, default=()
        Columns that are not features.
    max_categories : int, default=50
        Maximum number of categories of a column that get their own feature.

    Attributes
    ----------
    steps_ : tuple
        Fitted steps, in the order of the features.
    feature_names_out_ : list of str
        Names of the features.

    See Also
    --------
    ccmn.CorrectedClassifier : Classifier that takes the features.

    Examples
    --------
    >>> import pandas as pd
    >>> from ccmn.data import TablePreprocessor
    >>> table = pd.DataFrame({"age": [20, None, 40], "city": ["Rome", "Oslo", "Rome"]})
    >>> preprocessor = TablePreprocessor().fit(table)
    >>> preprocessor.get_feature_names_out().tolist()
    ['age', 'age:missing', 'city=Rome', 'city:rare']
    >>> preprocessor.transform(table).astype(float).round(1).tolist()
    [[-1.2, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0], [1.2, 0.0, 1.0, 0.0]]
    """

    def __init__(
        self,
        text: str | Sequence[str] = (),
        *,
        categorical: Sequence[str] = (),
        ignore: Sequence[str] = (),
        max_categories: int = DEFAULT_MAX_CATEGORIES,
    ) -> None:
        self.text, self.categorical, self.ignore, self.max_categories = text, categorical, ignore, max_categories

    def fit(self, X: Any, y: Any = None) -> TablePreprocessor:
        """Learn the steps from a table.

        Parameters
        ----------
        X : DataFrame of shape (n, columns)
            Table of pandas, pyarrow or polars.
        y : object, default=None
            Ignored.

        Returns
        -------
        TablePreprocessor
            This object.
        """
        frame = _check_frame(X)
        text = [self.text] if isinstance(self.text, str) else list(self.text)
        check_count(self.max_categories, "max_categories")
        for role, wanted in (("text", text), ("categorical", self.categorical), ("ignore", self.ignore)):
            _check_known(wanted, frame, role)
        steps: list[Step] = [
            _fit_step(name, frame[name], name in self.categorical, self.max_categories)
            for name in frame.columns
            if name not in text and name not in self.ignore and frame[name].notna().any()
        ]
        texts = [TextFeatures.fit(name, list(_texts(frame[name]))) for name in text]
        order = list(STEPS.values())
        self.steps_ = (*sorted(steps, key=lambda step: order.index(type(step))), *texts)
        if not self.steps_:
            raise ValueError("there are no features in these data")
        self.feature_names_out_ = [name for step in self.steps_ for name in step.names]
        self.feature_names_in_ = np.array([step.column for step in self.steps_], dtype=object)
        self.n_features_in_ = len(self.steps_)
        return self

    def transform(self, X: Any) -> Matrix:
        """Return the features of a table.

        Parameters
        ----------
        X : DataFrame
            Table of pandas, pyarrow or polars with the columns of ``fit``, in any order; other columns are ignored.

        Returns
        -------
        array or CSR array of shape (n, features)
            Features in float32; sparse if there are texts or more than 1000 features of categories.
        """
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self, "steps_")
        frame = _check_frame(X)
        missing = [step.column for step in self.steps_ if step.column not in frame.columns]
        if missing:
            raise ValueError(
                f"the table was fitted on {len(self.steps_)} columns, of which {len(missing)} are missing: "
                f"{', '.join(map(repr, missing[:5]))}"
            )
        blocks = [step.encode(frame[step.column]) for step in self.steps_]
        n_sparse = sum(block.shape[1] for block in blocks if is_sparse(block))
        if n_sparse > MAX_DENSE_FEATURES or any(isinstance(step, TextFeatures) for step in self.steps_):
            return scipy.sparse.hstack([scipy.sparse.csr_array(block) for block in blocks], format="csr")
        return np.hstack([block.toarray() if is_sparse(block) else block for block in blocks])

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the features.

        Parameters
        ----------
        input_features : object, default=None
            Ignored; part of the interface of scikit-learn.

        Returns
        -------
        ndarray of object
            Names, one per feature.
        """
        return np.array(self.feature_names_out_, dtype=object)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that JSON can store; ``from_dict`` reads it.

        Returns
        -------
        dict
            The fitted steps.
        """
        kinds = {step: name for name, step in STEPS.items()}
        return {"steps": [{"kind": kinds[type(step)], **step.to_dict()} for step in self.steps_]}

    @classmethod
    def from_dict(cls, d: Any) -> TablePreprocessor:
        """Return the fitted transformer described by ``to_dict``.

        Parameters
        ----------
        d : dict
            Description.

        Returns
        -------
        TablePreprocessor
            Fitted transformer.
        """
        try:
            steps = tuple(STEPS[step["kind"]].from_dict(step) for step in d["steps"])
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"not a description of the preprocessing of a table: {error}") from None
        if not steps or len({step.column for step in steps}) < len(steps):
            raise ValueError("not a description of the preprocessing of a table: expected one step per column")
        made = cls(tuple(step.column for step in steps if isinstance(step, TextFeatures)))
        made.steps_ = steps
        made.feature_names_out_ = [name for step in steps for name in step.names]
        made.feature_names_in_ = np.array([step.column for step in steps], dtype=object)
        made.n_features_in_ = len(steps)
        return made


def to_numbers(values: Any, place: Callable[[int], str] | None = None) -> FloatArray:
    """Return a column of a table as numbers, NaN where missing; raise an error that names any other value.

    ``place`` returns the position of a row in a file.
    """
    if values.dtype.kind in "biuf" and not hasattr(values.dtype, "na_value"):
        numbers = values.to_numpy(np.float64)
    else:
        numbers, wrong = _parse_numbers(values)
        if wrong.any():
            row = int(wrong.argmax())
            where = f"row {row} (from 0)" if place is None else place(row)
            raise ValueError(
                f"{where}: {str(values.iloc[row])[:40]!r} in column {values.name!r} is not a number (leave missing "
                "values empty; ccmn.data.TablePreprocessor encodes texts, categories and dates)"
            )
    large = np.abs(numbers) > np.finfo(np.float32).max
    if large.any():
        row = int(large.argmax())
        where = f"row {row} (from 0)" if place is None else place(row)
        raise ValueError(f"{where}: infinite (or too large) value in column {values.name!r}")
    return np.asarray(numbers)


def to_dates(values: Any) -> Any:
    """Return a column of a table as dates in UTC, NaT where missing; raise an error that names any other value."""
    import pandas as pd

    if values.dtype.kind == "M":
        return pd.to_datetime(values, utc=True)
    dates = pd.to_datetime(values, utc=True, format="ISO8601", errors="coerce")
    wrong = (dates.isna() & values.notna()).to_numpy()
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"{str(values.iloc[row])[:40]!r} in column {values.name!r}, row {row} (from 0), is not a date such as "
            "2026-01-31"
        )
    return dates


def category_name(value: Any) -> str:
    """Return the name of a category; whole numbers have no decimals, so that 3 and 3.0 agree."""
    whole = isinstance(value, (float, np.floating)) and np.isfinite(value) and value == np.floor(value)
    return str(int(value)) if whole else str(value)


def cell_text(value: Any) -> str:
    """Return a cell of a table as text: a dash if it is missing, a date without a time of day at midnight.

    >>> cell_text(3.0), cell_text(None), cell_text("Rome")
    ('3', '–', 'Rome')
    """
    import pandas as pd

    if pd.api.types.is_scalar(value) and pd.isna(value):
        return "–"
    text = f"{value:.6g}" if isinstance(value, (float, np.floating)) else str(value)
    text = text.removesuffix(" 00:00:00") if isinstance(value, pd.Timestamp) else text
    return text if len(text) <= MAX_CELL_CHARACTERS else text[: MAX_CELL_CHARACTERS - 1] + "…"


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


def _fit_step(name: str, values: Any, categorical: bool, max_categories: int) -> Step:
    """Return the step of a column, by the kind of its values."""
    if categorical or values.dtype.name == "category":
        return CategoryFeatures.fit(name, values, max_categories)
    if values.dtype.kind == "M":
        return DateFeatures.fit(name, values)
    if values.dtype.kind in "biuf":
        return NumberFeatures.fit(name, to_numbers(values))
    known, option = values.dropna(), shlex.quote(name)
    if any(isinstance(value, (list, tuple, set, dict, np.ndarray)) for value in known.head(100)):
        raise ValueError(
            f"column {name!r} contains lists. Select it as the column of tags (--tags {option}), or remove it "
            f"(--ignore {option})."
        )
    _, wrong = _parse_numbers(values)
    if wrong.sum() <= (1 - MIN_NUMBER_SHARE) * len(known):
        return NumberFeatures.fit(name, to_numbers(values))
    words = known.astype(str)
    if words.str.fullmatch(_ISO_DATE).all():
        return DateFeatures.fit(name, values)
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
    return CategoryFeatures.fit(name, values, max_categories)


def _parse_numbers(values: Any) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return the numbers in a column of objects, NaN where there is none, and which values are not numbers."""
    import pandas as pd

    def number(value: Any) -> Any:
        if isinstance(value, int) and abs(value) > int(np.finfo(np.float32).max):
            return np.inf  # Python's integers can be too large for a float
        if not isinstance(value, str):
            return value
        return "not a number" if "_" in value else NUMBER_WORDS.get(value.strip().lower(), value)  # Python reads 1_0

    numbers = pd.to_numeric(values.map(number), errors="coerce").to_numpy(np.float64, na_value=np.nan)
    return numbers, np.isnan(numbers) & values.notna().to_numpy()


def _date_parts(dates: Any) -> dict[str, FloatArray]:
    """Return the parts of dates as numbers, NaN where missing."""
    import pandas as pd

    days = (dates - pd.Timestamp("1970-01-01", tz="UTC")) / pd.Timedelta(days=1)
    parts = {"days": days, "month": dates.dt.month, "weekday": dates.dt.day_of_week, "hour": dates.dt.hour}
    return {name: part.to_numpy(np.float64, na_value=np.nan) for name, part in parts.items()}


def _texts(values: Any) -> Any:
    """Return a column of texts, empty where missing."""
    return values.astype(object).where(values.notna(), "").map(str)


def _check_frame(X: Any) -> Any:
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


def _check_known(wanted: Sequence[str], frame: Any, parameter: str) -> None:
    """Reject columns that the table does not have."""
    unknown = [name for name in wanted if name not in frame.columns]
    if unknown:
        raise ValueError(f"{parameter}: there is no column {unknown[0]!r}; the columns are {list(frame.columns[:20])}")


def _vectorizer(**settings: Any) -> Any:
    """Return scikit-learn's TF-IDF vectorizer with the settings of this module."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(sublinear_tf=True, dtype=np.float64, **settings)
