"""Rows with labels, as fitting wants them.

Features as users hand them in, into what is computed on.

What users call Y, as one matrix of labels: indicator matrices, label sets, two classes, many classes.

Rows to choose epoch, learning rate and l2 by: held out of the training rows, or given.

The parameters of CCMNClassifier: which values each may have.

Labels debiased for a fit: by the noise given, by an estimate, or not at all.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from ccmn._containers import is_dataframe, is_sparse, label_names_of, to_dense_array
from ccmn._validation import check_choice, check_count, check_label_values, check_penalty, check_real
from ccmn.estimation import NOISE_TYPES
from ccmn.losses import CORRECTIONS, LOSSES, SURROGATES
from ccmn.noise import ClassConditionalNoise, GroupedNoise, NoiseModel
from ccmn.training import NETWORKS, Ranks, SparseLabels

if TYPE_CHECKING:
    from ccmn.models.classifier import CCMNClassifier


Labels = NDArray[np.float32] | SparseLabels
"""Labels (n, q): debiased ones, or as the loss takes them; NaN where not observed."""


@dataclass
class Sample:
    """Rows with their debiased labels p (n, q), NaN where not observed."""

    X: Any
    p: Labels
    weights: NDArray[np.float64] | None

    def labels_of(self, labels: slice) -> NDArray[np.float32]:
        """The debiased labels of some columns."""
        return self.p.columns(labels) if isinstance(self.p, SparseLabels) else self.p[:, labels]

    def dense_labels(self) -> NDArray[np.float32]:
        """All debiased labels: for a sample of few rows."""
        if not isinstance(self.p, SparseLabels):
            return self.p
        return self.p.gather(torch.arange(self.p.shape[0]).unsqueeze(0))[0].numpy()

    def weights_tensor(self) -> torch.Tensor | None:
        """The rows' weights, if there are any."""
        return None if self.weights is None else torch.from_numpy(self.weights)

    def take(self, rows: NDArray[Any]) -> Sample:
        return Sample(self.X[rows], self.p[rows], None if self.weights is None else self.weights[rows])


# Micro-F1 of linear ranking / sigmoid models, 200 epochs of Adam, on raw and on standardized features:
#   age, income and height (means 40, 50,000, 1.7)   .00 and .86      standard normal plus 10          .00 and .92
#   age and height                                   .33 and .72      one column of mean 10.5, std .6  .88 and .94
#   mean 30, std 10                                  .79 and .93      standard normal plus 3           .91 and .92
#   pixels in 0..255                                 .60 and .68      pixels in 0..16                  .68 and .68
#   normal, std 1000 (60 epochs)                     .90 and .93      normal, std 100                  .92 and .92
#   one column of mean 2015, std 5                   .00 and .93      one column of std 1000           .92 and .93
#   normal, std .01                                  .15 and .93      normal, std .03                  .90 and .94
# Unit-norm rows (yeast), [0, 1] features (scene, pixels), counts, 0/1 words and TF-IDF train as well as standardized.
MAX_COLUMN_MEAN = 20.0
"""A column whose mean is farther from 0 is badly scaled; 0..16 pixels have means up to 12 and train well."""
MAX_OFFSET = 5.0
"""A column whose mean is farther from 0 than this number and than this many standard deviations is badly scaled."""
MAX_COLUMN_RMS = 1000.0
"""A column with a larger root mean square is badly scaled."""
MIN_ROW_RMS = 0.05
"""Features whose rows have a smaller root mean square norm are badly scaled: Adam's steps are too short for them."""
MAX_ROWS_FOR_SCALE = 10_000
"""The scale is measured on at most this many rows, evenly spread."""


def read_features(estimator: BaseEstimator, X: Any, *, reset: bool) -> Any:
    """A float array or CSR (n, d), checked by scikit-learn against what the estimator was fitted on.

    With ``reset`` the estimator is about to be fitted, and its ``n_features_in_`` and ``feature_names_in_`` are set.
    """
    if isinstance(X, torch.Tensor):
        X = to_dense_array(X)
    if is_dataframe(X):
        _check_columns(X)
    return validate_data(estimator, X, reset=reset, accept_sparse="csr", dtype=(np.float64, np.float32))


def _check_columns(X: Any) -> None:
    wrong = [str(c) for c, dtype in X.dtypes.items() if dtype.kind not in "biuf"]
    if wrong:
        raise ValueError(
            f"columns {', '.join(wrong[:5])} of X are not numeric; turn categories into numbers first, for "
            "instance with sklearn.compose.make_column_transformer((OneHotEncoder(), [...]), "
            'remainder="passthrough") in a Pipeline'
        )


def scale_warning(X: Any, names: Sequence[str] | None = None) -> str | None:
    """Return a warning if Adam trains poorly on features of this scale, dense or CSR (n, d); None otherwise."""
    rows = X[:: -(-X.shape[0] // MAX_ROWS_FOR_SCALE)]
    with np.errstate(over="ignore", invalid="ignore"):
        if is_sparse(rows):
            squares = np.asarray(rows.multiply(rows).sum(0, dtype=np.float64)).ravel() / rows.shape[0]
            mean = np.asarray(rows.sum(0, dtype=np.float64)).ravel() / rows.shape[0]
        else:
            squares = np.einsum("ij,ij->j", rows, rows, dtype=np.float64) / rows.shape[0]
            mean = rows.mean(0, dtype=np.float64)
        rms, offset, std = np.sqrt(squares), np.abs(mean), np.sqrt(np.maximum(squares - mean**2, 0))
        row_rms = float(np.sqrt(squares.sum()))
    far = (offset > MAX_COLUMN_MEAN) | (offset > MAX_OFFSET * np.maximum(std, 1)) | (rms > MAX_COLUMN_RMS)
    if far.any():
        worst = int(np.where(far, rms, 0).argmax())
        column = repr(names[worst]) if names is not None else str(worst)
        what = f"{int(far.sum())} of {len(rms)} columns are far from zero (column {column}: mean {mean[worst]:.3g}, "
        what += f"standard deviation {std[worst]:.3g})"
    elif 0 < row_rms < MIN_ROW_RMS:
        what = f"the values are close to zero (root mean square norm of a row {row_rms:.2g})"
    else:
        return None
    remedy = "MaxAbsScaler" if is_sparse(X) else "StandardScaler"
    return (
        f"Features are badly scaled: {what}. Training with Adam converges slowly or fails on such features. Scale "
        f"them, for example with make_pipeline({remedy}(), CCMNClassifier())."
    )


Kind = Literal["multilabel", "binary", "multiclass"]
Trusted = tuple[NDArray[np.int64], Any]
"""Numbers of rows whose true labels are known, and those labels, dense or CSR."""

FEWEST_SPARSE = 1 << 24
"""Sparse labels and label sets of fewer entries, zeros counted, are made dense, which is quicker; larger ones are CSR
throughout."""


@dataclass(frozen=True)
class Targets:
    """Labels (n, q) float32, NaN where not observed, and how to speak of them."""

    labels: Any
    """A dense array, or CSR where there are many labels."""
    kind: Kind
    classes: NDArray[Any]
    """multilabel: what the columns are (0..q-1, or the labels of the sets); else the class values."""
    label_names: tuple[str, ...] | None
    sparse: bool = False
    """Were the labels given as a sparse matrix (or as very many sets)? Then predictions are one, too."""

    @property
    def n(self) -> int:
        return int(self.labels.shape[0])

    @property
    def q(self) -> int:
        return int(self.labels.shape[1])


def encode_targets(Y: Any) -> Targets:
    """Read Y. Label sets are a list of lists, tuples or sets; everything else is an array of some kind."""
    if _is_label_sets(Y):
        return _from_label_sets(Y)
    if is_sparse(Y):
        return _from_sparse(Y)
    names = label_names_of(Y) if is_dataframe(Y) else None
    array = to_dense_array(Y)
    if array.ndim == 1:
        return _from_classes(array)
    if array.ndim != 2 or array.shape[1] == 0:
        raise ValueError(f"y must be a label matrix of shape (n, q) or one class per row; got shape {array.shape}")
    if array.shape[1] == 1 and not _is_zero_one(array):
        return _from_classes(array[:, 0])  # one column of classes, as scikit-learn passes it
    if array.dtype == object:
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError("y must be a matrix of 0 and 1 (NaN: not observed); some entries are no numbers") from None
    if not _is_zero_one(array):
        check_classification_targets(array)
    check_label_values(array, "y")
    return Targets(array.astype(np.float32), "multilabel", np.arange(array.shape[1]), names)


def _from_sparse(Y: Any) -> Targets:
    if Y.ndim != 2 or Y.shape[1] == 0:
        raise ValueError(f"y must be a label matrix of shape (n, q); got a sparse one of shape {Y.shape}")
    matrix = Y.tocsr().astype(np.float32)
    if not matrix.has_canonical_format:
        matrix.sum_duplicates()
    check_label_values(matrix.data, "y")
    return Targets(_dense_unless_large(matrix), "multilabel", np.arange(matrix.shape[1]), None, sparse=True)


def _dense_unless_large(matrix: Any) -> Any:
    return matrix if _is_large(matrix) else np.asarray(matrix.toarray())


def _is_large(matrix: Any) -> bool:
    return bool(matrix.shape[0] * matrix.shape[1] > FEWEST_SPARSE)


def debiased(targets: Targets, noise: NoiseModel, trusted: Trusted | None) -> NDArray[np.float32] | SparseLabels:
    """Debiased labels, true ones in trusted rows. Those of CSR are worked out when a batch of them is wanted."""
    if not is_sparse(targets.labels):
        return with_trusted(noise.debias(targets.labels), trusted)
    matrix, known = targets.labels, None
    if trusted is not None:
        if np.isnan(trusted[1].data if is_sparse(trusted[1]) else trusted[1]).any():
            raise ValueError(
                "trusted labels that are not known (NaN) need dense labels: give y.toarray(), or trust whole rows"
            )
        known = np.zeros(targets.n, dtype=bool)
        known[trusted[0]] = True
        place = np.arange(targets.n)
        place[trusted[0]] = targets.n + np.arange(len(trusted[0]))
        matrix = scipy.sparse.vstack((matrix, scipy.sparse.csr_array(trusted[1])), format="csr")[place]
    return SparseLabels(matrix, noise.debiasing(), known)


def with_trusted(p: NDArray[np.float32], trusted: Trusted | None) -> NDArray[np.float32]:
    """Dense p with the true labels where they are known (not NaN)."""
    if trusted is not None:
        rows, true = trusted[0], to_dense_array(trusted[1])
        p[rows] = np.where(np.isnan(true), p[rows], true)
    return p


def _is_label_sets(Y: Any) -> bool:
    if not isinstance(Y, (list, tuple)) or not len(Y):
        return False
    if any(isinstance(row, (set, frozenset)) for row in Y):
        return True
    rows = [row for row in Y if isinstance(row, (list, tuple))]
    if len(rows) < len(Y):
        return False
    # Nested lists of equal length that hold only 0, 1 (or NaN) are a matrix; anything else is sets of labels.
    return len({len(row) for row in rows}) > 1 or any(isinstance(entry, str) for row in rows for entry in row)


def _from_label_sets(Y: Sequence[Any]) -> Targets:
    labels = sorted({label for row in Y for label in row}, key=lambda label: (str(type(label)), label))
    if not labels:
        raise ValueError("no row of y has any label")
    column = {label: j for j, label in enumerate(labels)}
    columns = [np.array([column[label] for label in set(row)], dtype=np.int64) for row in Y]
    ends = np.cumsum([0, *map(len, columns)])
    ones = np.ones(ends[-1], dtype=np.float32)
    matrix = scipy.sparse.csr_matrix((ones, np.concatenate(columns), ends), shape=(len(Y), len(labels)))
    matrix.sort_indices()
    names = tuple(str(label) for label in labels)
    return Targets(_dense_unless_large(matrix), "multilabel", np.array(labels), names, sparse=_is_large(matrix))


def _from_classes(y: NDArray[Any]) -> Targets:
    check_classification_targets(y)
    classes, codes = np.unique(y, return_inverse=True)
    names = tuple(str(c) for c in classes)
    if len(classes) <= 2:
        positive = codes if len(classes) == 2 else np.zeros(len(y))
        return Targets(positive.astype(np.float32)[:, None], "binary", classes, names[-1:])
    return Targets(np.eye(len(classes), dtype=np.float32)[codes], "multiclass", classes, names)


def _is_zero_one(array: NDArray[Any]) -> bool:
    if array.dtype == bool:
        return True
    if not np.issubdtype(array.dtype, np.number):
        return False
    return bool(((array == 0) | (array == 1) | (array != array)).all())


def read_trusted(trusted: tuple[Any, Any] | None, targets: Targets) -> Trusted | None:
    """Row numbers and true labels of trusted rows, checked."""
    if trusted is None:
        return None
    rows = np.asarray(trusted[0])
    n = targets.n
    if rows.ndim != 1 or not np.issubdtype(rows.dtype, np.integer) or ((rows < 0) | (rows >= n)).any():
        raise ValueError(f"trusted must be (rows, Y_true) with row numbers between 0 and {n - 1}")
    labels = encode_like(trusted[1], targets)
    if labels.shape[0] != len(rows):
        raise ValueError(f"trusted gives {len(rows)} rows but labels for {labels.shape[0]}")
    return rows.astype(np.int64), labels


def encode_like(Y: Any, targets: Targets) -> Any:
    """Labels of other rows in the columns of the training labels, dense or CSR as they come."""
    if targets.kind == "multilabel":
        other = encode_targets(Y)
        if other.label_names and targets.label_names and other.label_names != targets.label_names:
            return _realigned(other, targets.label_names, sets=not is_dataframe(Y))
        if other.q != targets.q:
            raise ValueError(f"these labels have {other.q} columns, the training labels have {targets.q}")
        return other.labels
    y = np.asarray(Y).ravel()
    unknown = set(y.tolist()) - set(targets.classes.tolist())
    if unknown:
        raise ValueError(f"class {next(iter(unknown))!r} is not among the training classes")
    if targets.kind == "binary":
        positive = (y == targets.classes[-1]) & (len(targets.classes) == 2)
        return np.asarray(positive[:, None], dtype=np.float32)
    return np.asarray(y[:, None] == targets.classes[None, :], dtype=np.float32)


def _realigned(other: Targets, wanted: tuple[str, ...], sets: bool) -> Any:
    """Columns in the order of the training labels. A label that is in none of the sets is a column of 0."""
    names = other.label_names or ()
    strange, absent = sorted(set(names) - set(wanted)), sorted(set(wanted) - set(names))
    if strange:
        raise ValueError(f"label {strange[0]!r} is not among the training labels")
    if absent and not sets:
        raise ValueError(f"there is no column for the training label {absent[0]!r}: give one, NaN where it is unknown")
    places = {name: j for j, name in enumerate(wanted)}
    columns = np.array([places[name] for name in names])
    if is_sparse(other.labels):
        coo = other.labels.tocoo()
        at = coo.row, columns[coo.col]
        return scipy.sparse.csr_matrix((coo.data, at), shape=(other.n, len(wanted)))
    matrix = np.zeros((other.n, len(wanted)), dtype=np.float32)
    matrix[:, columns] = other.labels
    return matrix


FEWEST_TO_HOLD_OUT = 50
"""Below this many rows none are held out: the training rows themselves choose the epoch."""


def hold_out(whole: Sample, labels: Labels, fraction: float, seed: int) -> tuple[Sample, Labels, Sample]:
    """Training rows with the labels the loss takes, and a seeded fraction of the rows to choose by."""
    n = whole.X.shape[0]
    if n < FEWEST_TO_HOLD_OUT:
        return whole, labels, whole
    order = np.random.default_rng(seed).permutation(n)
    n_out = min(max(1, round(fraction * n)), n - 1)
    out, kept = np.sort(order[:n_out]), np.sort(order[n_out:])
    return whole.take(kept), labels[kept], whole.take(out)


def given_rows(X: Any, y: Any, targets: Targets, noise: NoiseModel | None) -> Sample:
    """Rows that the user gives, whose labels are clean (``noise=None``) or went wrong like the training labels."""
    Y = encode_like(y, targets)
    if Y.shape[0] != X.shape[0]:
        raise ValueError(f"validation has {X.shape[0]} rows of X and {Y.shape[0]} of y")
    if is_sparse(Y):
        return Sample(X, SparseLabels(Y, None if noise is None else noise.debiasing()), None)
    return Sample(X, Y if noise is None else noise.debias(Y), None)


def check_ranks(clf: CCMNClassifier, ranks: Ranks) -> None:
    """What several processes cannot do together."""
    if ranks.world > 1 and clf.correction is not None:
        raise ValueError(
            f"correction={clf.correction!r} acts on means over a whole batch, of which each of the {ranks.world} "
            "processes has a share: use correction=None, or one process"
        )
    if ranks.world > 1 and clf.random_state is None:
        raise ValueError("several processes must start alike: give random_state a number")


def check_parameters(clf: CCMNClassifier) -> None:
    """Every parameter that is wrong by itself, before anything is computed."""
    check_choice(clf.loss, "loss", (*LOSSES, "forward", "plugin"))
    check_choice(clf.solver, "solver", ("auto", "adam", "closed_form", "lbfgs"))
    check_choice(clf.threshold, "threshold", ("fixed", "f1"))
    if not callable(clf.model):
        NETWORKS[clf.model]
    if not callable(clf.surrogate):
        SURROGATES[clf.surrogate]
    if clf.correction is not None:
        CORRECTIONS[clf.correction]
        if clf.loss not in LOSSES:
            raise ValueError(f"correction={clf.correction!r} does nothing with loss={clf.loss!r}")
    if isinstance(clf.noise, str):
        check_choice(clf.noise, "noise", tuple(NOISE_TYPES))
    elif clf.noise is not None and not isinstance(clf.noise, (NoiseModel, GroupedNoise)):
        raise TypeError(
            f"noise must be 'estimate', 'partial', 'missing', a noise model or None; got {type(clf.noise).__name__}"
        )
    if clf.flood_level and clf.correction != "flood":
        raise ValueError(f"flood_level={clf.flood_level!r} does nothing without correction='flood'")
    check_count(clf.epochs, "epochs")
    if clf.patience is not None:
        check_count(clf.patience, "patience")
    if clf.batch_size != "auto":
        check_count(clf.batch_size, "batch_size")
    _check_learning_rates(clf.lr)
    check_penalty(clf.weight_decay, "weight_decay")
    check_real(clf.validation_fraction, "validation_fraction", 0, 1)


def _check_learning_rates(lr: object) -> None:
    try:
        rates = np.atleast_1d(np.asarray(lr, dtype=np.float64))
    except (TypeError, ValueError):
        rates = np.empty(0)
    if rates.ndim != 1 or rates.size == 0 or not ((rates > 0) & np.isfinite(rates)).all():
        raise ValueError(f"lr must be a positive number or a list of them; got {lr!r}")


FEWEST_TO_ESTIMATE = 100
"""Below this many rows noise rates are not estimated."""
MOST_TO_ESTIMATE = 1 << 27
"""Above this many entries of a label matrix noise rates are not estimated: that takes several dense ones."""

Noise = str | NoiseModel | GroupedNoise | None
"""The parameter ``noise``: a word of ``NOISE_TYPES``, a noise model, or None."""


@dataclass(frozen=True)
class DebiasedLabels:
    """Debiased labels, true ones in trusted rows, and what they were debiased by."""

    p: Labels
    noise: NoiseModel
    rates: Any
    """The estimate (NoiseRates or GroupRates), where rates were estimated."""
    groups: GroupedNoise | None = None


def debias_labels(noise: Noise, X: Any, targets: Targets, trusted: Trusted | None, seed: int) -> DebiasedLabels:
    """All rows by the same rates."""
    if isinstance(noise, GroupedNoise):
        raise ValueError("noise is a GroupedNoise: say which group each row belongs to, fit(X, y, groups=...)")
    check_zeros_for(noise, targets.labels, targets.label_names, trusted)
    rates = None
    if isinstance(noise, NoiseModel):
        model = _check_about(noise, targets)
    elif noise is None:
        model = _no_noise(targets)
    elif targets.n * targets.q > MOST_TO_ESTIMATE:
        raise ValueError(
            f"noise={noise!r} estimates the rates of {targets.q} labels from {targets.n} rows, which are too "
            "many at once: give noise=ClassConditionalNoise(rho_pos, rho_neg), with rates estimated by "
            "estimate_noise on fewer rows or on groups of labels"
        )
    elif targets.n >= FEWEST_TO_ESTIMATE:
        rates = _estimate(noise, X, targets, trusted, seed)
        model = rates.shrunk_noise
    else:
        if trusted is None:
            warnings.warn(
                f"{targets.n} rows are too few to estimate noise rates (fewer than {FEWEST_TO_ESTIMATE}): the labels "
                "are taken at their word; give a noise model to correct them",
                stacklevel=3,
            )
        model = _no_noise(targets)
    return DebiasedLabels(debiased(targets, model, trusted), model, rates)


def debias_by_group(
    noise: Noise,
    X: Any,
    targets: Targets,
    trusted: Trusted | None,
    seed: int,
    groups: Sequence[Any],
) -> DebiasedLabels:
    """Every row by the rates of its group."""
    declared = noise.mean(groups) if isinstance(noise, GroupedNoise) else noise
    check_zeros_for(declared, targets.labels, targets.label_names, trusted)
    rates = None
    if isinstance(noise, str):
        rates = _estimate(noise, X, targets, trusted, seed, groups)
        noise = rates.shrunk_noise
    if not isinstance(noise, GroupedNoise):
        given = "None" if noise is None else type(noise).__name__
        raise TypeError(f"groups need rates for each: noise='estimate' or a GroupedNoise; got {given}")
    p = with_trusted(noise.debias(targets.labels, groups), trusted)
    return DebiasedLabels(p, noise.mean(groups), rates, noise)


def check_zeros_for(
    noise: Noise, Y: Any, label_names: Sequence[str] | None, trusted: tuple[Any, Any] | None = None
) -> None:
    """Raise an error if labels are 1 or NaN and never 0 under noise that removes true labels."""
    if isinstance(noise, ClassConditionalNoise):
        only_removed = np.asarray((noise.rho_neg == 0) & (noise.rho_pos > 0))
        if only_removed.size != Y.shape[1] or not only_removed.any():
            return
    elif isinstance(noise, str) and noise in ("missing", "estimate"):
        only_removed = np.full(Y.shape[1], noise == "missing")
    else:
        return
    from ccmn.estimation.evidence import check_zeros_observed

    check_zeros_observed(Y, only_removed, label_names, None if trusted is None else trusted[1])


def check_groups_possible(loss: str, targets: Targets, noisy_validation: bool) -> None:
    """What groups do not go with."""
    if loss not in LOSSES:
        raise ValueError(f"groups need a loss that takes debiased labels, 'hamming' or 'ranking'; got {loss!r}")
    if is_sparse(targets.labels):
        raise ValueError(f"groups need dense labels; got {targets.n} x {targets.q} sparse ones: give y.toarray()")
    if noisy_validation:
        raise ValueError("with groups, validation rows must be clean (validation_is_clean=True), or be held out of X")


def _estimate(
    noise: str, X: Any, targets: Targets, trusted: Trusted | None, seed: int, groups: Sequence[Any] | None = None
) -> Any:
    from ccmn.estimation import estimate_noise

    return estimate_noise(
        X, _with_names(targets), noise_type=NOISE_TYPES[noise], trusted=trusted, random_state=seed, groups=groups
    )


def _with_names(targets: Targets) -> Any:
    """Return the labels with their names, if known, so that estimated rates and warnings name them."""
    if targets.label_names is None:
        return targets.labels
    from pandas import DataFrame

    return DataFrame(to_dense_array(targets.labels), columns=list(targets.label_names))


def _check_about(noise: NoiseModel, targets: Targets) -> NoiseModel:
    names = targets.label_names
    if noise.n_labels != targets.q:
        raise ValueError(f"the noise model has {noise.n_labels} labels, y has {targets.q}")
    if names and noise.label_names and names != noise.label_names:
        raise ValueError(
            f"the noise model is about labels {', '.join(noise.label_names[:4])} ..., y about "
            f"{', '.join(names[:4])} ...: put them into one order, or leave the names out"
        )
    return noise


def _no_noise(targets: Targets) -> ClassConditionalNoise:
    return ClassConditionalNoise(0.0, 0.0, n_labels=targets.q, label_names=targets.label_names)
