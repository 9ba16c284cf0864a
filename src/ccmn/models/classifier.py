"""CCMNClassifier: the scikit-learn face of it all."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted
from typing_extensions import Self

from ccmn._containers import is_sparse
from ccmn._random import as_generator
from ccmn._validation import check_count
from ccmn.data.shards import ShardedData
from ccmn.losses import MultiLabelLoss
from ccmn.models.calibration import calibrated
from ccmn.models.fitting import Fitted, fit_loop, held_out_rows, recipe_of
from ccmn.models.monitor import risk_parts_of, stream_progress_of, warning_about
from ccmn.models.persistence import description_of, write_model
from ccmn.models.predictor import Scorer, link_of, predicted_labels, top_labels
from ccmn.models.resuming import fingerprint, keeper_at, stream_fingerprint
from ccmn.models.row_sketch import TRAINING_ROWS, RowSketch, SketchedSource
from ccmn.models.solvers import NEEDS, solve, warn_if_badly_scaled
from ccmn.models.streaming import BATCH_SIZE, Plan, draw_sample, read_memory, streamed
from ccmn.models.training_data import (
    FEWEST_TO_HOLD_OUT,
    DebiasedLabels,
    Sample,
    Targets,
    check_groups_possible,
    check_parameters,
    check_ranks,
    debias_by_group,
    debias_labels,
    encode_targets,
    given_rows,
    hold_out,
    read_features,
    read_trusted,
)
from ccmn.noise import GroupedNoise, NoiseModel
from ccmn.training import Ranks, SparseLabels
from ccmn.training.checkpoint import Checkpoint

if TYPE_CHECKING:
    from pandas import DataFrame


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
    selected_ : dict or None
        Configuration selected on the validation set: the name of the criterion (``"criterion"``), its value for the
        fitted model (``"value"``), and for Adam the learning rate (``"lr"``), the epoch (``"epoch"``), the number of
        epochs trained (``"epochs"``) and the training loss of that epoch (``"loss"``). The closed form and L-BFGS
        select l2 separately for each of ``"n_labels"`` labels: ``"l2_min"`` and ``"l2_max"`` are the smallest and
        the largest. ``None`` for models saved by versions that did not store it.
    risk_parts_ : array (2, q) or (1, q), or None
        The parts of the training risk of every label (R+ and R- of the Hamming loss, one of the ranking loss), which
        estimate numbers that cannot be negative; ``fit`` warns where one is. None where the labels or the loss
        leave none to go negative.
    classes_ : array
        What the columns of a label matrix are (0 .. q-1, or the labels of the sets), or the class values.
    training_rows_ : RowSketch or None
        Sketch of the rows given to ``fit``. ``training_rows_.compare(X)`` estimates which share of other rows are
        training rows. None for models saved by older versions.
    n_features_in_, feature_names_in_, label_names_
    extra_ : dict
        JSON-safe notes that are saved and loaded with the model.

    Examples
    --------
    >>> from ccmn import CCMNClassifier, PartialNoise
    >>> from ccmn.data import load_digit_scenes
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

    _checkpoints: tuple[Checkpoint, ...] = ()
    """Checkpoints to delete after the model has been saved."""

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
            File to which the state of a long fit is written every few epochs. The same call with the same data,
            labels, parameters and ``random_state`` resumes from it. A checkpoint of a different fit raises a
            ValueError (:mod:`ccmn.models.resuming` lists what is compared). The file of a completed fit is kept
            until :meth:`save` has written the model, and resumes without training. The closed form and L-BFGS
            write no checkpoint.
        """
        check_parameters(self)
        check_ranks(self, Ranks.current())
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        X = read_features(self, X, reset=True)
        targets = encode_targets(y)
        if targets.n != X.shape[0]:
            raise ValueError(f"X has {X.shape[0]} rows, y has {targets.n}")
        weights = None if sample_weight is None else self._row_weights(sample_weight, X)
        seed = int(as_generator(self.random_state).integers(2**31))
        known = read_trusted(trusted, targets)
        if groups is None:
            found = debias_labels(self.noise, X, targets, known, seed)
        else:
            check_groups_possible(self.loss, targets, validation is not None and not validation_is_clean)
            found = debias_by_group(self.noise, X, targets, known, seed, groups)
        self._start(targets, found)
        recipe = recipe_of(self, self.noise_, targets, targets.n, seed)
        whole, labels = Sample(X, found.p, weights), found.p
        if recipe.raw_labels:
            labels = SparseLabels(targets.labels) if is_sparse(targets.labels) else targets.labels
        if validation is None:
            training, labels, held_out = hold_out(whole, labels, self.validation_fraction, seed)
        else:
            training, held_out = whole, self._given_validation(validation, targets, validation_is_clean)
        keeper = None
        if checkpoint is not None:
            keeper = keeper_at(checkpoint, fingerprint(self, training, labels, held_out))
        fitted = solve(self, recipe, training, labels, held_out, self._verbose(), keeper)
        self._keep(fitted, held_out)
        self._watch(recipe.loss, training)
        self.training_rows_ = RowSketch.of(X)
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
        labels : which columns are labels, where a path is given; see :data:`ccmn.data.tables.LabelSpec`
        memory : bytes, or text like "500MB"
            Ceiling of what buffer, reading, sample and criteria take, beside the model and its optimiser's state.
        validation, validation_is_clean, checkpoint : as in ``fit``
        """
        check_parameters(self)
        check_ranks(self, Ranks.current())
        if self.solver in NEEDS:
            raise ValueError(f"solver={self.solver!r} needs all rows in memory; use solver='auto'")
        data = dataset if isinstance(dataset, ShardedData) else ShardedData(dataset, labels)
        seed = int(as_generator(self.random_state).integers(2**31))
        batch_size = BATCH_SIZE if isinstance(self.batch_size, str) else int(self.batch_size)
        plan = Plan.of(data, read_memory(memory), batch_size, seed)
        drawn = draw_sample(data, 1.0 if data.n < FEWEST_TO_HOLD_OUT else self.validation_fraction, plan)
        targets = replace(encode_targets(drawn.Y), label_names=data.label_names)
        found = debias_labels(self.noise, drawn.X, targets, None, seed)
        self._start(targets, found)
        self._name_features(data)
        warn_if_badly_scaled(self, drawn.X, stacklevel=3)
        recipe = recipe_of(self, self.noise_, targets, data.n, seed)
        recipe = replace(recipe, batch_size=plan.settings.batch_size, dtype=torch.float32)
        held_out = Sample(drawn.X, found.p, None)
        if validation is not None:
            held_out = self._given_validation(validation, targets, validation_is_clean)
        keeper = None
        if checkpoint is not None:
            keeper = keeper_at(checkpoint, stream_fingerprint(self, data, plan, drawn, held_out), every=1)
        with stream_progress_of(self._verbose(), recipe.criterion) as (tell, passed):
            source = SketchedSource(data)
            training = streamed(recipe, source, plan, drawn, self.noise_, passed)
            fitted = fit_loop(recipe, training, held_out_rows(recipe, held_out), tell, keeper)
        self._keep(fitted, held_out)
        self.training_rows_ = source.gather()
        return self

    def _row_weights(self, sample_weight: Any, X: Any) -> NDArray[np.float64]:
        if self.correction is not None:
            raise ValueError("sample_weight and correction do not go together: corrected parts are means over rows")
        return np.asarray(_check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True))

    def _start(self, targets: Targets, found: DebiasedLabels) -> None:
        """What is known before training: the labels, and the noise that they are corrected for."""
        if isinstance(found.p, SparseLabels) and self.threshold == "f1" and not found.noise.flips_independent:
            raise ValueError("threshold='f1' needs two rates per label where labels are sparse; use threshold='fixed'")
        # Should this fit fail, the weights of an earlier one must not speak for the labels of this.
        self.__dict__.pop("_scorer", None)
        self.classes_, self.label_names_, self._kind = targets.classes, targets.label_names, targets.kind
        self._sparse = targets.sparse
        self.noise_, self.rates_, self.group_noise_ = found.noise, found.rates, found.groups
        self.risk_parts_: NDArray[np.float64] | None = None
        self.training_rows_: RowSketch | None = None
        self.extra_: dict[str, Any] = {}

    def _name_features(self, data: ShardedData) -> None:
        self.n_features_in_ = data.d
        if data.feature_names is not None:
            self.feature_names_in_ = np.array(data.feature_names, dtype=object)

    def _given_validation(self, validation: tuple[Any, Any], targets: Targets, clean: bool) -> Sample:
        X = read_features(self, validation[0], reset=False)
        return given_rows(X, validation[1], targets, None if clean else self.noise_)

    def _verbose(self) -> int:
        """Of several processes that train together one tells."""
        return self.verbose if Ranks.current().writes else 0

    def _keep(self, fitted: Fitted, held_out: Sample) -> None:
        """Set the fitted attributes."""
        self._checkpoints = fitted.checkpoints
        link = link_of(self.loss, self.surrogate if isinstance(self.surrogate, str) else None)
        no_cuts = np.zeros(held_out.p.shape[1])
        bare = Scorer(fitted.network, self.noise_, self.loss == "ranking", link, 1.0, no_cuts)
        self._scorer = calibrated(bare, held_out, self.threshold)
        self.thresholds_, self._history = self._scorer.thresholds, fitted.history
        self.selected_: dict[str, Any] | None = fitted.selected
        if fitted.interrupted:
            warnings.warn("interrupted: the best model so far is kept", stacklevel=3)
        if fitted.advice and Ranks.current().writes:
            warnings.warn(" ".join(fitted.advice), stacklevel=3)

    def _watch(self, loss: MultiLabelLoss, training: Sample) -> None:
        """Warn where a part of the training risk went below zero and stayed there in the weights that are kept."""
        parts = risk_parts_of(loss, self._scorer.network, training)
        if parts is None:
            return
        self.risk_parts_ = parts.means
        names = self.label_names_ or self.noise_.label_names
        has_epochs = any("epoch" in row for row in self._history)
        message = warning_about(parts, names, corrected=self.correction is not None, has_epochs=has_epochs)
        if message is not None:
            warnings.warn(message, stacklevel=3)

    # -- predicting

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Scores of the labels; one is predicted when its score is >= 0. Shape (n, q), or (n,) for two classes."""
        check_is_fitted(self)
        scores = self._scorer.decisions(read_features(self, X, reset=False))
        return scores[:, 0] if self._kind == "binary" else scores

    def top_labels(self, X: Any, k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The k best labels of every row, best first, and their scores: column numbers (n, k) and scores (n, k).

        For very many labels: all scores are worked out, a tile at a time, but never kept or sorted.
        """
        check_is_fitted(self)
        k = check_count(k, "k")
        if self._kind != "multilabel" or k > self.thresholds_.size:
            raise ValueError(f"top_labels needs a label matrix of at least k columns; k={k}, kind {self._kind!r}")
        scorer = self._scorer
        return top_labels(scorer.decisions, read_features(self, X, reset=False), scorer.tiles(), k)

    def predict(self, X: Any, *, sparse: bool | None = None) -> Any:
        """0/1 matrix (n, q); or the class of each row.

        Parameters
        ----------
        sparse : bool, optional
            A label matrix as CSR, from scores that exist for a tile of labels at a time; by default if the labels
            given to ``fit`` were sparse.
        """
        check_is_fitted(self)
        if self._kind == "multilabel" and (self._sparse if sparse is None else sparse):
            return predicted_labels(self._scorer.decisions, read_features(self, X, reset=False), self._scorer.tiles())
        scores = self.decision_function(X)
        if self._kind == "multilabel":
            return (scores >= 0).astype(np.int64)
        if self._kind == "multiclass":
            return np.asarray(self.classes_[scores.argmax(1)])
        positive = scores >= 0 if len(self.classes_) == 2 else np.zeros(len(scores), dtype=bool)
        return np.asarray(self.classes_[positive.astype(np.int64)])

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of the true labels, strictly inside (0, 1): (n, q); or (n, classes) for one class per row.

        How scores become probabilities: see :mod:`ccmn.models.predictor`. With ``threshold="f1"`` they are
        those of the shifted scores, 1/2 at the cut.
        """
        scores = np.asarray(self.decision_function(X))
        p = self._scorer.probabilities(scores[:, None] if scores.ndim == 1 else scores)
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
        """Write the model to one file (a path with a suffix, such as model.ccmn) or to a folder; never a pickle.

        The checkpoint of a completed fit (``fit(..., checkpoint=)``) is deleted after the model has been written.
        """
        check_is_fitted(self)
        arrays = self._scorer.network.arrays
        if self.training_rows_ is not None:
            arrays = {**arrays, TRAINING_ROWS: self.training_rows_.hashes.view(np.int64)}
        write_model(path, description_of(self), arrays)
        for checkpoint in self._checkpoints:
            checkpoint.remove()
        self._checkpoints = ()

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_scorer")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.multi_output = True
        tags.classifier_tags.multi_label = True
        return tags
