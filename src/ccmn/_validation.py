"""Validation of user input, shared by all public entry points.

Every check returns the value it validated, or raises an error that states what was expected, what was received and,
where possible, how to fix it. Checks are grouped by their subject: numbers and choices, names, matrices, labels, rows,
noise rates and noise models, tensors and devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Sized
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]

MAX_NAMED_LABELS = 5
"""Messages name at most this many labels."""
MIN_SIGNAL = 1e-9
"""``1 - rho_pos - rho_neg`` must be at least this: 1 - (0.3 + 0.7) is not exactly 0 in floating point."""
MAX_CONDITION = 1e8
"""Transition matrices with a larger condition number are rejected as singular."""


def check_count(value: object, argument: str) -> int:
    """Return an integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{argument} must be an integer of at least 1; got {value!r}")
    return int(value)


def check_real(value: object, argument: str, low: float, high: float, remedy: str = "") -> float:
    """Return a number strictly between ``low`` and ``high``."""
    number = _number(value, f"{argument} must be a number")
    if not low < number < high:
        between = f"between {low:g} and {high:g}" if high < float("inf") else f"finite and above {low:g}"
        raise ValueError(f"{argument} must be {between}; got {number:g}.{remedy and ' ' + remedy}")
    return number


def check_share(value: object, argument: str) -> float:
    """Return a number from 0 to 1, both included."""
    number = _number(value, f"{argument} must be a number from 0 to 1")
    if not 0 <= number <= 1:
        raise ValueError(f"{argument} must be from 0 to 1; got {number:g}")
    return number


def _number(value: object, expected: str) -> float:
    """Return ``float(value)``; ``expected`` is the first part of the error message."""
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{expected}; got {value!r}") from None


def check_penalty(value: object, argument: str) -> float:
    """Return the weight of a penalty: a number of at least 0, or infinity."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)) or not value >= 0:
        raise ValueError(f"{argument} must be a number of at least 0; got {value!r}")
    return float(value)


def check_fractions(fractions: ArrayLike) -> FloatArray:
    """Return positive fractions with sum 1."""
    shares = _float_array(fractions, "fractions must be numbers with sum 1")
    if shares.ndim != 1 or not shares.size or not (shares > 0).all() or abs(shares.sum() - 1) > 1e-9:
        raise ValueError(f"fractions must be positive numbers with sum 1, such as (0.5, 0.2, 0.3); got {fractions!r}")
    return shares


def _float_array(values: Any, expected: str) -> FloatArray:
    """Return values as a new float64 array; ``expected`` is the first part of the error message."""
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{expected}; got {values!r}") from None


def check_choice(value: str, argument: str, choices: Sequence[str]) -> str:
    """Return one of the ``choices``."""
    if value not in choices:
        raise ValueError(f"{argument} must be {' or '.join(map(repr, choices))}; got {value!r}")
    return value


def name_some(labels: Iterable[int], names: Sequence[str] | None, total: int) -> str:
    """Return a list of label names (or indices) for a message.

    >>> name_some([3, 7], None, 14)
    'labels 3 and 7 (of 14)'
    >>> name_some([0], ["sea", "sky"], 2)
    "label 'sea' (of 2)"
    """
    labels = list(labels)
    shown = [repr(names[j]) if names else str(j) for j in labels[:MAX_NAMED_LABELS]]
    if len(labels) > len(shown):
        shown.append(f"{len(labels) - len(shown)} more")
    listed = " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
    return f"label{'s' if len(labels) > 1 else ''} {listed} (of {total})"


def check_names(names: Sequence[Any] | None, total: int, what: str = "label") -> tuple[str, ...] | None:
    """Return one distinct name per label, or per feature, as strings, or None."""
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, Sized) or len(names) != total:
        given = f"{len(names)} names" if isinstance(names, Sized) and not isinstance(names, str) else repr(names)
        raise ValueError(f"{what}_names must give one name per {what} ({total}); got {given}")
    result = tuple(str(name) for name in names)
    if len(set(result)) < total:
        duplicate = next(name for name, count in Counter(result).items() if count > 1)
        raise ValueError(f"{what}_names must be unique; {duplicate!r} occurs more than once")
    return result


def check_same_labels(first: tuple[str, Sequence[str] | None], second: tuple[str, Sequence[str] | None]) -> None:
    """Reject two arguments with different label names or orders; each is ``(argument, names or None)``."""
    (argument, names), (other, other_names) = first, second
    if names is None or other_names is None or tuple(names) == tuple(other_names):
        return
    if set(names) == set(other_names):
        remedy = f"reorder the columns with {argument}[list of names]"
    else:
        remedy = "both must have the same labels"
    raise ValueError(
        f"{argument} has labels {', '.join(names[:4])} ..., but {other} has {', '.join(other_names[:4])} ...: {remedy}"
    )


def check_numeric(array: NDArray[Any], argument: str) -> None:
    """Reject arrays of anything but booleans, integers and floats."""
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{argument} must be a matrix of numbers; got dtype {array.dtype}")


def check_matrix_pair(first: Any, second: Any, names: tuple[str, str]) -> None:
    """Reject two arrays or tensors unless both have the same shape (n, q) with n, q >= 1."""
    for matrix, name in zip((first, second), names):
        if matrix.ndim != 2:
            raise ValueError(
                f"{name} must be a matrix of shape (n, q), one row per sample and one column per label; got shape "
                f"{tuple(matrix.shape)}. Reshape a single sample to one row, and a single label to one column."
            )
    shapes = tuple(first.shape), tuple(second.shape)
    if shapes[0] != shapes[1]:
        dummy = shapes[1] == (shapes[0][0], shapes[0][1] + 1)
        remedy = " If column 0 is the dummy label, pass loss.decision(outputs)." if dummy else ""
        raise ValueError(
            f"{names[0]} and {names[1]} must have the same shape (n, q); got {shapes[0]} and {shapes[1]}.{remedy}"
        )
    if 0 in shapes[0]:
        raise ValueError(f"{names[0]} must have at least one row and one label; got shape {shapes[0]}")


def check_no_nan(matrix: Any, argument: str, first_row: int = 0) -> None:
    """Reject an array or tensor that contains NaN; the message counts rows from ``first_row``."""
    unknown = matrix != matrix
    if unknown.any():
        row, label = divmod(unknown.ravel().tolist().index(True), matrix.shape[1])
        raise ValueError(
            f"{argument} contains NaN, first in row {first_row + row}, label {label}; a metric needs every value: "
            "remove these rows or labels"
        )


def check_probabilities(values: NDArray[Any], argument: str) -> FloatArray:
    """Return numbers from 0 to 1, without NaN, as float64."""
    check_numeric(values, argument)
    wrong = ~((values >= 0) & (values <= 1))
    if wrong.any():
        bad = values[wrong].ravel()[0]
        remedy = "every probability is required" if np.isnan(bad) else "convert scores with 1 / (1 + exp(-scores))"
        raise ValueError(f"{argument} must be probabilities, between 0 and 1; got {bad:g}: {remedy}")
    return np.asarray(values, dtype=np.float64)


def check_label_values(
    values: Any, argument: str = "labels", remedy: str = "", gap: str = " (NaN: not observed)"
) -> None:
    """Reject an array or tensor with values other than 0, 1 and NaN; of a sparse matrix pass the stored values."""
    if isinstance(values, np.ndarray) and values.dtype.kind not in "biuf":
        raise ValueError(f"{argument} must be numbers 0 or 1{gap}; got dtype {values.dtype}")
    wrong = values[(values != 0) & (values != 1) & (values == values)]
    if len(wrong):
        signs = " For -1/+1 labels pass (Y + 1) / 2." if (wrong == -1).any() else ""
        raise ValueError(f"{argument} must be 0 or 1{gap}; got {float(wrong[0]):g}.{signs}{remedy}")


def check_label_width(shape: Sequence[int], n_labels: int, argument: str = "labels") -> None:
    """Reject a shape whose last dimension is not ``n_labels``."""
    if len(shape) == 0 or shape[-1] != n_labels:
        raise ValueError(
            f"{argument} must have {n_labels} labels in the last dimension, shape (n, {n_labels}); "
            f"got shape {tuple(shape)}"
        )


def check_label_matrix(Y: NDArray[Any], argument: str) -> FloatArray:
    """Return labels 0, 1 or NaN of shape (n, q) with n, q >= 1 as float64."""
    if Y.ndim != 2 or not Y.size:
        raise ValueError(
            f"{argument} must be a matrix of shape (n, q), one row per sample and one column per label; "
            f"got shape {Y.shape}"
        )
    if Y.dtype == object:
        with suppress(TypeError, ValueError):
            Y = Y.astype(np.float64)  # texts "0" and "1" of a file
    check_label_values(Y, argument)
    return Y.astype(np.float64)


def check_one_hot(rows: NDArray[Any]) -> None:
    """Reject label rows unless each has exactly one 1 or contains NaN (not observed)."""
    total = rows.sum(-1)
    if not ((total == 1) | np.isnan(np.asarray(total, dtype=np.float64))).all():
        raise ValueError(
            f"labels must be one-hot: exactly one 1 per row; got a row with {np.nanmax(np.abs(total - 1)) + 1:g} "
            "or none. For rows with several labels use ClassConditionalNoise."
        )


def check_zero_one(matrix: Any, argument: str) -> None:
    """Reject an array or tensor with values other than 0 and 1; NaN is also rejected, as in ``check_no_nan``."""
    check_no_nan(matrix, argument)
    check_label_values(matrix, argument, " Apply a threshold to scores: scores >= 0.", gap="")


def check_groups(groups: Any, n: int, known: Sequence[Any] | None = None) -> NDArray[np.intp]:
    """Return the index of the group of every row in ``known`` (default: groups in order of first appearance)."""
    names = [item.item() if isinstance(item, np.generic) else item for item in groups]
    if not all(isinstance(name, Hashable) for name in names):
        raise ValueError(f"groups must have one name per row; got {type(names[0]).__name__} objects")
    if len(names) != n:
        raise ValueError(f"groups must have one entry per row ({n}); got {len(names)}")
    number = {name: i for i, name in enumerate(dict.fromkeys(names) if known is None else known)}
    unknown = next((name for name in names if name not in number), None)
    if unknown is not None:
        listed = ", ".join(map(repr, list(number)[:5]))
        raise ValueError(f"groups contains {unknown!r}, which has no rates; known groups: {listed}")
    return np.array([number[name] for name in names], dtype=np.intp)


def check_trusted_rows(trusted: Any, n: int) -> tuple[NDArray[np.intp], Any]:
    """Return ``(rows, Y_true)`` with distinct row numbers below ``n``; ``Y_true`` is not checked.

    ``trusted`` is such a pair, or an array or DataFrame (n, q) with the true labels of all rows, NaN = not verified.
    Rows without a verified label are left out, so that there may be none.
    """
    if getattr(trusted, "ndim", 0) == 2:
        if trusted.shape[0] != n:
            raise ValueError(f"trusted must be an array with one row per sample ({n}); got {trusted.shape[0]} rows")
        trusted = trusted.toarray() if hasattr(trusted, "toarray") else trusted
        rows = np.flatnonzero(~np.isnan(np.asarray(trusted, dtype=np.float64)).all(1))
        return rows, trusted.iloc[rows] if hasattr(trusted, "iloc") else trusted[rows]
    if not isinstance(trusted, (tuple, list)) or len(trusted) != 2:
        raise ValueError(
            "trusted must be a pair (rows, Y_true) of row numbers and the true labels of these rows, or an array of "
            f"shape (n, q) with NaN for labels that are not verified; got {type(trusted).__name__}"
        )
    rows = np.asarray(trusted[0])
    if rows.dtype == bool and rows.shape == (n,):
        rows = np.flatnonzero(rows)
    if rows.ndim != 1 or not rows.size or not np.issubdtype(rows.dtype, np.integer):
        raise ValueError(f"the rows of trusted must be a list of row numbers; got shape {rows.shape}, {rows.dtype}")
    if rows.min() < 0 or rows.max() >= n:
        raise ValueError(f"the rows of trusted must be numbers from 0 to {n - 1}; got {rows.min()} to {rows.max()}")
    if np.unique(rows).size < rows.size:
        raise ValueError("the rows of trusted must be unique: duplicates would understate the standard errors")
    return rows.astype(np.intp), trusted[1]


def check_rates(rates: ArrayLike, argument: str, n_labels: int | None) -> FloatArray:
    """Return one rate from 0 to 1 per label; a single number is repeated ``n_labels`` times.

    ``check_rate_sums`` rejects rates of 1.
    """
    array = _float_array(rates, f"{argument} must be a number or a list of numbers, one rate per label")
    if array.ndim == 0:
        if n_labels is None:
            raise ValueError(f"{argument} is the single number {array}; pass n_labels=q as well, or one rate per label")
        array = np.full(n_labels, float(array))
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{argument} must have one rate per label, shape (q,); got shape {array.shape}")
    if n_labels is not None and array.size != n_labels:
        raise ValueError(f"{argument} has {array.size} rates, but there are {n_labels} labels")
    wrong = np.flatnonzero(~((array >= 0) & (array <= 1)))
    if wrong.size:
        raise ValueError(
            f"{argument} must be probabilities, between 0 and 1; got {array[wrong[0]]:g} for "
            f"{name_some(wrong, None, array.size)}"
        )
    return array


def check_rate_sums(rho_pos: FloatArray, rho_neg: FloatArray, names: Sequence[str] | None) -> None:
    """Reject rates unless ``rho_pos + rho_neg < 1`` for every label, which the paper requires."""
    wrong = np.flatnonzero(1.0 - rho_pos - rho_neg < MIN_SIGNAL)
    if wrong.size:
        j = wrong[0]
        raise ValueError(
            f"rho_pos + rho_neg must be below 1 for every label; got {rho_pos[j]:g} + {rho_neg[j]:g} for "
            f"{name_some(wrong, names, rho_pos.size)}. With a sum of 1 the noisy label is independent of the true "
            "label: lower a rate or remove the label."
        )


def check_transition(T: ArrayLike) -> FloatArray:
    """Return an invertible transition matrix: square, entries from 0 to 1, rows with sum 1; it becomes read-only."""
    matrix = _float_array(T, "T must be a square matrix of probabilities")
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise ValueError(f"T must be a square matrix (true class x noisy class); got shape {matrix.shape}")
    if not ((matrix >= 0) & (matrix <= 1)).all():
        raise ValueError("T must be probabilities: every entry must be between 0 and 1")
    sums = matrix.sum(1)
    if not np.allclose(sums, 1, atol=1e-6):
        j = int(np.abs(sums - 1).argmax())
        columns = " Its columns do: pass T.T." if np.allclose(matrix.sum(0), 1, atol=1e-6) else ""
        raise ValueError(f"the rows of T (true classes) must sum to 1; row {j} sums to {sums[j]:g}.{columns}")
    if np.linalg.cond(matrix) > MAX_CONDITION:
        raise ValueError(
            "T is singular or nearly singular: noisy labels do not distinguish all true classes. Merge classes, or "
            "lower the rates."
        )
    matrix.flags.writeable = False
    return matrix


def check_noise(noise: object, kind: type) -> None:
    """Reject anything but a noise model (an instance of ``kind``) or None."""
    if noise is None or isinstance(noise, kind):
        return
    given = repr(noise) if isinstance(noise, str) else type(noise).__name__
    raise TypeError(
        f"noise must be a noise model such as ClassConditionalNoise(rho_pos, rho_neg), or None; got {given}"
    )


def check_noise_or_rates(noise: object, kinds: tuple[type, ...]) -> None:
    """Reject anything but a noise model or estimated rates (instances of ``kinds``)."""
    if isinstance(noise, kinds) and not isinstance(noise, type):
        return
    given = repr(noise) if isinstance(noise, (str, type)) else type(noise).__name__
    if hasattr(noise, "groups") and not isinstance(noise, type):
        given += ", whose rates depend on the group: pass noise.mean(groups), or evaluate each group on its own"
    raise TypeError(
        "noise must be a noise model such as ClassConditionalNoise(rho_pos, rho_neg), or the rates that "
        f"ccmn.estimate_noise(...) returns; got {given}"
    )


def check_rates_known(noise: object, kind: type) -> None:
    """Reject anything but a noise model of the class ``kind``."""
    if not isinstance(noise, kind):
        given = f"the class {noise.__name__}" if isinstance(noise, type) else type(noise).__name__
        raise TypeError(f"noise must be a {kind.__name__}, because the formula uses its rates; got {given}")


def check_device(name: str, cuda_available: bool) -> str:
    """Return the name of an available device; "auto" is CUDA if available, else the CPU."""
    if name == "auto":
        return "cuda" if cuda_available else "cpu"
    kind = name.split(":")[0] if isinstance(name, str) else ""
    if kind not in ("cpu", "cuda", "mps", "xpu"):
        raise ValueError(f"device must be 'auto', 'cpu', 'cuda' or another device of torch; got {name!r}")
    if kind == "cuda" and not cuda_available:
        raise ValueError(f"device={name!r}, but torch finds no CUDA device: use 'auto' or 'cpu'")
    return name


# -- Parameters of estimators


class Satisfies(NamedTuple):
    """Values that a function accepts, with their description."""

    accepts: Callable[[Any], bool]
    description: str


Constraints = Mapping[str, Sequence[Satisfies]]
"""Allowed values of every parameter of an estimator."""


def one_of(*words: str) -> Satisfies:
    return Satisfies(lambda value: isinstance(value, str) and value in words, ", ".join(map(repr, words)))


def number(low: float, high: float = np.inf, *, open_ends: bool = False, integer: bool = False) -> Satisfies:
    """Return the constraint for numbers from ``low`` to ``high``, or strictly between them."""
    kinds = (int, np.integer) if integer else (int, float, np.integer, np.floating)

    def accepts(value: Any) -> bool:
        inside = isinstance(value, kinds) and (low < value < high if open_ends else low <= value <= high)
        return bool(inside and not isinstance(value, bool))

    interval = f"({low:g}, {high:g})" if open_ends else f"[{low:g}, {high:g}]"
    return Satisfies(accepts, f"{'an integer' if integer else 'a number'} in {interval}")


def check_parameters(parameters: Mapping[str, Any], table: Constraints) -> None:
    """Reject parameters that none of their constraints accepts; the message names all of them."""
    for name, constraints in table.items():
        value = parameters[name]
        if not any(constraint.accepts(value) for constraint in constraints):
            given = repr(value) if isinstance(value, (str, int, float, tuple, list)) else type(value).__name__
            allowed = " or ".join(constraint.description for constraint in constraints)
            raise ValueError(f"{name} must be {allowed}; got {given:.100}")
