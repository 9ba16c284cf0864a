"""Validation of user input, shared by all public entry points.

Every message states what was expected, what was received and how to fix it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence, Sized
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


FloatArray = NDArray[np.float64]


def check_count(value: object, argument: str) -> int:
    """A whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{argument} must be a whole number of at least 1; got {value!r}")
    return int(value)


def check_real(value: object, argument: str, low: float, high: float, remedy: str = "") -> float:
    """A number strictly between two others."""
    try:
        number = float(value)  # type: ignore[arg-type]  # whatever cannot be a number is refused below
    except (TypeError, ValueError):
        raise ValueError(f"{argument} must be a number; got {value!r}") from None
    if not low < number < high:
        between = f"between {low:g} and {high:g}" if high < float("inf") else f"finite and above {low:g}"
        raise ValueError(f"{argument} must be {between}; got {number:g}.{remedy and ' ' + remedy}")
    return number


def check_share(value: object, argument: str, least: float = 0.0, why: str = "") -> float:
    """A number from ``least`` to 1, the ends included."""
    try:
        number = float(value)  # type: ignore[arg-type]  # whatever cannot be a number is refused below
    except (TypeError, ValueError):
        raise ValueError(f"{argument} must be a number from {least:g} to 1; got {value!r}") from None
    if not least <= number <= 1:
        raise ValueError(f"{argument} must be from {least:g} to 1; got {number:g}{why and f': {why}'}")
    return number


def check_penalty(value: object, argument: str) -> float:
    """The weight of a penalty: a number of at least 0, infinity included."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)) or not value >= 0:
        raise ValueError(f"{argument} must be a number of at least 0; got {value!r}")
    return float(value)


def check_fractions(fractions: ArrayLike) -> FloatArray:
    """Shares of a whole: positive, adding up to 1."""
    try:
        shares = np.asarray(fractions, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"fractions must be numbers that add up to 1; got {fractions!r}") from None
    if shares.ndim != 1 or not shares.size or not (shares > 0).all() or abs(shares.sum() - 1) > 1e-9:
        raise ValueError(f"fractions must be positive and add up to 1, as (0.5, 0.2, 0.3) do; got {fractions!r}")
    return shares


def check_choice(value: str, argument: str, choices: Sequence[str]) -> str:
    """One of a few words."""
    if value not in choices:
        raise ValueError(f"{argument} must be {' or '.join(map(repr, choices))}; got {value!r}")
    return value


_MOST_NAMED = 5


def name_some(labels: Iterable[int], names: Sequence[str] | None, total: int) -> str:
    """Name the labels a message is about: 'labels 3 and 7 (of 14)'.

    >>> name_some([3, 7], None, 14)
    'labels 3 and 7 (of 14)'
    >>> name_some([0], ["sea", "sky"], 2)
    "label 'sea' (of 2)"
    """
    labels = list(labels)
    shown = [repr(names[j]) if names else str(j) for j in labels[:_MOST_NAMED]]
    rest = len(labels) - len(shown)
    if rest:
        listed = f"{', '.join(shown)} and {rest} more"
    elif len(shown) > 1:
        listed = f"{', '.join(shown[:-1])} and {shown[-1]}"
    else:
        listed = shown[0]
    return f"label{'s' if len(labels) > 1 else ''} {listed} (of {total})"


def check_label_names(names: Sequence[Any] | None, n_labels: int) -> tuple[str, ...] | None:
    """Label names as strings, one per label, no name twice."""
    return _check_names(names, n_labels, "label")


def check_feature_names(names: Sequence[Any] | None, n_features: int) -> tuple[str, ...] | None:
    """Feature names as strings, one per feature, no name twice."""
    return _check_names(names, n_features, "feature")


def _check_names(names: Sequence[Any] | None, total: int, what: str) -> tuple[str, ...] | None:
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, Sized) or len(names) != total:
        given = f"{len(names)} names" if isinstance(names, Sized) and not isinstance(names, str) else repr(names)
        raise ValueError(f"{what}_names must give one name per {what} ({total}); got {given}")
    result = tuple(str(name) for name in names)
    if len(set(result)) < total:
        twice = next(name for name, count in Counter(result).items() if count > 1)
        raise ValueError(f"{what}_names must differ; {twice!r} stands there more than once")
    return result


def check_same_labels(first: tuple[str, Sequence[str] | None], second: tuple[str, Sequence[str] | None]) -> None:
    """Two things about labels are about the same ones, in the same order, as far as both know their names."""
    (argument, names), (other, others) = first, second
    if names is None or others is None or tuple(names) == tuple(others):
        return
    same = set(names) == set(others)
    remedy = f"bring them into one order, {argument}[list of names]" if same else "they must be about the same labels"
    raise ValueError(
        f"{argument} is about labels {', '.join(names[:4])} ..., {other} about {', '.join(others[:4])} ...: {remedy}"
    )


def check_numeric(array: NDArray[Any], argument: str) -> None:
    """Booleans, integers or floats."""
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{argument} must be a matrix of numbers; got dtype {array.dtype}")


def check_matrix_pair(first: Any, second: Any, names: tuple[str, str]) -> None:
    """Two matrices (arrays or tensors) of one shape (n, q), with at least one entry."""
    for matrix, name in zip((first, second), names):
        if matrix.ndim != 2:
            raise ValueError(
                f"{name} must be a matrix of shape (n, q), a row per sample and a column per label; got shape "
                f"{tuple(matrix.shape)}. A single sample is a matrix of one row, a single label one of one column."
            )
    shapes = tuple(first.shape), tuple(second.shape)
    if shapes[0] != shapes[1]:
        dummy = shapes[1] == (shapes[0][0], shapes[0][1] + 1)
        remedy = " Outputs with a dummy label in column 0 become scores by loss.decision(outputs)." if dummy else ""
        raise ValueError(
            f"{names[0]} and {names[1]} must have one shape (n, q); got {shapes[0]} and {shapes[1]}.{remedy}"
        )
    if 0 in shapes[0]:
        raise ValueError(f"{names[0]} must have at least one row and one label; got shape {shapes[0]}")


def check_same_shape(matrix: NDArray[Any], like: NDArray[Any], argument: str, what: str) -> None:
    """A matrix of labels beside another one."""
    if matrix.shape != like.shape:
        raise ValueError(f"{argument} must have the shape of {what}, {like.shape}; got {matrix.shape}")


def check_same_rows(first: Any, second: Any, names: tuple[str, str]) -> None:
    """Two matrices, dense or sparse, with as many rows."""
    if first.shape[0] != second.shape[0]:
        raise ValueError(
            f"{names[0]} and {names[1]} must have the same rows; got {first.shape[0]} and {second.shape[0]}"
        )


def check_no_nan(matrix: Any, argument: str) -> None:
    """No NaN in a matrix (array or tensor)."""
    unknown = matrix != matrix
    if unknown.any():
        row, label = divmod(unknown.ravel().tolist().index(True), matrix.shape[1])
        raise ValueError(
            f"{argument} holds NaN, first in row {row}, label {label}: a metric needs every entry; "
            "leave such rows (or labels) out"
        )


def check_no_missing(X: Any, names: Sequence[str] | None) -> None:
    """No missing value (NaN) among the features, in an array or CSR."""
    coo = X.tocoo() if hasattr(X, "tocoo") else None
    rows, columns = np.nonzero(np.isnan(X)) if coo is None else (c[np.isnan(coo.data)] for c in coo.coords)
    if len(rows):
        name = repr(names[columns[0]]) if names else str(columns[0])
        raise ValueError(
            f"{len(rows)} feature values are missing, first in row {rows[0]} (from 0), column {name}: fill them in "
            "(with the column's mean, say), or leave those rows or columns out"
        )


def check_nonnegative(X: Any, argument: str) -> None:
    """No negative entry in a matrix, dense or sparse."""
    if X.min() < 0:
        raise ValueError(
            f"{argument} must not be negative; its smallest entry is {X.min():g}: scale the features to [0, 1], for "
            "instance with sklearn.preprocessing.MinMaxScaler"
        )


def check_probabilities(values: NDArray[Any], argument: str) -> FloatArray:
    """Numbers between 0 and 1, without NaN, as float64."""
    check_numeric(values, argument)
    wrong = ~((values >= 0) & (values <= 1))
    if wrong.any():
        bad = values[wrong].ravel()[0]
        remedy = "leave no entry out" if np.isnan(bad) else "scores become probabilities by 1 / (1 + exp(-scores))"
        raise ValueError(f"{argument} must hold probabilities, between 0 and 1; got {bad:g}: {remedy}")
    return np.asarray(values, dtype=np.float64)


def check_label_values(values: NDArray[Any], argument: str = "labels") -> None:
    """0, 1 or NaN, and nothing else (values of a matrix, or the stored values of a sparse one)."""
    if values.dtype == bool:
        return
    if not np.issubdtype(values.dtype, np.number):
        raise ValueError(f"{argument} must be numbers 0 or 1 (NaN: not observed); got dtype {values.dtype}")
    wrong = ~((values == 0) | (values == 1))
    if np.issubdtype(values.dtype, np.floating):
        wrong &= ~np.isnan(values)
    if wrong.any():
        bad = values[wrong].ravel()[0]
        remedy = " For -1/+1 labels pass (Y + 1) / 2." if (values == -1).any() else ""
        raise ValueError(f"{argument} must be 0 or 1 (NaN: not observed); got {bad:g}.{remedy}")


def check_label_width(shape: Sequence[int], n_labels: int, argument: str = "labels") -> None:
    """The last dimension is the labels', and as long as the noise model says."""
    if len(shape) == 0 or shape[-1] != n_labels:
        raise ValueError(
            f"{argument} must have {n_labels} labels in the last dimension, shape (n, {n_labels}); "
            f"got shape {tuple(shape)}"
        )


def check_label_matrix(Y: NDArray[Any], argument: str) -> FloatArray:
    """Labels of shape (n, q) with at least one entry, 0, 1 or NaN, as float64."""
    if Y.ndim != 2 or not Y.size:
        raise ValueError(
            f"{argument} must be a matrix of shape (n, q), a row per sample and a column per label; got shape {Y.shape}"
        )
    if Y.dtype == object:
        try:
            Y = Y.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"{argument} must hold numbers 0 or 1 (NaN: not observed)") from None
    check_label_values(Y, argument)
    return Y.astype(np.float64)


def check_one_hot(rows: NDArray[Any], argument: str = "labels") -> None:
    """Exactly one 1 per row, or a NaN (not observed)."""
    total = rows.sum(-1)
    if not ((total == 1) | np.isnan(np.asarray(total, dtype=np.float64))).all():
        raise ValueError(
            f"{argument} must be one-hot: exactly one 1 per row; got a row with {np.nanmax(np.abs(total - 1)) + 1:g} "
            "or none. For rows with several labels use ClassConditionalNoise."
        )


def check_zero_one(matrix: Any, argument: str) -> None:
    """0 or 1 and nothing else, not even NaN, in a matrix (array or tensor)."""
    check_no_nan(matrix, argument)
    wrong = (matrix != 0) & (matrix != 1)
    if wrong.any():
        remedy = "for -1/+1 labels pass (Y + 1) / 2" if (matrix == -1).any() else "cut scores into labels, scores >= 0"
        raise ValueError(f"{argument} must be 0 or 1; got {matrix[wrong][0]:g}: {remedy}")


def check_candidates(candidates: NDArray[Any], argument: str = "candidates") -> FloatArray:
    """Candidate sets (n, q) of 0 and 1, every entry known, as float64."""
    if candidates.dtype.kind not in "biuf" or not ((candidates == 0) | (candidates == 1)).all():
        raise ValueError(
            f"Only binary classification is supported. {argument} must be 0 or 1 for every label; got "
            f"{np.unique(candidates)[:5].tolist()}: for -1/+1 pass (candidates + 1) / 2."
        )
    if candidates.ndim != 2:
        raise ValueError(
            f"{argument} must be a matrix of shape (n, q), 1 where a label is in the row's candidate set; got shape "
            f"{candidates.shape}. One class per row becomes such a matrix by sklearn.preprocessing.label_binarize."
        )
    return candidates.astype(np.float64)


def check_votes(votes: Any) -> FloatArray:
    """Votes (n, annotators, q) of 0, 1 or NaN, as float64."""
    array = np.asarray(votes)
    if array.ndim != 3 or not array.size:
        raise ValueError(f"annotators must be an array (n, annotators, labels) of votes; got shape {array.shape}")
    check_numeric(array, "annotators")
    check_label_values(array, "annotators")
    return array.astype(np.float64)


def check_groups(groups: Any, n: int, known: Sequence[Any] | None = None) -> NDArray[np.intp]:
    """The number of every row's group among the known ones (in order of first appearance where none are given)."""
    names = [item.item() if isinstance(item, np.generic) else item for item in groups]
    if len(names) != n:
        raise ValueError(f"groups must name the group of each of the {n} rows; got {len(names)}")
    number = {name: i for i, name in enumerate(dict.fromkeys(names) if known is None else known)}
    strange = next((name for name in names if name not in number), None)
    if strange is not None:
        listed = ", ".join(map(repr, list(number)[:5]))
        raise ValueError(f"there are no rates for group {strange!r}; there are for {listed}")
    return np.array([number[name] for name in names], dtype=np.intp)


def check_trusted_rows(trusted: Any, n: int) -> tuple[NDArray[np.intp], Any]:
    """``(rows, Y_true)`` with numbers of rows of the data, none twice; ``Y_true`` is checked by whoever knows q."""
    if not isinstance(trusted, (tuple, list)) or len(trusted) != 2:
        raise ValueError(
            "trusted must be a pair (rows, Y_true): the numbers of the rows whose true labels are known, and those "
            f"labels; got {type(trusted).__name__}"
        )
    rows = np.asarray(trusted[0])
    if rows.dtype == bool and rows.shape == (n,):
        rows = np.flatnonzero(rows)
    if rows.ndim != 1 or not rows.size or not np.issubdtype(rows.dtype, np.integer):
        raise ValueError(f"the rows of trusted must be a list of row numbers; got shape {rows.shape}, {rows.dtype}")
    if rows.min() < 0 or rows.max() >= n:
        raise ValueError(f"the rows of trusted must be numbers from 0 to {n - 1}; got {rows.min()} to {rows.max()}")
    if np.unique(rows).size < rows.size:
        raise ValueError("the rows of trusted must differ: a row counted twice would make the result seem surer")
    return rows.astype(np.intp), trusted[1]


def check_rates(rates: ArrayLike, argument: str, n_labels: int | None) -> FloatArray:
    """One rate per label in [0, 1]; a single number is repeated for ``n_labels``.

    The half-open end (a rate below 1) follows from ``check_rate_sums``.
    """
    try:
        array = np.array(rates, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"{argument} must be a number or a list of numbers, one rate per label; got {rates!r}"
        ) from None
    if array.ndim == 0:
        if n_labels is None:
            raise ValueError(
                f"{argument} is the single number {array}; say for how many labels with n_labels=q, "
                "or give one rate per label"
            )
        array = np.full(n_labels, float(array))
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{argument} must have one rate per label, shape (q,); got shape {array.shape}")
    if n_labels is not None and array.size != n_labels:
        raise ValueError(f"{argument} has {array.size} rates, but there are {n_labels} labels")
    if np.isnan(array).any():
        where = name_some(np.flatnonzero(np.isnan(array)), None, array.size)
        raise ValueError(f"{argument} is NaN for {where}: every label needs a rate (0 where it is never wrong)")
    if ((array < 0) | (array > 1)).any():
        wrong = np.flatnonzero((array < 0) | (array > 1))
        raise ValueError(
            f"{argument} holds probabilities, between 0 and 1; got {array[wrong[0]]:g} "
            f"for {name_some(wrong, None, array.size)}"
        )
    return array


def check_rate_sums(rho_pos: FloatArray, rho_neg: FloatArray, names: Sequence[str] | None) -> None:
    """The paper's condition rho_pos + rho_neg < 1, label by label."""
    # 1 - (0.3 + 0.7) is not 0 in floating point; a signal this weak cannot be inverted either way.
    wrong = np.flatnonzero(1.0 - rho_pos - rho_neg < 1e-9)
    if wrong.size:
        j = wrong[0]
        raise ValueError(
            f"rho_pos + rho_neg must be below 1 for every label; got {rho_pos[j]:g} + {rho_neg[j]:g} for "
            f"{name_some(wrong, names, rho_pos.size)}. At 1 the noisy label carries nothing about the true one: "
            "lower a rate or drop the label."
        )


def check_transition(T: ArrayLike) -> FloatArray:
    """A square, invertible matrix of probabilities whose rows sum to 1."""
    try:
        matrix = np.array(T, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"T must be a square matrix of probabilities; got {T!r}") from None
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise ValueError(f"T must be a square matrix (true class x noisy class); got shape {matrix.shape}")
    if not ((matrix >= 0) & (matrix <= 1)).all():
        raise ValueError("T holds probabilities: every entry must be between 0 and 1")
    sums = matrix.sum(1)
    if not np.allclose(sums, 1, atol=1e-6):
        j = int(np.abs(sums - 1).argmax())
        columns = " Its columns do: pass T.T." if np.allclose(matrix.sum(0), 1, atol=1e-6) else ""
        raise ValueError(f"the rows of T (true classes) must sum to 1; row {j} sums to {sums[j]:g}.{columns}")
    if np.linalg.cond(matrix) > 1e8:
        raise ValueError(
            "T is singular (or nearly): two true classes cannot be told apart by their noisy labels. "
            "Merge them, or lower the rates."
        )
    matrix.flags.writeable = False
    return matrix


def check_joint(joint: Any) -> FloatArray:
    """Counts or shares (q, 2, 2), every true class there."""
    counts = np.asarray(joint, dtype=np.float64)
    if counts.ndim != 3 or counts.shape[1:] != (2, 2) or not counts.size:
        raise ValueError(f"a confident joint must have shape (labels, 2, 2): observed, then true; got {counts.shape}")
    if not (counts >= 0).all() or not (counts.sum(1) > 0).all():
        raise ValueError("a confident joint must hold counts, none negative, and some rows of either true class")
    return counts


def check_noise(noise: object, kind: type) -> None:
    """A noise model or None; the words that other parts of the package accept are none."""
    if noise is None or isinstance(noise, kind):
        return
    given = repr(noise) if isinstance(noise, str) else type(noise).__name__
    raise TypeError(
        f"noise must be a noise model such as ClassConditionalNoise(rho_pos, rho_neg), or None; got {given}"
    )


def check_noise_or_rates(noise: object, kinds: tuple[type, ...]) -> None:
    """A noise model, or rates that were estimated."""
    if isinstance(noise, kinds) and not isinstance(noise, type):
        return
    given = repr(noise) if isinstance(noise, (str, type)) else type(noise).__name__
    raise TypeError(
        "noise must be a noise model such as ClassConditionalNoise(rho_pos, rho_neg), or the rates that "
        f"ccmn.estimate_noise(...) returns; got {given}"
    )


def check_rates_known(noise: object, kind: type) -> None:
    """A noise model of a kind that has the rates which stand in a formula."""
    if not isinstance(noise, kind):
        given = f"the class {noise.__name__}" if isinstance(noise, type) else type(noise).__name__
        raise TypeError(f"noise must be a {kind.__name__}, whose rates this formula is made of; got {given}")


def check_several_labels(n_labels: int) -> None:
    """At least two labels, where a formula runs over pairs."""
    if n_labels < 2:
        raise ValueError(f"a ranking loss needs at least two labels to make a pair; the noise model has {n_labels}")


def check_distribution(p: ArrayLike) -> FloatArray:
    """Probabilities of all 2^q label vectors."""
    try:
        array = np.array(p, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"p must be a list of numbers, one probability per label vector; got {p!r}") from None
    if array.ndim != 1 or array.size < 2 or array.size & (array.size - 1):
        raise ValueError(
            f"p must hold one probability for each of the 2^q label vectors (2, 4, 8, ... of them); "
            f"got shape {array.shape}"
        )
    if not (array >= 0).all() or not np.isclose(array.sum(), 1, atol=1e-9):
        raise ValueError(f"p must be probabilities that sum to 1; got sum {array.sum():g}, lowest {array.min():g}")
    return array


def check_no_tie(margin: float, target: str) -> None:
    """A distribution of the labels under which the Bayes decision is one and no other."""
    if margin < 1e-9:
        tie = "a label is exactly as likely as not" if target == "hamming" else "two labels are equally likely"
        raise ValueError(f"p leaves its best decision open: {tie}. Pass over p with a bayes_margin near 0.")


def check_tensors(outputs: Any, labels: Any) -> None:
    """A loss takes tensors, on one device."""
    for value, argument in ((outputs, "outputs"), (labels, "labels")):
        if not hasattr(value, "requires_grad"):
            raise TypeError(f"{argument} must be a torch tensor; got {type(value).__name__}: use torch.as_tensor(...)")
    if outputs.device != labels.device:
        raise ValueError(f"outputs are on {outputs.device}, labels on {labels.device}: move one to the other")


def check_scores_and_targets(scores: Sequence[int], targets: Sequence[int]) -> None:
    """Shapes (..., q) and (..., q) with the same q."""
    if not scores or not targets or scores[-1] != targets[-1]:
        raise ValueError(
            f"scores and targets must have the labels in the last dimension, as many in both; "
            f"got shapes {tuple(scores)} and {tuple(targets)}"
        )


def check_outputs_and_labels(
    outputs: Sequence[int], labels: Sequence[int], n_outputs: int, n_labels: int | None
) -> None:
    """Shapes (..., n_outputs) and (..., q), rows alike, q the number of labels of the noise model."""
    if not labels or not outputs:
        raise ValueError(
            f"outputs and labels must have the labels in the last dimension; "
            f"got shapes {tuple(outputs)} and {tuple(labels)}"
        )
    q = labels[-1]
    if n_labels is not None and q != n_labels:
        raise ValueError(f"the noise model has {n_labels} labels, but the labels given have shape {tuple(labels)}")
    if outputs[-1] != n_outputs:
        dummy = " (q + 1: column 0 is the dummy label; dummy=False does without)" if n_outputs == q + 1 else ""
        raise ValueError(
            f"for {q} labels this loss needs {n_outputs} outputs{dummy}; got outputs of shape {tuple(outputs)}"
        )
    if outputs[:-1] == labels[:-1]:
        return
    # Labels may lack leading dimensions: many models can be held against one batch of labels.
    rows = tuple(outputs[:-1])
    given = (1,) * (len(outputs) - len(labels)) + tuple(labels[:-1])
    if len(given) != len(rows) or any(g not in (1, r) for g, r in zip(given, rows)):
        raise ValueError(f"outputs and labels must have the same rows; got shapes {tuple(outputs)} and {tuple(labels)}")


def check_soft_labels(labels: Any) -> None:
    """Label values between 0 and 1, or NaN, in a tensor."""
    if ((labels < 0) | (labels > 1)).any():
        low, high = float(labels.nan_to_num(0).min()), float(labels.nan_to_num(0).max())
        remedy = " For -1/+1 labels pass (Y + 1) / 2." if low == -1 else ""
        raise ValueError(
            f"labels must be between 0 and 1 (NaN: not observed); got values from {low:g} to {high:g}.{remedy} "
            "Debiased labels go to ccmn.functional; a loss with noise=... debiases by itself."
        )


def check_device(name: str, cuda_available: bool) -> str:
    """The name of a device that is there; "auto" is an accelerator where there is one."""
    if name == "auto":
        return "cuda" if cuda_available else "cpu"
    kind = name.split(":")[0] if isinstance(name, str) else ""
    if kind not in ("cpu", "cuda", "mps", "xpu"):
        raise ValueError(f"device must be 'auto', 'cpu', 'cuda' or another device of torch; got {name!r}")
    if kind == "cuda" and not cuda_available:
        raise ValueError(f"device={name!r}, but torch sees no CUDA device here: use 'auto' or 'cpu'")
    return name


def check_one_device(devices: Sequence[Any], names: Sequence[str]) -> None:
    """Tensors that meet in one computation are on one device."""
    if len(set(devices)) > 1:
        placed = " and ".join(f"{name} on {device}" for name, device in zip(names, devices))
        raise ValueError(f"tensors must be on one device; got {placed}: move them with .to(device)")
