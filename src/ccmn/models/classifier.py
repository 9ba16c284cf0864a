"""CCMNClassifier: multi-label classification with noisy labels, with the interface of scikit-learn.

``fit`` and ``fit_stream`` perform the same steps: prepare the data, resolve the noise model, split off a validation
set, train with a solver, and calibrate.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from typing_extensions import Self

from ccmn._containers import is_sparse, to_dense_array
from ccmn._progress import show_phases
from ccmn._random import as_generator
from ccmn._validation import check_choice, check_count, check_device, check_penalty, check_real
from ccmn.data.shards import ShardedData
from ccmn.estimation import NOISE_TYPES
from ccmn.losses import CORRECTIONS, LOSSES, SURROGATES, ForwardLoss, HammingLoss, MultiLabelLoss, RankingLoss
from ccmn.models.calibration import LINK_OF_LOSS, calibrate
from ccmn.models.monitor import overfitting_warning, show_progress, training_risk_parts
from ccmn.models.persistence import check_network_description, check_weights, describe, read_description, write_model
from ccmn.models.plugin_loss import PluginLoss
from ccmn.models.predictor import (
    FittedNetwork,
    ProbabilityModule,
    Scorer,
    predicted_labels,
    top_labels,
    with_names,
)
from ccmn.models.solvers import (
    REQUIREMENTS,
    SOLVERS,
    FitResult,
    StreamedSplit,
    TrainingConfig,
    choose_solver,
    fit_adam,
    forest_suits,
)
from ccmn.models.streaming import (
    DEFAULT_STREAM_BATCH_SIZE,
    ScaledSource,
    StreamPlan,
    draw_holdout,
    read_memory,
    streamed_rows,
)
from ccmn.models.training_data import (
    MIN_SAMPLES_FOR_ESTIMATION,
    MIN_SAMPLES_TO_SPLIT,
    ResolvedNoise,
    Sample,
    Scaling,
    Split,
    Targets,
    TrainingData,
    check_groups_possible,
    debias,
    fit_fingerprint,
    given_validation,
    is_small,
    is_votes,
    prepare,
    read_features,
    resolve_noise,
    split,
    with_out_of_fold_features,
    with_posterior_labels,
)
from ccmn.noise import ClassConditionalNoise, GroupedNoise, NoiseModel
from ccmn.training import NETWORKS, ProcessGroup
from ccmn.training.checkpoint import Checkpoint
from ccmn.training.networks import make_unflattened
from ccmn.votes import infer_labels

if TYPE_CHECKING:
    from pandas import DataFrame

LOSS_NAMES = (*LOSSES, "forward", "plugin")
"""Values of the parameter ``loss``."""
MODEL_NAMES = ("auto", *NETWORKS, "average")
"""Values of the parameter ``model`` other than functions."""
MAX_CROSS_FIT_EPOCHS = 10
"""Epochs of the networks from whose embeddings rates are estimated; a short training suffices."""
MAX_POSTERIOR_EPOCHS = 20
"""Epochs of the networks whose out-of-fold probabilities become posterior probabilities of the true labels."""
ADAM_PARAMETERS = ("lr", "epochs", "batch_size")
"""Parameters that only Adam uses."""
MAX_FULL_BATCH_ROWS = 256
"""Up to this number of rows, ``batch_size="auto"`` is all rows, and linear models and networks train in float64."""


def check_parameters(params: Mapping[str, Any], group: ProcessGroup | None = None) -> None:
    """Raise an error for parameters of ``CCMNClassifier`` that are invalid by themselves or with several ranks."""
    _check_noise(params["noise"])
    _check_loss_and_model(params)
    _check_optimization(params)
    if not isinstance(params["scale"], (bool, np.bool_)):
        raise ValueError(f"scale must be True or False; got {params['scale']!r}")
    check_choice(params["threshold"], "threshold", ("fixed", "f1"))
    check_real(params["validation_fraction"], "validation_fraction", 0, 1)
    if group is not None and group.is_distributed:
        if params["correction"] is not None:
            raise ValueError(
                f"correction={params['correction']!r} needs means over a whole batch, of which each of the "
                f"{group.world_size} ranks has only a share; use correction=None or one process"
            )
        if params["random_state"] is None:
            raise ValueError("random_state must be a number if several ranks train together; got None")


def _check_noise(noise: Any) -> None:
    if isinstance(noise, str):
        check_choice(noise, "noise", NOISE_TYPES, others="a noise model or None")
    elif noise is not None and not isinstance(noise, (NoiseModel, GroupedNoise)):
        raise TypeError(
            f"noise must be 'both', 'partial', 'missing', a noise model or None; got {type(noise).__name__}"
        )


def _check_loss_and_model(params: Mapping[str, Any]) -> None:
    loss, model, surrogate, correction = (params[name] for name in ("loss", "model", "surrogate", "correction"))
    check_choice(loss, "loss", ("auto", *LOSS_NAMES))
    if not callable(model):
        if model not in MODEL_NAMES:
            NETWORKS[model]  # raises an error with similar names
        if model == "average" and loss not in ("auto", "plugin"):
            raise ValueError(f"model='average' requires loss='auto' or 'plugin'; got {loss!r}")
    if not callable(surrogate) and surrogate != "auto":
        SURROGATES[surrogate]
    if surrogate != "auto" and loss == "auto":
        raise ValueError(f"surrogate={surrogate!r} has no effect with loss='auto'; use 'hamming' or 'ranking'")
    if correction is not None:
        CORRECTIONS[correction]
        if loss not in ("auto", *LOSSES):
            raise ValueError(f"correction={correction!r} has no effect with loss={loss!r}; use correction=None")


def _check_optimization(params: Mapping[str, Any]) -> None:
    check_choice(params["solver"], "solver", ("auto", "adam", "closed_form", "newton"))
    check_count(params["epochs"], "epochs")
    if params["batch_size"] != "auto":
        check_count(params["batch_size"], "batch_size")
    try:
        lr = np.atleast_1d(np.asarray(params["lr"], dtype=np.float64))
    except (TypeError, ValueError):
        lr = np.empty(0)
    if lr.ndim != 1 or lr.size == 0 or not ((lr > 0) & np.isfinite(lr)).all():
        raise ValueError(f"lr must be a positive number or a list of them; got {params['lr']!r}")
    if params["weight_decay"] != "auto":
        check_penalty(params["weight_decay"], "weight_decay")


class CCMNClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Multi-label classifier that corrects for label noise.

    Each label may have been flipped with its own pair of rates. By default, the classifier estimates these rates and
    the probabilities of the noisy labels, with the average of a logistic regression and a random forest, and inverts
    the noise in the probabilities. The unbiased losses of the paper [1]_ replace every noisy label by an unbiased
    estimate of the true label: ``loss="ranking", model="linear", scale=False`` is the method of the paper.

    Parameters
    ----------
    noise : {"both", "partial", "missing"}, NoiseModel, GroupedNoise or None, default="both"
        Noise model of the training labels. With "both", both rates of every label are estimated from the data.
        "partial" assumes that labels were only added, "missing" that labels were only removed. ``GroupedNoise``
        requires ``fit(..., groups=)``. ``None`` disables the noise correction.
    loss : {"auto", "plugin", "hamming", "ranking", "forward"}, default="auto"
        "plugin" fits the noisy labels and inverts the noise in the predicted probabilities. "hamming" and "ranking" are
        the unbiased losses of the paper, Eq. (4), and Eq. (6) with the dummy label of Eq. (8). "forward" is the
        likelihood of the noisy labels. "auto" is "plugin" for linear models and averages, "ranking" for other networks
        and for noise models without two rates per label, and "hamming" with ``groups`` or ``correction``. If X has more
        than two dimensions, "auto" trains the network with the ranking loss of posterior probabilities: the
        probabilities of the true labels given the noisy ones and out-of-fold predictions of the network
        (:meth:`ccmn.ClassConditionalNoise.posterior`), instead of debiased labels.
    surrogate : {"auto", "sigmoid", "square", "hinge", "logistic"} or callable, default="auto"
        Surrogate of the 0-1 loss in the losses "hamming" and "ranking". "auto" is "logistic" for "hamming" and
        "sigmoid" for "ranking".
    model : {"auto", "average", "linear", "mlp"} or callable (n_features, n_outputs) -> torch.nn.Module, default="auto"
        "average" is the average of a logistic regression and a random forest, whose shares are selected on held-out
        rows. "mlp" has one hidden layer of 128 units. "auto" is "average" for the loss "plugin" and 50 to 100,000 rows,
        5,000 dense features (20,000 sparse ones) and 100 labels, and "linear" otherwise. A callable is called as
        ``model(shape, n_outputs)`` if X has more than two dimensions, such as images.
    lr : float or sequence of floats, default=(0.05, 0.005, 0.0005)
        Learning rates of Adam. All are trained at the same time; the best one on the validation set is selected.
    epochs : int, default=200
        Maximum number of epochs of Adam.
    batch_size : int or "auto", default="auto"
        Rows per batch of Adam. "auto" uses all rows up to 256 rows, 100 up to 5,000 rows, and 400 for more.
    weight_decay : float or "auto", default="auto"
        l2 weight as in ``torch.optim.Adam``; "auto" is 1e-4. The solvers "closed_form" and "newton" use it as the
        smallest value of a path, from which each label selects its own on the validation set; for "auto" it decreases
        with the number of rows.
    scale : bool, default=True
        Whether built-in models are trained on scaled features: dense features are standardized, sparse ones divided by
        the mean norm of a row. Predictions take the original features. Custom networks get features as they are.
    validation_fraction : float, default=0.2
        Fraction of the rows that are used as validation set, if none is passed to ``fit``. Their labels are noisy as
        well; the validation criterion is corrected for that.
    solver : {"auto", "adam", "closed_form", "newton"}, default="auto"
        "auto" uses the closed form for a linear model with Hamming loss and square surrogate, Newton steps for the
        logistic surrogate and the loss "plugin", and Adam otherwise. "closed_form" and "newton" select l2 weights on
        validation rows ("newton" by cross-validation) and then fit the model to all rows.
    correction : {"abs", "relu"} or None, default=None
        Risk correction: keeps parts of the unbiased risk from becoming negative; for flexible networks.
    threshold : {"fixed", "f1"}, default="fixed"
        Threshold of every label: that of the loss (0, or the score of the dummy label), or the one with the largest
        corrected F1 score on the validation set.
    device : str, default="auto"
        "auto", "cpu", "cuda" or another PyTorch device, on which Adam trains. The other solvers use the CPU.
    random_state : int, Generator or None, default=None
        Controls the validation split, the estimation of rates, initial weights and batches.
    verbose : int, default=0
        1 shows a progress bar on a terminal; 2 prints a line per epoch.

    Attributes
    ----------
    noise_ : NoiseModel
        Noise model used for training. Estimated rates are shrunk towards their mean over the labels where they are
        poorly identified (:attr:`ccmn.estimation.NoiseRates.shrunk_noise`). With groups, it has the mean rates of the
        rows; with ``noise=None``, rates of zero.
    group_noise_ : GroupedNoise or None
        With groups, the noise model of every group.
    rates_ : NoiseRates, GroupRates or None
        Estimated rates with standard errors and flags, if rates were estimated.
    inferred_ : InferredLabels or None
        Result of :func:`ccmn.infer_labels` if votes were passed to ``fit``.
    coef_ : array of shape (q, d)
        Weights of a linear model. For the ranking loss, the weights of the dummy label are subtracted, so that
        ``decision_function(X) = X @ coef_.T + intercept_ - thresholds_``.
    intercept_ : array of shape (q,)
        Biases of a linear model.
    thresholds_ : array of shape (q,)
        Threshold of every label; 0 for ``threshold="fixed"``.
    history_ : DataFrame
        Validation criterion of every learning rate and epoch, or of every l2 weight.
    selected_ : dict
        Configuration selected on the validation set: the name of the criterion (``"criterion"``), its value for the
        fitted model (``"value"``), and for Adam the learning rate (``"lr"``), the epoch (``"epoch"``), the number of
        epochs trained (``"epochs"``) and the training loss of that epoch (``"loss"``). The other solvers select l2
        separately for each of ``"n_labels"`` labels: ``"l2_min"`` and ``"l2_max"`` are the smallest and the largest.
        For an average, ``"linear_share"`` is the share of the linear model.
    risk_parts_ : array of shape (2, q) or (1, q), or None
        Parts of the training risk of every label (R+ and R- of the Hamming loss, one part of the ranking loss). They
        estimate quantities that cannot be negative; ``fit`` warns if one is. None if no part can be negative.
    classes_ : array
        Columns of a label matrix (their names if known, else 0 .. q-1), labels of the sets, or class values.
    label_names_ : tuple of str or None
        Names of the labels, if known.
    n_features_in_ : int
        Number of features.
    input_shape_ : tuple of int
        Shape of one input, if X had more than two dimensions.
    feature_names_in_ : array of str
        Names of the features, if X was a DataFrame.
    extra_ : dict
        JSON-safe notes that are saved and loaded with the model.

    References
    ----------
    .. [1] M.-K. Xie and S.-J. Huang, "CCMN: A General Framework for Learning With Class-Conditional Multi-Label
       Noise", IEEE TPAMI 45(1), 2023.

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

    _checkpoints: tuple[Checkpoint, ...] = ()
    """Checkpoints of a completed fit, which are deleted after the model has been saved."""

    def __init__(
        self,
        noise: str | NoiseModel | GroupedNoise | None = "both",
        *,
        loss: str = "auto",
        surrogate: str | Callable[..., Any] = "auto",
        model: str | Callable[..., Any] = "auto",
        lr: float | Sequence[float] = (5e-2, 5e-3, 5e-4),
        epochs: int = 200,
        batch_size: int | str = "auto",
        weight_decay: float | str = "auto",
        scale: bool = True,
        validation_fraction: float = 0.2,
        solver: str = "auto",
        correction: str | None = None,
        threshold: str = "fixed",
        device: str = "auto",
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
        self.scale = scale
        self.validation_fraction = validation_fraction
        self.solver = solver
        self.correction = correction
        self.threshold = threshold
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    # -- Fitting

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        validation: tuple[Any, Any] | None = None,
        validation_is_clean: bool = False,
        trusted: Any = None,
        groups: Sequence[Any] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Fit the model to features and noisy labels.

        Parameters
        ----------
        X : array, DataFrame, CSR matrix or Tensor of shape (n, d), or inputs of shape (n, ...)
            Features. For a custom network also an array with more dimensions, such as images, or a map-style
            ``Dataset`` of such inputs, whose items are read batch by batch; rates are then estimated from out-of-fold
            embeddings of the network (:func:`ccmn.cross_fit_proba`).
        y : array, DataFrame or CSR matrix of shape (n, q), list of label sets, array of shape (n,), or votes
            Noisy labels: a matrix of 0, 1 and NaN (not observed), a list of label sets, or one class per row. An array
            of shape (n, annotators, q) or a ``VoteTable`` contains the votes of several annotators, NaN where an
            annotator did not vote. The probabilities of the true labels given the votes are then the noisy labels.
        sample_weight : array of shape (n,), default=None
            Sample weights.
        validation : tuple (X, y), default=None
            Validation set for model selection, instead of a part of the training rows. Its labels are assumed to be as
            noisy as the training labels unless ``validation_is_clean``.
        validation_is_clean : bool, default=False
            Whether the labels of ``validation`` are true.
        trusted : tuple (rows, Y_true) or array of shape (n, q), default=None
            True labels of some rows: row numbers and labels, or labels of all rows with NaN where a label has not been
            verified. They improve estimated rates and replace the noisy labels in training, weighted by the
            information that they contain.
        groups : sequence of length n, default=None
            Source of every row (annotator, site, import batch). Rates are estimated for each group, or taken from a
            ``GroupedNoise``. Only for the losses "hamming" and "ranking".
        checkpoint : path-like, default=None
            File to which the state of a fit with Adam is written every few epochs. The same call with the same data,
            labels, parameters and ``random_state`` resumes from it. A checkpoint of a different fit raises a
            ValueError. The file of a completed fit is kept until :meth:`save` has written the model, and resumes
            without training.

        Returns
        -------
        CCMNClassifier
            The fitted classifier.
        """
        check_parameters(self.get_params(deep=False), ProcessGroup.current())
        if sample_weight is not None and self.correction is not None:
            raise ValueError(f"sample_weight cannot be combined with correction={self.correction!r}")
        if validation is None and validation_is_clean:
            raise ValueError("validation_is_clean=True has no effect without validation=(X, y)")
        self.__dict__.pop("_scorer", None)
        X = read_features(self, X, reset=True)
        data = prepare(X, y, sample_weight=sample_weight, trusted=trusted, groups=groups)
        if groups is not None:
            check_groups_possible(self.loss, data.targets, validation is not None and not validation_is_clean)
        seed = int(as_generator(self.random_state).integers(2**31))
        verbose = self.verbose if ProcessGroup.current().is_main else 0
        with show_phases(verbose) as on_phase:
            estimated = partial(on_phase, "noise rates")
            noise = resolve_noise(self.noise, self._estimation_data(data, seed), seed, estimated)
        self._reset(data.targets, noise)
        config = self._config(noise, data, X.shape[0], seed)
        sample = debias(data, noise, keep_noisy=config.loss_models_noise)
        if self._trains_on_posterior(data, noise):
            settings = self._cross_fit_settings(seed, MAX_POSTERIOR_EPOCHS)
            sample = with_posterior_labels(sample, data, noise.model, self._label_network(data), **settings)
        if validation is None:
            samples = split(sample, self.validation_fraction, seed)
        else:
            samples = Split(sample, self._given_validation(validation, data.targets, validation_is_clean))
        solver = choose_solver(config, samples)
        if solver != "adam":
            self._warn_about_unused(solver, checkpoint)
        saved = None if checkpoint is None else self._checkpoint(checkpoint, 5, samples.train, samples.valid)
        epochs = solver == "adam"
        with (
            show_progress(verbose if epochs else 0, config.criterion) as (on_epoch, _),
            show_phases(0 if epochs else verbose) as on_phase,
        ):
            result = SOLVERS[solver](config, samples, on_epoch, saved, on_phase)
            on_phase("calibration", 0, 1)
            self._set_fitted(config, result, samples.valid, samples.train)
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
        """Fit the model with Adam to a folder of Parquet shards that may be larger than memory.

        Rows are shuffled by the order in which row groups are read and within a buffer. A random sample of rows is held
        out first: it is used to estimate the noise rates, unless they are given, and as validation set.

        Parameters
        ----------
        dataset : ShardedData or path-like
            Shards, or the path of their folder.
        labels : default=None
            Label columns, if a path is given; see :data:`ccmn.data.tables.LabelSpec`.
        memory : int or str, default="500MB"
            Memory limit in bytes, or as text, for buffer, reading, held-out sample and criteria. The model and the
            state of its optimizer are not included.
        validation : tuple (X, y), default=None
            Validation set for model selection, as in :meth:`fit`.
        validation_is_clean : bool, default=False
            Whether the labels of ``validation`` are true.
        checkpoint : path-like, default=None
            File to which the state is written after every epoch, as in :meth:`fit`.

        Returns
        -------
        CCMNClassifier
            The fitted classifier.
        """
        check_parameters(self.get_params(deep=False), ProcessGroup.current())
        if self.solver in REQUIREMENTS:
            raise ValueError(f"solver={self.solver!r} requires all rows in memory; use solver='auto'")
        if validation is None and validation_is_clean:
            raise ValueError("validation_is_clean=True has no effect without validation=(X, y)")
        shards = dataset if isinstance(dataset, ShardedData) else ShardedData(dataset, labels)
        seed = int(as_generator(self.random_state).integers(2**31))
        batch_size = DEFAULT_STREAM_BATCH_SIZE if isinstance(self.batch_size, str) else int(self.batch_size)
        plan = StreamPlan.of(shards, read_memory(memory), batch_size, seed)
        holdout = draw_holdout(shards, 1.0 if shards.n < MIN_SAMPLES_TO_SPLIT else self.validation_fraction, plan)
        data = prepare(holdout.X, holdout.Y)
        data = replace(data, targets=replace(data.targets, label_names=shards.label_names))
        verbose = self.verbose if ProcessGroup.current().is_main else 0
        with show_phases(verbose) as on_phase:
            noise = resolve_noise(self.noise, data, seed, partial(on_phase, "noise rates"))
        self._reset(data.targets, noise)
        config = self._config(noise, data, shards.n, seed, stream=True)
        config = replace(config, batch_size=plan.settings.batch_size, dtype=torch.float32)
        self.n_features_in_ = shards.d
        self.__dict__.pop("feature_names_in_", None)
        if shards.feature_names is not None:
            self.feature_names_in_ = np.array(shards.feature_names, dtype=object)
        if validation is None:
            valid = debias(data, noise, keep_noisy=False)
        else:
            valid = self._given_validation(validation, data.targets, validation_is_clean)
        saved = None
        if checkpoint is not None:
            files = [(file.name, file.stat().st_size) for file in shards.files]
            shards_content = (files, shards.groups, plan, *shards.footers())
            saved = self._checkpoint(checkpoint, 1, *shards_content, holdout.X, holdout.Y, valid)
        scaled = shards if config.scaling is None else ScaledSource(shards, config.scaling)
        scaled_valid = valid if config.scaling is None else replace(valid, X=config.scaling.transform(valid.X))
        with show_progress(verbose, config.criterion, stream=True) as (on_epoch, on_rows):
            rows = streamed_rows(config, scaled, plan, holdout, noise.model, on_rows)
            result = fit_adam(config, StreamedSplit(rows, scaled_valid), on_epoch, saved)
        self._set_fitted(config, result, valid)
        return self

    def _warn_about_unused(self, solver: str, checkpoint: Any) -> None:
        """Warn about parameters of Adam that were set although another solver is used."""
        defaults = type(self)().get_params(deep=False)
        given = [name for name in ADAM_PARAMETERS if str(getattr(self, name)) != str(defaults[name])]
        given += ["checkpoint"] * (checkpoint is not None)
        if given:
            names = ", ".join(given)
            verb = "has" if len(given) == 1 else "have"
            warnings.warn(
                f"{names} {verb} no effect with solver={solver!r}, which has no epochs; use solver='adam'.",
                stacklevel=3,
            )

    def _estimation_data(self, data: TrainingData, seed: int) -> TrainingData:
        """Return the data from which rates are estimated: out-of-fold embeddings if inputs are not vectors."""
        if not hasattr(self, "input_shape_") or not isinstance(self.noise, str):
            return data
        settings = self._cross_fit_settings(seed, MAX_CROSS_FIT_EPOCHS)
        return with_out_of_fold_features(data, self._label_network(data), **settings)

    def _trains_on_posterior(self, data: TrainingData, noise: ResolvedNoise) -> bool:
        """Return whether a custom network is trained on posterior probabilities: by default, if inputs are no vectors.

        Without noise these are the labels, and with few rows the networks that predict them would be poor.
        """
        model, targets = noise.model, data.targets
        by_default = self.loss == "auto" and self.correction is None and noise.groups is None
        by_default = by_default and hasattr(self, "input_shape_")
        suited = targets.kind == "multilabel" and targets.inferred is None and not is_sparse(targets.labels)
        noisy = isinstance(model, ClassConditionalNoise) and bool((model.rho_pos + model.rho_neg > 0).any())
        return by_default and suited and noisy and data.X.shape[0] >= MIN_SAMPLES_FOR_ESTIMATION

    def _label_network(self, data: TrainingData) -> Callable[[], torch.nn.Module]:
        """Return the function that creates the custom network with one output per label, for cross-fitting."""
        return partial(self._factory(self.model), data.X.shape[1], data.targets.labels.shape[1])

    def _cross_fit_settings(self, seed: int, max_epochs: int) -> dict[str, Any]:
        """Return the parameters of cross-fitting."""
        settings = {"epochs": min(self.epochs, max_epochs), "device": self.device, "random_state": seed}
        return {**settings, "verbose": self.verbose}

    def _factory(self, model: Any) -> Any:
        """Return the function that creates a custom network for flat rows, which it reshapes to inputs if necessary."""
        shape = getattr(self, "input_shape_", None)
        return model if shape is None else partial(make_unflattened, model, shape)

    def _resolve(self, noise: ResolvedNoise, data: TrainingData, *, stream: bool) -> tuple[str, Any, Any]:
        """Return loss, surrogate and model, with "auto" replaced by what suits the noise and the data."""
        loss, surrogate, model = self.loss, self.surrogate, self.model
        two_rates = isinstance(noise.model, ClassConditionalNoise)
        if loss == "auto":
            if noise.groups is not None or self.correction is not None:
                loss = "hamming"
            else:
                loss = "plugin" if two_rates and model in ("auto", "linear", "average") else "ranking"
        if model == "average" and (loss != "plugin" or is_sparse(data.targets.labels) or stream):
            raise ValueError(
                "model='average' requires dense labels in memory, noise with two rates per label, no groups and no "
                "correction; use model='auto'"
            )
        if model == "auto":
            suited = loss == "plugin" and self.solver in ("auto", "newton") and not stream
            suited = suited and not is_small(data.X.shape[0], data.weights)  # too few rows to choose the shares
            model = "average" if suited and forest_suits(data.X, data.targets.labels) else "linear"
        if surrogate == "auto":
            surrogate = "logistic" if loss == "hamming" else "sigmoid"
        return loss, surrogate, self._factory(model)

    def _config(
        self,
        noise: ResolvedNoise,
        data: TrainingData,
        n: int,
        seed: int,
        *,
        stream: bool = False,
    ) -> TrainingConfig:
        """Return the training configuration for n rows with this noise."""
        loss_name, surrogate, model = self._resolve(noise, data, stream=stream)
        loss, loss_models_noise = self._loss_function(loss_name, surrogate, noise.model)
        criterion = "hamming_loss"
        if data.targets.kind == "multiclass":
            criterion = "one_error"
        elif loss_name == "ranking" and data.targets.labels.shape[1] > 1:
            criterion = "ranking_and_hamming_loss"
        device = torch.device(check_device(self.device, torch.cuda.is_available()))
        # float64 costs nothing for few rows, and results do not depend on the rounding of sums.
        exact = n <= MAX_FULL_BATCH_ROWS and isinstance(model, str) and device.type == "cpu"
        auto_batch_size = n if n <= MAX_FULL_BATCH_ROWS else 100 if n <= 5000 else 400
        return TrainingConfig(
            noise=noise.model,
            loss=loss.to(device),
            loss_name=loss_name,
            surrogate=surrogate if isinstance(surrogate, str) and loss_name in LOSSES else None,
            loss_models_noise=loss_models_noise,
            model=model,
            solver=self.solver,
            lr=tuple(float(x) for x in np.atleast_1d(np.asarray(self.lr, dtype=np.float64))),
            epochs=self.epochs,
            batch_size=auto_batch_size if isinstance(self.batch_size, str) else int(self.batch_size),
            weight_decay=None if isinstance(self.weight_decay, str) else float(self.weight_decay),
            scaling=Scaling.of(data.X, data.weights) if self.scale and isinstance(model, str) else None,
            criterion=criterion,
            device=device,
            dtype=torch.float64 if exact else torch.float32,
            seed=seed,
        )

    def _loss_function(self, name: str, surrogate: Any, noise: NoiseModel) -> tuple[MultiLabelLoss, bool]:
        """Return the loss, and whether it takes noisy labels and not debiased ones."""
        if name in ("forward", "plugin"):
            return (ForwardLoss if name == "forward" else PluginLoss)(noise), True  # type: ignore[arg-type]
        # A transition matrix flips labels jointly; the ranking loss has a different form for it.
        models_noise = not noise.flips_independent
        loss = (HammingLoss if name == "hamming" else RankingLoss)(
            surrogate, noise if models_noise else None, correction=self.correction
        )
        return loss, models_noise

    def _reset(self, targets: Targets, noise: ResolvedNoise) -> None:
        """Remove the result of an earlier fit and set the attributes that are known before training."""
        if self.threshold == "f1" and is_sparse(targets.labels) and not noise.model.flips_independent:
            raise ValueError("threshold='f1' requires two rates per label if labels are sparse; use threshold='fixed'")
        self.__dict__.pop("_scorer", None)
        self.classes_, self.label_names_, self._kind = targets.classes, targets.label_names, targets.kind
        self._sparse = targets.sparse
        self.noise_, self.rates_, self.group_noise_ = noise.model, noise.rates, noise.groups
        self.inferred_ = targets.inferred
        self.risk_parts_: NDArray[np.float64] | None = None
        self.extra_: dict[str, Any] = {}

    def _given_validation(self, validation: tuple[Any, Any], targets: Targets, clean: bool) -> Sample:
        """Return the validation set of the user."""
        X = read_features(self, validation[0], reset=False)
        return given_validation(X, validation[1], targets, None if clean else self.noise_)

    def _checkpoint(self, path: str | os.PathLike[str], every: int, *values: Any) -> Checkpoint:
        """Return the checkpoint of this fit; several ranks write after every epoch, because any of them may stop."""
        group = ProcessGroup.current()
        fingerprint = fit_fingerprint(self.get_params(deep=False), self.noise_, *values)
        return Checkpoint(path, fingerprint, every=1 if group.is_distributed else every, is_main=group.is_main)

    def _set_fitted(
        self, config: TrainingConfig, result: FitResult, valid: Sample, train: Sample | None = None
    ) -> None:
        """Set the fitted attributes: the calibrated predictor, the selected configuration and diagnostics.

        A warning is raised if parts of the risk of the training rows, where they are in memory, are negative.
        """
        valid = valid if result.valid is None else result.valid
        self._checkpoints = result.checkpoints
        link = LINK_OF_LOSS.get((config.loss_name, config.surrogate), "slope")
        thresholds = np.zeros(valid.p.shape[1])
        scorer = Scorer(result.network, self.noise_, config.loss_name == "ranking", link, 1.0, thresholds)
        # The order of the labels of a row is what the ranking loss learns; only one slope for all labels keeps it.
        per_label = self._kind == "multilabel" and not scorer.has_dummy
        self._scorer = calibrate(scorer, valid, self.threshold, result.valid_outputs, per_label=per_label)
        self.thresholds_, self._history = self._scorer.thresholds, result.history
        self.selected_ = result.selected
        if result.interrupted:
            warnings.warn("The fit was interrupted; the best model so far is kept.", stacklevel=3)
        if result.advice and ProcessGroup.current().is_main:
            warnings.warn(" ".join(result.advice), stacklevel=3)
        parts = None if train is None else training_risk_parts(config.loss, result.network, train)
        if parts is None:
            return
        self.risk_parts_ = parts.means
        names = self.label_names_ or self.noise_.label_names
        has_epochs = any("epoch" in row for row in self._history)
        message = overfitting_warning(parts, names, corrected=self.correction is not None, has_epochs=has_epochs)
        if message is not None:
            warnings.warn(message, stacklevel=3)

    # -- Prediction

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the scores of the labels.

        Parameters
        ----------
        X : array, DataFrame, CSR matrix or Tensor of shape (n, d)
            Features.

        Returns
        -------
        array of shape (n, q), or (n,) for two classes
            Scores. A label is predicted when its score is at least 0.
        """
        check_is_fitted(self)
        scores = self._scorer.decisions(read_features(self, X, reset=False))
        return scores[:, 0] if self._kind == "binary" else scores

    def top_labels(self, X: Any, k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the k labels with the highest scores.

        Scores are computed in tiles and neither stored nor sorted as a whole, so that there can be very many labels.

        Parameters
        ----------
        X : array, DataFrame, CSR matrix or Tensor of shape (n, d)
            Features.
        k : int
            Number of labels per row.

        Returns
        -------
        labels : array of int of shape (n, k)
            Column numbers, best first.
        scores : array of shape (n, k)
            Their scores.
        """
        check_is_fitted(self)
        k = check_count(k, "k")
        if self._kind != "multilabel" or k > self.thresholds_.size:
            raise ValueError(f"top_labels requires a label matrix with at least k={k} columns; got {self._kind} labels")
        scorer = self._scorer
        return top_labels(scorer.decisions, read_features(self, X, reset=False), scorer.tiles(), k)

    def predict(self, X: Any, *, sparse: bool | None = None, output: str = "array") -> Any:
        """Predict the true labels.

        Parameters
        ----------
        X : array, DataFrame, CSR matrix or Tensor of shape (n, d)
            Features.
        sparse : bool or None, default=None
            Whether the label matrix is returned as CSR, computed in tiles of labels. By default, it is if the labels
            passed to ``fit`` were sparse.
        output : {"array", "frame"}, default="array"
            "frame" returns a DataFrame with the names of the labels as columns and the index of X if it is a DataFrame;
            a Series for one class per row.

        Returns
        -------
        array, CSR matrix or DataFrame of shape (n, q), or array or Series of shape (n,)
            Labels 0 or 1, or the class of every row.
        """
        return with_names(self._predicted(X, sparse), self.classes_, X, output)

    def _predicted(self, X: Any, sparse: bool | None) -> Any:
        """Return the predicted labels as an array or CSR matrix."""
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

    def predict_proba(self, X: Any, *, output: str = "array") -> Any:
        """Return the probabilities of the true labels.

        :mod:`ccmn.models.calibration` describes how scores become probabilities. With ``threshold="f1"``, the
        probability is 1/2 at the fitted threshold.

        Parameters
        ----------
        X : array, DataFrame, CSR matrix or Tensor of shape (n, d)
            Features.
        output : {"array", "frame"}, default="array"
            "frame" returns a DataFrame with the names of the labels as columns and the index of X if it is a DataFrame.

        Returns
        -------
        array or DataFrame of shape (n, q), or (n, n_classes) for one class per row
            Probabilities strictly inside (0, 1).
        """
        return with_names(self._probabilities(X), self.classes_, X, output)

    def _probabilities(self, X: Any) -> NDArray[np.float64]:
        """Return the probabilities as an array."""
        scores = np.asarray(self.decision_function(X))
        p = self._scorer.probabilities(scores[:, None] if scores.ndim == 1 else scores)
        if self._kind == "multilabel":
            return p
        if self._kind == "multiclass":
            return np.asarray(p / p.sum(1, keepdims=True))
        return np.concatenate((1 - p, p), 1) if len(self.classes_) == 2 else np.ones_like(p)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of rows whose predicted labels are all correct, as in scikit-learn.

        Parameters
        ----------
        X : array, DataFrame, CSR matrix or Tensor of shape (n, d)
            Features.
        y : labels of shape (n, q), array of shape (n,), or votes
            Labels. Predictions are compared with the labels inferred from votes.
        sample_weight : array of shape (n,), default=None
            Sample weights.

        Returns
        -------
        float
            Subset accuracy.
        """
        if is_votes(y):
            y = infer_labels(y).labels
        elif isinstance(y, torch.Tensor):
            y = to_dense_array(y)
        return float(super().score(X, y, sample_weight))

    def to_torch(self) -> torch.nn.Module:
        """Return the fitted classifier as a torch module, for ``torch.export``, ONNX or a service without ccmn.

        Returns
        -------
        torch.nn.Module
            Module that takes a tensor of original, dense features (n, d), or of inputs with the shape of those in
            ``fit``, and returns what ``predict_proba`` returns.

        Examples
        --------
        >>> X = np.random.default_rng(0).normal(size=(60, 2))
        >>> clf = CCMNClassifier(None, random_state=0).fit(X, X > 0)
        >>> module = clf.to_torch()
        >>> bool(np.allclose(module(torch.tensor(X)).numpy(), clf.predict_proba(X), atol=1e-5))
        True
        """
        check_is_fitted(self)
        if self._kind == "binary" and len(self.classes_) == 1:
            raise ValueError("to_torch requires two classes; the training labels had one")
        return ProbabilityModule(self._scorer, self._kind).eval()

    @property
    def coef_(self) -> NDArray[np.float64]:
        """Weights (q, d) of a linear model."""
        return self._linear_weights("coef_")[0]

    @property
    def intercept_(self) -> NDArray[np.float64]:
        """Biases (q,) of a linear model."""
        return self._linear_weights("intercept_")[1]

    def _linear_weights(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return weights and biases of the scores; raise an AttributeError if the scores are not linear."""
        scorer: Scorer | None = getattr(self, "_scorer", None)
        if scorer is None:
            raise AttributeError(f"{name} is available after fit")
        if scorer.network.kind != "linear" or scorer.link == "plugin":
            raise AttributeError(f"{name} is only available for model='linear' and the losses 'hamming' and 'ranking'")
        weight, bias = (array.astype(np.float64) for array in scorer.network.last_layer)
        if scorer.has_dummy:
            weight, bias = weight[:, 1:] - weight[:, :1], bias[1:] - bias[0]
        return np.ascontiguousarray(weight.T), bias

    @property
    def history_(self) -> DataFrame:
        """Validation criterion of every learning rate and epoch, or of every l2 weight."""
        from pandas import DataFrame

        if not hasattr(self, "_history"):
            raise AttributeError("history_ is available after fit")
        return DataFrame(self._history)

    # -- Saving and loading

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the model to one file or to a folder, never as a pickle.

        The model is written atomically. The checkpoint of a completed fit (``fit(..., checkpoint=)``) is deleted after
        the model has been written.

        Parameters
        ----------
        path : path-like
            A path with a suffix, such as ``model.ccmn``, becomes one file. A path without suffix becomes a folder. An
            existing folder is replaced if the operating system can exchange two folders in one operation (Linux,
            macOS); otherwise an OSError is raised.
        """
        check_is_fitted(self)
        scorer = self._scorer
        check_weights(scorer.network, self.n_features_in_, self.thresholds_.size + scorer.has_dummy)
        description = {
            **describe(self),
            "kind": self._kind,
            "network": scorer.network.kind,
            "input_shape": [int(size) for size in getattr(self, "input_shape_", ())] or None,
            "link": scorer.link,
            "has_dummy": scorer.has_dummy,
            "slope": np.asarray(scorer.slope).tolist(),
            "thresholds": scorer.thresholds.tolist(),
            "history": self._history,
            "selected": self.selected_,
        }
        write_model(path, description, scorer.network.arrays)
        for checkpoint in self._checkpoints:
            checkpoint.remove()
        self._checkpoints = ()

    @classmethod
    def _from_description(cls, d: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> CCMNClassifier:
        """Return the fitted classifier that :meth:`save` has described; raise an error if a field is invalid."""
        clf = read_description(cls, d, (1, 2) if d["kind"] == "binary" else None)
        # Functions of the user are stored as null. All other parameters are checked.
        named = {"model": clf.model or "linear", "surrogate": clf.surrogate or "auto"}
        check_parameters({**clf.get_params(deep=False), **named})
        check_network_description(d, clf.noise_)
        clf.group_noise_ = clf.risk_parts_ = None
        clf._kind, clf._history, clf.selected_ = d["kind"], d["history"], d["selected"]
        if (shape := d["input_shape"]) is not None:
            sizes = shape if isinstance(shape, list) and all(type(size) is int and size > 0 for size in shape) else []
            if d["network"] != "user" or math.prod(sizes) != clf.n_features_in_:
                raise ValueError(f"input_shape must be the shape of {clf.n_features_in_} features; got {shape!r:.60}")
            clf.input_shape_ = tuple(sizes)
        network = FittedNetwork(d["network"], arrays)
        check_weights(network, clf.n_features_in_, clf.noise_.n_labels + d["has_dummy"])
        clf.thresholds_ = np.array(d["thresholds"], dtype=np.float64)
        slope = np.array(d["slope"], dtype=np.float64)
        clf._scorer = Scorer(network, clf.noise_, d["has_dummy"], d["link"], slope, clf.thresholds_)
        return clf

    def _set_module(self, model: Callable[..., Any]) -> None:
        """Create the custom network of a loaded model and load its weights; built-in networks are not changed."""
        arrays = self._scorer.network.arrays
        if self._scorer.network.kind != "user":
            return
        module = self._factory(model)(self.n_features_in_, self.thresholds_.size + self._scorer.has_dummy)
        try:
            module.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
        except RuntimeError as error:
            raise ValueError(f"The network created by model(...) does not match the saved weights: {error}") from None
        self.model, self._scorer = model, replace(self._scorer, network=FittedNetwork("user", arrays, module.eval()))

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether the model has been fitted or loaded."""
        return hasattr(self, "_scorer")

    def __sklearn_tags__(self) -> Any:
        """Return the tags of a multi-label classifier that accepts sparse features."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.multi_output = True
        tags.classifier_tags.multi_label = True
        return tags
