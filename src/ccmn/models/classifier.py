"""CCMNClassifier: the scikit-learn face of it all."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from typing_extensions import Self

from ccmn.data.containers import is_dataframe, is_sparse
from ccmn.data.shards import ShardedData
from ccmn.losses import LOSSES, ForwardLoss, HammingLoss, MultiLabelLoss, RankingLoss
from ccmn.models.choosing import ENTRIES_AT_ONCE
from ccmn.models.fitting import (
    Fitted,
    Labels,
    Recipe,
    Sample,
    fit_closed_form,
    fit_logistic_path,
    fit_loop,
    held_out_rows,
    in_memory,
)
from ccmn.models.monitor import can_go_negative, risk_parts, spread_rows, warning_about
from ccmn.models.parameters import ESTIMATED_SIDES, check_parameters, check_ranks
from ccmn.models.persistence import write_model
from ccmn.models.plugin import PluginLoss
from ccmn.models.probabilities import (
    SlopeFit,
    linear_probability,
    link_of,
    logistic_probability,
)
from ccmn.models.progress import progress_of, stream_progress_of
from ccmn.models.streaming import BATCH_SIZE, Plan, draw_sample, fingerprint, read_memory, streamed
from ccmn.models.targets import Targets, debiased, encode_like, encode_targets, read_trusted, with_trusted
from ccmn.models.thresholds import f1_thresholds
from ccmn.models.tiles import label_tiles, predicted_labels, top_labels
from ccmn.noise import ClassConditionalNoise, GroupedNoise, NoiseModel
from ccmn.seeding import as_generator
from ccmn.training import Ranks, SparseLabels
from ccmn.training.checkpoint import Checkpoint
from ccmn.training.closed_form import LARGEST_DECOMPOSITION
from ccmn.training.logistic import can_decompose
from ccmn.training.threads import few_threads
from ccmn.validation import check_count, check_device

if TYPE_CHECKING:
    from pandas import DataFrame

FEWEST_TO_HOLD_OUT = 50
"""Below this many rows none are held out: the training rows themselves choose the epoch."""
FEWEST_TO_ESTIMATE = 100
"""Below this many rows noise rates are not estimated."""
MOST_TO_ESTIMATE = 1 << 27
"""Above this many entries of a label matrix noise rates are not estimated: that takes several dense ones."""
ENTRIES_ENOUGH = 1 << 26
"""So many held-out scores say what the slope of probabilities is."""


MOST_ROWS_FOR_LBFGS = 5000
"""Up to this many rows "auto" prefers L-BFGS to Adam (docs/training.md has the measurements)."""
_LINEAR = (
    "model='linear', loss='hamming', surrogate={!r}, no correction and every label observed (and dense, or not so many)"
)
_NEEDS = {
    "closed_form": f"solver='closed_form' needs {_LINEAR.format('square')}; use solver='auto'",
    "lbfgs": f"solver='lbfgs' needs {_LINEAR.format('logistic')}, and at most {LARGEST_DECOMPOSITION} rows or "
    "features (features, if X is sparse, of which the rows must then fit 256 MB when dense); use solver='auto'",
}


class CCMNClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A multi-label classifier that learns from wrong labels.

    Parameters
    ----------
    noise : "estimate", "partial", "missing", a noise model or None
        How the labels went wrong. A noise model (``ClassConditionalNoise``, ``PartialNoise``, ``MissingNoise``,
        ``TransitionNoise``; ``GroupedNoise`` with ``fit(..., groups=)``) is taken at its word; "estimate" estimates
        both rates of every label, "partial" and "missing" say which side can be wrong and estimate that; None trusts
        the labels.
    loss : "ranking", "hamming", "forward" or "plugin"
        "ranking" and "hamming" are the paper's unbiased losses, Eq. (6) with the dummy label of Eq. (8), and
        Eq. (4). "forward" is the likelihood of the noisy labels; "plugin" trains on them as they are and inverts the
        noise in the posterior (both logistic; ``surrogate`` does not apply).
    surrogate : "sigmoid", "square", "hinge", "logistic" or a callable
    model : "linear", "mlp" or a callable (n_features, n_outputs) -> torch.nn.Module
        "mlp" has one hidden layer of 128 units.
    lr : float or sequence of floats
        All are trained at once; the best by validation is kept.
    epochs : int
    batch_size : int or "auto"
        "auto": all rows up to 256, 100 up to 5,000 rows, 400 beyond.
    weight_decay : float
        l2 weight as in torch.optim.Adam; with the closed form and L-BFGS the smallest of a path, from which every
        label takes its own by validation.
    validation_fraction : float
        Rows held out (at random, seeded) to choose epoch, learning rate and l2, when no ``validation`` is given to
        ``fit``. Their labels are noisy as well: the criterion is corrected for that.
    solver : "auto", "adam", "closed_form" or "lbfgs"
        "auto" solves linear / hamming / square in closed form and, up to 5,000 rows, linear / hamming / logistic by
        L-BFGS (both along a path of l2), and trains everything else by Adam.
    correction : None, "abs", "relu" or "flood"
        Keep parts of the unbiased risk from going below zero; for flexible networks.
    flood_level : float
        How low the parts may go with "flood".
    threshold : "fixed" or "f1"
        The cut of every label: what the loss says (0, or the dummy label), or where the corrected F1 on validation
        rows is largest.
    patience : int or None
        Stop when the validation criterion has not improved for so many epochs.
    device : "auto", "cpu", "cuda", ...
    autocast : bool
        bfloat16 products on an accelerator; the loss stays in float32.
    random_state : int, Generator or None
    verbose : int
        1: a progress bar on a terminal; 2: a line per epoch.

    Attributes
    ----------
    noise_ : NoiseModel
        The noise that was corrected for (less than was estimated, where that is hardly known); zero rates for
        ``noise=None``. With groups: the mean rates of the rows.
    group_noise_ : GroupedNoise or None
        With groups: the rates of each, which the rows were corrected by.
    rates_ : NoiseRates, GroupRates or None
        The estimate, with standard errors and flags, where rates were estimated.
    history_ : DataFrame
        A row per learning rate and epoch (or per l2), with the validation criterion.
    risk_parts_ : array (2, q) or (1, q), or None
        The parts of the training risk of every label (R+ and R- of the Hamming loss, one of the ranking loss), which
        estimate numbers that cannot be negative; ``fit`` warns where one is. None where the labels or the loss
        leave none to go negative.
    classes_ : array
        What the columns of a label matrix are (0 .. q-1, or the labels of the sets), or the class values.
    n_features_in_, feature_names_in_, label_names_
    extra_ : dict
        JSON-safe notes that are saved and loaded with the model.

    Examples
    --------
    >>> from ccmn import CCMNClassifier, PartialNoise
    >>> from ccmn.data.digits import load_digit_scenes
    >>> data, noise = load_digit_scenes(1000), PartialNoise(0.4, n_labels=10)
    >>> clf = CCMNClassifier(noise=noise, epochs=30, random_state=0)
    >>> clf = clf.fit(data.X, noise.corrupt(data.Y, random_state=0))
    >>> clf.predict(data.X).shape
    (1000, 10)
    """

    def __init__(
        self,
        noise: str | NoiseModel | GroupedNoise | None = "estimate",
        loss: str = "ranking",
        surrogate: str | Callable[..., Any] = "sigmoid",
        model: str | Callable[..., Any] = "linear",
        lr: float | Sequence[float] = (5e-2, 5e-3, 5e-4),
        epochs: int = 200,
        batch_size: int | str = "auto",
        weight_decay: float = 1e-4,
        validation_fraction: float = 0.2,
        solver: str = "auto",
        correction: str | None = None,
        flood_level: float = 0.0,
        threshold: str = "fixed",
        patience: int | None = None,
        device: str = "auto",
        autocast: bool = False,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.noise = noise
        self.loss = loss
        self.surrogate = surrogate
        self.model = model
        self.lr = lr
        self.epochs = epochs
        self.batch_size = batch_size
        self.weight_decay = weight_decay
        self.validation_fraction = validation_fraction
        self.solver = solver
        self.correction = correction
        self.flood_level = flood_level
        self.threshold = threshold
        self.patience = patience
        self.device = device
        self.autocast = autocast
        self.random_state = random_state
        self.verbose = verbose

    # -- fitting

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        validation: tuple[Any, Any] | None = None,
        validation_is_clean: bool = False,
        trusted: tuple[Any, Any] | None = None,
        groups: Sequence[Any] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Learn from features and noisy labels.

        Parameters
        ----------
        X : array, DataFrame, CSR or tensor of shape (n, d)
        y : label matrix (n, q) of 0, 1 and NaN (not observed); or a list of label sets; or one class per row
        sample_weight : array (n,), optional
        validation : (X_val, Y_val), optional
            Rows to choose by, in place of held-out ones. Their labels are taken to be as noisy as the training
            labels unless ``validation_is_clean``.
        trusted : (rows, Y_true), optional
            Numbers of rows of X whose true labels are known, and those labels: they sharpen estimated rates, and
            take the place of the noisy labels in training ("forward" and "plugin" use them for the rates only). NaN
            where a true label is not known: the noisy one stays.
        groups : n names, optional
            The source of every row (annotator, site, import batch): rates are estimated for each, or taken from a
            ``GroupedNoise``. For the losses "hamming" and "ranking".
        checkpoint : path, optional
            Where to keep the state of a long fit; the same call then goes on where it was stopped.
        """
        check_parameters(self)
        check_ranks(self, Ranks.current())
        X = self._read_features(X, y, reset=True)
        targets = encode_targets(y)
        if targets.n != X.shape[0]:
            raise ValueError(f"X has {X.shape[0]} rows, y has {targets.n}")
        weights = None
        if sample_weight is not None:
            weights = np.asarray(_check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True))
            if self.correction is not None:
                raise ValueError("sample_weight and correction do not go together: corrected parts are means over rows")
        seed = int(as_generator(self.random_state).integers(2**31))
        self.classes_, self.label_names_, self._kind = targets.classes, targets.label_names, targets.kind
        self._sparse = targets.sparse
        self.extra_: dict[str, Any] = {}
        trusted_rows = read_trusted(trusted, targets)
        if groups is None:
            self.group_noise_: GroupedNoise | None = None
            self.noise_, self.rates_ = self._resolve_noise(X, targets, trusted_rows, seed)
            p = debiased(targets, self.noise_, trusted_rows)
        else:
            noisy_validation = validation is not None and not validation_is_clean
            p = with_trusted(
                self._debias_by_group(X, targets, trusted_rows, seed, groups, noisy_validation), trusted_rows
            )
        labels = p
        if isinstance(p, SparseLabels) and self.threshold == "f1" and not self.noise_.flips_independent:
            raise ValueError("threshold='f1' needs two rates per label where labels are sparse; use threshold='fixed'")
        recipe = self._recipe(targets, X.shape[0], seed)
        if recipe.raw_labels:
            labels = SparseLabels(targets.labels) if is_sparse(targets.labels) else targets.labels
        whole = Sample(X, p, weights)
        training, labels, held_out = self._split(whole, labels, targets, validation, validation_is_clean, recipe.seed)
        keeper = None if checkpoint is None else self._keeper(checkpoint, self._fingerprint(training, labels))
        self._keep(self._solve(recipe, training, labels, held_out, keeper), recipe, held_out, keeper)
        self._watch(recipe, training)
        return self

    def fit_stream(
        self,
        dataset: ShardedData | str | os.PathLike[str],
        *,
        labels: Any = None,
        memory: str | float = "500MB",
        validation: tuple[Any, Any] | None = None,
        validation_is_clean: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Learn from a folder of Parquet shards that may be larger than memory.

        Rows are shuffled by the order in which row groups are read and within a buffer. A sample of rows is taken out
        first: noise rates are estimated from it (unless they are given), epoch and learning rate chosen by it.

        Parameters
        ----------
        dataset : ShardedData, or the path of a folder
        labels : which columns are labels, where a path is given; see :data:`ccmn.data.labels.LabelSpec`
        memory : bytes, or text like "500MB"
            Ceiling of what buffer, reading, sample and criteria take, beside the model and its optimiser's state.
        validation, validation_is_clean, checkpoint : as in ``fit``
        """
        check_parameters(self)
        check_ranks(self, Ranks.current())
        if self.solver in _NEEDS:
            raise ValueError(f"solver={self.solver!r} needs all rows in memory; use solver='auto'")
        data = dataset if isinstance(dataset, ShardedData) else ShardedData(dataset, labels)
        seed = int(as_generator(self.random_state).integers(2**31))
        batch_size = BATCH_SIZE if isinstance(self.batch_size, str) else int(self.batch_size)
        plan = Plan.of(data, read_memory(memory), batch_size, seed)
        drawn = draw_sample(data, 1.0 if data.n < FEWEST_TO_HOLD_OUT else self.validation_fraction, plan)
        targets = replace(encode_targets(drawn.Y), label_names=data.label_names)
        self._start_stream(data, targets)
        self.noise_, self.rates_ = self._resolve_noise(drawn.X, targets, None, seed)
        recipe = replace(self._recipe(targets, data.n, seed), batch_size=plan.settings.batch_size, dtype=torch.float32)
        whole = Sample(drawn.X, debiased(targets, self.noise_, None), None)
        held_out = whole if validation is None else self._given_validation(validation, targets, validation_is_clean)
        keeper = None
        if checkpoint is not None:
            parameters = repr(sorted((k, repr(v)) for k, v in self.get_params(deep=False).items() if k != "verbose"))
            keeper = self._keeper(checkpoint, fingerprint(parameters, data, plan), every=1)
        with stream_progress_of(self._verbose(), recipe.criterion) as (tell, passed):
            training = streamed(recipe, data, plan, drawn, self.noise_, passed)
            fitted = fit_loop(recipe, training, held_out_rows(recipe, held_out), tell, keeper)
        return self._keep(fitted, recipe, held_out, keeper)

    def _start_stream(self, data: ShardedData, targets: Targets) -> None:
        self.classes_, self.label_names_, self._kind = targets.classes, targets.label_names, targets.kind
        self._sparse, self.extra_, self.group_noise_ = targets.sparse, {}, None
        self.risk_parts_: NDArray[np.float64] | None = None
        self.n_features_in_ = data.d
        if data.feature_names is not None:
            self.feature_names_in_ = np.array(data.feature_names, dtype=object)

    def _keep(self, fitted: Fitted, recipe: Recipe, held_out: Sample, keeper: Checkpoint | None) -> Self:
        """The fit is done, or was interrupted."""
        if keeper is not None and not fitted.interrupted:
            keeper.remove()
        self._network, self._history = fitted.network, fitted.history
        self._finish(recipe, held_out)
        if fitted.interrupted:
            warnings.warn("interrupted: the best model so far is kept", stacklevel=3)
        return self

    def _read_features(self, X: Any, y: Any = "not needed", *, reset: bool) -> Any:
        if isinstance(X, torch.Tensor):
            X = X.detach().cpu().numpy()
        if is_dataframe(X):
            wrong = [str(c) for c, dtype in X.dtypes.items() if dtype.kind not in "biuf"]
            if wrong:
                raise ValueError(
                    f"columns {', '.join(wrong[:5])} of X are not numeric; turn categories into numbers first, for "
                    "instance with sklearn.compose.make_column_transformer((OneHotEncoder(), [...]), "
                    'remainder="passthrough") in a Pipeline'
                )
        if reset and y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        return validate_data(self, X, reset=reset, accept_sparse="csr", dtype=(np.float64, np.float32))

    def _resolve_noise(
        self, X: Any, targets: Targets, trusted: tuple[NDArray[Any], NDArray[Any]] | None, seed: int
    ) -> tuple[NoiseModel, Any]:
        names = targets.label_names
        if isinstance(self.noise, GroupedNoise):
            raise ValueError("noise is a GroupedNoise: say which group each row belongs to, fit(X, y, groups=...)")
        if isinstance(self.noise, NoiseModel):
            if self.noise.n_labels != targets.q:
                raise ValueError(f"the noise model has {self.noise.n_labels} labels, y has {targets.q}")
            if names and self.noise.label_names and names != self.noise.label_names:
                raise ValueError(
                    f"the noise model is about labels {', '.join(self.noise.label_names[:4])} ..., y about "
                    f"{', '.join(names[:4])} ...: put them into one order, or leave the names out"
                )
            return self.noise, None
        if self.noise is not None and targets.n * targets.q > MOST_TO_ESTIMATE:
            raise ValueError(
                f"noise={self.noise!r} estimates the rates of {targets.q} labels from {targets.n} rows, which are too "
                "many at once: give noise=ClassConditionalNoise(rho_pos, rho_neg), with rates estimated by "
                "estimate_noise on fewer rows or on groups of labels"
            )
        if self.noise is not None and X.shape[0] >= FEWEST_TO_ESTIMATE:
            from ccmn.estimation import estimate_noise

            rates = estimate_noise(
                X, targets.labels, sides=ESTIMATED_SIDES[self.noise], trusted=trusted, random_state=seed
            )
            return rates.cautious_noise, rates
        if self.noise is not None and trusted is None:
            warnings.warn(
                f"{X.shape[0]} rows are too few to estimate noise rates (fewer than {FEWEST_TO_ESTIMATE}): the labels "
                "are taken at their word; give a noise model to correct them",
                stacklevel=3,
            )
        return ClassConditionalNoise(0.0, 0.0, n_labels=targets.q, label_names=names), None

    def _debias_by_group(
        self,
        X: Any,
        targets: Targets,
        trusted: tuple[NDArray[Any], NDArray[Any]] | None,
        seed: int,
        groups: Sequence[Any],
        noisy_validation: bool,
    ) -> Any:
        """Debiased labels, every row by the rates of its group."""
        if self.loss not in LOSSES:
            raise ValueError(
                f"groups need a loss that takes debiased labels, 'hamming' or 'ranking'; got {self.loss!r}"
            )
        if is_sparse(targets.labels):
            raise ValueError(f"groups need dense labels; got {targets.n} x {targets.q} sparse ones: give y.toarray()")
        if noisy_validation:
            raise ValueError(
                "with groups, validation rows must be clean (validation_is_clean=True), or be held out of X"
            )
        self.rates_ = None
        noise = self.noise
        if isinstance(noise, str):
            from ccmn.estimation import estimate_noise

            self.rates_ = estimate_noise(
                X, targets.labels, sides=ESTIMATED_SIDES[noise], trusted=trusted, random_state=seed, groups=groups
            )
            noise = self.rates_.cautious_noise
        if not isinstance(noise, GroupedNoise):
            given = "None" if noise is None else type(noise).__name__
            raise TypeError(f"groups need rates for each: noise='estimate' or a GroupedNoise; got {given}")
        self.group_noise_, self.noise_ = noise, noise.mean(groups)
        return noise.debias(targets.labels, groups)

    def _recipe(self, targets: Targets, n: int, seed: int) -> Recipe:
        loss, raw = self._make_loss()
        small = n <= 256
        criterion = "ranking_and_hamming_loss" if self.loss == "ranking" and targets.q > 1 else "hamming_loss"
        if targets.kind == "multiclass":
            criterion = "one_error"
        auto = n if small else 100 if n <= 5000 else 400
        device = torch.device(check_device(self.device, torch.cuda.is_available()))
        # Few rows cost nothing in float64, and there no result depends on how sums happen to round.
        exact = small and isinstance(self.model, str) and device.type == "cpu"
        return Recipe(
            loss=loss,
            raw_labels=raw,
            model=self.model,
            lr=tuple(float(x) for x in np.atleast_1d(np.asarray(self.lr, dtype=np.float64))),
            epochs=self.epochs,
            batch_size=auto if isinstance(self.batch_size, str) else int(self.batch_size),
            weight_decay=float(self.weight_decay),
            criterion=criterion,
            patience=self.patience,
            device=device,
            dtype=torch.float64 if exact else torch.float32,
            autocast=bool(self.autocast) and device.type != "cpu",
            seed=seed,
        )

    def _make_loss(self) -> tuple[MultiLabelLoss, bool]:
        """The loss, and whether it takes noisy labels (and not debiased ones)."""
        noise = self.noise_
        if self.loss == "forward":
            return ForwardLoss(noise), True  # type: ignore[arg-type]
        if self.loss == "plugin":
            return PluginLoss(noise), True  # type: ignore[arg-type]
        # A transition matrix moves labels together: the ranking loss must know.
        own = None if noise.flips_independent else noise
        if self.loss == "hamming":
            loss: MultiLabelLoss = HammingLoss(
                self.surrogate, own, correction=self.correction, flood_level=self.flood_level
            )
        else:
            loss = RankingLoss(self.surrogate, own, correction=self.correction, flood_level=self.flood_level)
        return loss, own is not None

    def _given_validation(self, validation: tuple[Any, Any], targets: Targets, clean: bool) -> Sample:
        X = self._read_features(validation[0], reset=False)
        Y = encode_like(validation[1], targets)
        if Y.shape[0] != X.shape[0]:
            raise ValueError(f"validation has {X.shape[0]} rows of X and {Y.shape[0]} of y")
        if is_sparse(Y):
            return Sample(X, SparseLabels(Y, None if clean else self.noise_.debiasing()), None)
        return Sample(X, Y if clean else self.noise_.debias(Y), None)

    def _split(
        self,
        whole: Sample,
        labels: Labels,
        targets: Targets,
        validation: tuple[Any, Any] | None,
        clean: bool,
        seed: int,
    ) -> tuple[Sample, Labels, Sample]:
        """Training rows with the labels the loss takes, and the rows to choose by."""
        if validation is not None:
            return whole, labels, self._given_validation(validation, targets, clean)
        n = whole.X.shape[0]
        if n < FEWEST_TO_HOLD_OUT:
            return whole, labels, whole
        order = np.random.default_rng(seed).permutation(n)
        n_out = min(max(1, round(self.validation_fraction * n)), n - 1)
        out, kept = np.sort(order[:n_out]), np.sort(order[n_out:])
        return whole.take(kept), labels[kept], whole.take(out)

    def _solve(
        self,
        recipe: Recipe,
        training: Sample,
        labels: Labels,
        held_out: Sample,
        keeper: Checkpoint | None,
    ) -> Fitted:
        plain = self.model == "linear" and self.loss == "hamming" and self.correction is None
        # Both paths need all labels at once.
        plain = plain and isinstance(held_out.p, np.ndarray)
        plain = plain and isinstance(training.p, np.ndarray) and not np.isnan(training.p).any()
        possible = {
            "closed_form": plain and self.surrogate == "square",
            "lbfgs": plain and self.surrogate == "logistic" and can_decompose(training.X),
        }
        if not possible.get(self.solver, True):
            raise ValueError(_NEEDS[self.solver])
        if possible["closed_form"] and self.solver != "adam":
            with few_threads(training.X):
                return fit_closed_form(recipe, training, held_out)
        few = training.X.shape[0] <= MOST_ROWS_FOR_LBFGS
        if possible["lbfgs"] and (self.solver == "lbfgs" or (self.solver == "auto" and few)):
            with few_threads(training.X):
                return fit_logistic_path(recipe, training, held_out)
        ready, rows = in_memory(recipe, training, labels), held_out_rows(recipe, held_out)
        with progress_of(self._verbose(), recipe.criterion) as tell:
            return fit_loop(recipe, ready, rows, tell, keeper)

    def _verbose(self) -> int:
        """Of several processes that train together one tells."""
        return self.verbose if Ranks.current().writes else 0

    def _keeper(self, path: str | os.PathLike[str], fingerprint: str, *, every: int = 5) -> Checkpoint:
        """Where the state of the fit is kept; after every epoch where several processes may be stopped by one."""
        ranks = Ranks.current()
        every = every if ranks.world == 1 else 1
        return Checkpoint(path, fingerprint, every=every, writes=ranks.writes)

    def _fingerprint(self, training: Sample, labels: Labels) -> str:
        """What a checkpoint belongs to: parameters, shapes and labels."""
        parameters = {k: repr(v) for k, v in self.get_params(deep=False).items() if k != "verbose"}
        text = repr((sorted(parameters.items()), training.X.shape))
        digest = hashlib.sha256(text.encode())
        matrix = labels.matrix if isinstance(labels, SparseLabels) else None
        for part in (labels,) if matrix is None else (matrix.indptr, matrix.indices, matrix.data):
            digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()

    def _finish(self, recipe: Recipe, held_out: Sample) -> None:
        """What is fitted on the held-out rows after the weights: the slope of probabilities, and thresholds."""
        surrogate = self.surrogate if isinstance(self.surrogate, str) else None
        self._link, self._slope, self._has_dummy = link_of(self.loss, surrogate), 1.0, self.loss == "ranking"
        q = held_out.p.shape[1]
        self.thresholds_ = np.zeros(q)
        if self._link == "slope":
            self._slope = self._fit_slope(held_out)
        if self.threshold == "f1":
            parts = [
                f1_thresholds(self._scores(held_out.X, t), held_out.labels_of(t), held_out.weights)
                for t in self._tiles(max(1, held_out.X.shape[0]))
            ]
            self.thresholds_ = np.concatenate(parts)

    def _fit_slope(self, held_out: Sample) -> float:
        """A block of rows at a time; of very many rows and labels as many rows as make enough entries."""
        n, q = held_out.p.shape
        fit, size = SlopeFit(), max(1, ENTRIES_AT_ONCE // q)
        rows = np.unique(np.linspace(0, n - 1, max(1, min(n, ENTRIES_ENOUGH // q))).astype(np.int64))
        for start in range(0, rows.size, size):
            part = held_out.take(rows[start : start + size])
            fit.add(self._scores(part.X), part.dense_labels(), part.weights)
        return fit.slope()

    def _watch(self, recipe: Recipe, training: Sample) -> None:
        """Warn where a part of the training risk went below zero and stayed there in the weights that are kept."""
        self.risk_parts_ = None
        if isinstance(training.p, SparseLabels):
            return  # of so many labels not even a sample of rows is made dense for this
        some = training.take(np.arange(training.X.shape[0])[spread_rows(training.X.shape[0])])
        p = some.dense_labels()
        if not can_go_negative(recipe.loss, p):
            return
        parts = risk_parts(recipe.loss, self._network.outputs(some.X), p, some.weights)
        self.risk_parts_ = parts.means
        message = warning_about(parts, self.label_names_, corrected=self.correction is not None)
        if message is not None:
            warnings.warn(message, stacklevel=3)

    # -- predicting

    def _scores(self, X: Any, labels: slice | None = None) -> NDArray[np.float64]:
        """Scores (n, q) before the thresholds, or those of some labels: what the loss decides by."""
        if labels is None:
            outputs = self._network.outputs(X)
            if self._has_dummy:
                outputs = outputs[:, 1:] - outputs[:, :1]
        elif self._has_dummy:
            outputs = self._network.some_outputs(X, slice(labels.start + 1, labels.stop + 1))
            outputs = outputs - self._network.some_outputs(X, slice(0, 1))
        else:
            outputs = self._network.some_outputs(X, labels)
        if self._link == "plugin":
            rho_pos, rho_neg = (rates[labels or slice(None)] for rates in self._rates())
            # Increasing in the noisy log-odds, 0 where the clean posterior is 1/2.
            return np.asarray(2 * (expit(outputs) - rho_neg) / (1 - rho_pos - rho_neg) - 1)
        return outputs

    def _rates(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        assert isinstance(self.noise_, ClassConditionalNoise)
        return self.noise_.rho_pos, self.noise_.rho_neg

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Scores of the labels; one is predicted when its score is >= 0. Shape (n, q), or (n,) for two classes."""
        check_is_fitted(self)
        scores = self._scores(self._read_features(X, reset=False)) - self.thresholds_
        return scores[:, 0] if self._kind == "binary" else scores

    def _tiles(self, per_label: int) -> list[slice]:
        """All labels, in tiles; each costs its weights and so many numbers more."""
        return list(label_tiles(self.thresholds_.size, max(self._network.weights_per_output, per_label)))

    def _tile_scores(self, X: Any, labels: slice) -> NDArray[np.float64]:
        return self._scores(X, labels) - self.thresholds_[labels]

    def top_labels(self, X: Any, k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The k best labels of every row, best first, and their scores: column numbers (n, k) and scores (n, k).

        For very many labels: all scores are worked out, a tile at a time, but never kept or sorted.
        """
        check_is_fitted(self)
        k = check_count(k, "k")
        if self._kind != "multilabel" or k > self.thresholds_.size:
            raise ValueError(f"top_labels needs a label matrix of at least k columns; k={k}, kind {self._kind!r}")
        return top_labels(self._tile_scores, self._read_features(X, reset=False), self._tiles(1), k)

    def predict(self, X: Any, *, sparse: bool | None = None) -> Any:
        """0/1 matrix (n, q); or the class of each row.

        Parameters
        ----------
        sparse : bool, optional
            A label matrix as CSR, from scores that exist for a tile of labels at a time; by default if the labels
            given to ``fit`` were sparse.
        """
        if self._kind_of_fitted() == "multilabel" and (self._sparse if sparse is None else sparse):
            return predicted_labels(self._tile_scores, self._read_features(X, reset=False), self._tiles(1))
        scores = self.decision_function(X)
        if self._kind == "multilabel":
            return (scores >= 0).astype(np.int64)
        if self._kind == "multiclass":
            return np.asarray(self.classes_[scores.argmax(1)])
        positive = scores >= 0 if len(self.classes_) == 2 else np.zeros(len(scores), dtype=bool)
        return np.asarray(self.classes_[positive.astype(np.int64)])

    def _kind_of_fitted(self) -> str:
        check_is_fitted(self)
        return str(self._kind)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of the true labels, strictly inside (0, 1): (n, q); or (n, classes) for one class per row.

        How scores become probabilities: see :mod:`ccmn.models.probabilities`. With ``threshold="f1"`` they are
        those of the shifted scores, 1/2 at the cut.
        """
        scores = np.asarray(self.decision_function(X))
        scores = scores[:, None] if scores.ndim == 1 else scores
        if self._link in ("linear", "plugin"):
            p = linear_probability(scores)
        else:
            p = logistic_probability(self._slope * scores)
        if self._kind == "multilabel":
            return p
        if self._kind == "multiclass":
            return np.asarray(p / p.sum(1, keepdims=True))
        return np.concatenate((1 - p, p), 1) if len(self.classes_) == 2 else np.ones_like(p)

    @property
    def history_(self) -> DataFrame:
        """A row per learning rate and epoch, or per l2."""
        from pandas import DataFrame

        if not hasattr(self, "_history"):
            raise AttributeError("history_ is there after fit")
        return DataFrame(self._history)

    # -- keeping

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model: one file (a path with a suffix, such as model.ccmn) or a folder; never a pickle."""
        check_is_fitted(self)
        description = {
            "parameters": {k: _json_safe(v) for k, v in self.get_params(deep=False).items()},
            "kind": self._kind,
            "network": self._network.kind,
            "classes": self.classes_.tolist(),
            "label_names": self.label_names_,
            "feature_names": [str(n) for n in getattr(self, "feature_names_in_", [])] or None,
            "n_features": int(self.n_features_in_),
            "noise": self.noise_.to_dict(),
            "link": self._link,
            "has_dummy": self._has_dummy,
            "sparse": self._sparse,
            "slope": self._slope,
            "thresholds": self.thresholds_.tolist(),
            "history": self._history,
            "extra": self.extra_,
        }
        write_model(path, description, self._network.arrays)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_network")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.multi_output = True
        tags.classifier_tags.multi_label = True
        return tags


def _json_safe(value: Any) -> Any:
    """A parameter as JSON can hold it; a user's own function becomes null, since code is never stored."""
    if isinstance(value, (NoiseModel, GroupedNoise)):
        return value.to_dict()
    if isinstance(value, (np.ndarray, tuple)):
        return [_json_safe(v) for v in value]
    if isinstance(value, np.generic):
        return value.item()
    return value if isinstance(value, (str, int, float, bool, list)) else None
