"""CCMNClassifier: the method of the paper, networks trained by Adam with unbiased losses.

``fit`` prepares the labels, resolves the noise model, debiases the labels, splits off validation rows, and trains one
network per learning rate. The learning rate and the epoch with the smallest corrected validation criterion are kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pandas import DataFrame
from scipy.special import logit
from sklearn.utils import Tags
from torch import Tensor
from typing_extensions import Self

from ccmn._containers import to_dense_array
from ccmn._messages import show_phases, warn
from ccmn._validation import Constraints, FloatArray, Satisfies, check_device, check_parameters, number, one_of
from ccmn.estimation import NoiseRates, cross_fit_proba
from ccmn.estimation.noise_rates import NOISE_TYPES
from ccmn.estimation.posterior import MIN_ROWS
from ccmn.losses import CORRECTIONS, SURROGATES, HammingLoss, RankingLoss
from ccmn.models.label_classifier import LabelClassifier
from ccmn.models.persistence import describe, describe_network, read_description, read_network
from ccmn.models.predictor import LINKS, FittedNetwork, NetworkModule
from ccmn.models.targets import Targets
from ccmn.models.training_data import (
    Sample,
    Scaling,
    TrainingData,
    debias,
    given_validation,
    prepare,
    read_features,
    resolve_noise,
    split,
)
from ccmn.noise import GroupedNoise, NoiseModel, TransitionNoise
from ccmn.training import loop
from ccmn.training.batches import Features, LabelSource, ProcessGroup, Rows, label_source
from ccmn.training.checkpoint import Checkpoint, fit_fingerprint
from ccmn.training.networks import NETWORKS, Network, StackedAdam, UserNetwork, make_unflattened
from ccmn.training.selection import KeepBest, Run, ValidationCriterion, edge_advice, select_run
from ccmn.training.stream import Stream

LOSSES: dict[str, type[HammingLoss] | type[RankingLoss]] = {"hamming": HammingLoss, "ranking": RankingLoss}
"""Losses by the value of the parameter ``loss``."""
DEFAULT_SURROGATES = {"hamming": "square", "ranking": "sigmoid"}
"""Surrogates for ``surrogate="auto"``, as in the loss classes."""
MAX_CROSS_FIT_EPOCHS = 10
"""Epochs of the networks from whose embeddings rates are estimated; a short training suffices."""
MAX_FULL_BATCH_ROWS = 256
"""Up to this number of rows, ``batch_size="auto"`` is all rows, and linear models and networks train in float64."""

_POSITIVE = number(0, open_ends=True)
_NO_WORD = "a noise model, NoiseRates or None"
CONSTRAINTS: Constraints = {
    "noise": [
        one_of(*NOISE_TYPES),
        Satisfies(lambda v: v is None or isinstance(v, (NoiseModel, GroupedNoise, NoiseRates)), _NO_WORD),
    ],
    "loss": [one_of(*LOSSES)],
    "surrogate": [one_of("auto", *SURROGATES), Satisfies(callable, "a function")],
    "model": [one_of(*NETWORKS), Satisfies(callable, "a function (n_features, n_outputs) -> torch.nn.Module")],
    "lr": [
        _POSITIVE,
        Satisfies(
            lambda v: isinstance(v, (list, tuple, np.ndarray)) and len(v) > 0 and all(map(_POSITIVE.accepts, v)),
            "a list of positive numbers",
        ),
    ],
    "epochs": [number(1, integer=True)],
    "batch_size": [one_of("auto"), number(1, integer=True)],
    "weight_decay": [number(0)],
    "scale": [Satisfies(lambda v: isinstance(v, (bool, np.bool_)), "True or False")],
    "validation_fraction": [number(0, 1, open_ends=True)],
    "correction": [one_of(*CORRECTIONS), Satisfies(lambda v: v is None, "None")],
    "random_state": [
        number(0, integer=True),
        Satisfies(lambda v: v is None or isinstance(v, np.random.Generator), "a numpy Generator or None"),
    ],
    "verbose": [number(0, integer=True)],
}
"""Allowed values of the parameters."""


class CCMNClassifier(LabelClassifier):
    """Multi-label classifier of the paper: networks that minimize an unbiased loss of noisy labels.

    The losses replace every noisy label by its debiased value, an unbiased estimate of the true label [1]_.
    :meth:`paper` creates the classifier with the settings of the paper. For tables and texts with up to about 1,000
    labels, :class:`CorrectedClassifier` is recommended: with least squares, debiasing its predictions equals training
    on debiased labels.

    Parameters
    ----------
    noise : {"both", "partial", "missing"}, NoiseModel, GroupedNoise, NoiseRates or None, default="both"
        Which errors the labels can have: "partial" if labels were only added, "missing" if they were only removed. The
        rates are then estimated from the data. A noise model gives known rates: ``PartialNoise`` for candidate sets
        (uPML), ``TransitionNoise`` for one class per row, ``GroupedNoise`` with ``fit(..., groups=)``. None disables
        the correction.
    loss : {"ranking", "hamming"}, default="ranking"
        "hamming" minimizes Eq. (4); "ranking" minimizes Eq. (6) with the dummy label of Eq. (8).
    surrogate : {"auto", "sigmoid", "square", "hinge", "logistic"} or callable, default="auto"
        Surrogate of the 0-1 loss; "auto" is "square" for "hamming" and "sigmoid" for "ranking".
    model : {"linear", "mlp"} or callable (n_features, n_outputs) -> torch.nn.Module, default="linear"
        "mlp" has one hidden layer of 128 units. A callable is called as ``model(shape, n_outputs)`` if X has more than
        two dimensions, such as images.
    lr : float or sequence of floats, default=(0.05, 0.005, 0.0005)
        Learning rates of Adam. All are trained at the same time; the best one on the validation set is selected.
    epochs : int, default=200
        Number of epochs; the weights of the best one are kept.
    batch_size : int or "auto", default="auto"
        Rows per batch. "auto" uses all rows up to 256 rows, 100 up to 5,000 rows, and 400 for more.
    weight_decay : float, default=1e-4
        l2 weight as in ``torch.optim.Adam``.
    scale : bool, default=True
        Whether built-in models are trained on scaled features: dense features are standardized, sparse ones divided by
        the mean norm of a row. Predictions take the original features. Custom networks get features as they are.
    validation_fraction : float, default=0.2
        Fraction of the rows that are used as validation set, if none is passed to ``fit``. Their labels are noisy as
        well; the validation criterion is corrected for that.
    correction : {"abs", "relu"} or None, default=None
        Risk correction: keeps parts of the unbiased risk from becoming negative; for flexible networks.
    device : str, default="auto"
        "auto", "cpu", "cuda" or another PyTorch device.
    random_state : int, Generator or None, default=None
        Controls the validation split, the estimation of rates, initial weights and batches.
    verbose : int, default=0
        1 prints the progress on stderr.

    Attributes
    ----------
    noise_ : NoiseModel
        Noise model used for training. With groups, it has the mean rates of the rows; with ``noise=None``, rates of 0.
    rates_ : NoiseRates, GroupRates or None
        Estimated rates with intervals and flags, if rates were estimated or passed.
    group_noise_ : GroupedNoise or None
        With groups, the noise model of every group.
    inferred_ : InferredLabels or None
        Result of :func:`ccmn.infer_labels` if votes were passed to ``fit``.
    history_ : DataFrame
        Training loss and validation criterion of every learning rate and epoch.
    selected_ : dict
        Selected learning rate (``"lr"``) and epoch (``"epoch"``) with the name of the criterion (``"criterion"``), its
        value (``"value"``), the training loss (``"loss"``) and the number of epochs trained (``"epochs"``).
    coef_, intercept_ : arrays of shape (q, d) and (q,)
        Weights and biases of the scores of a linear model; those of the dummy label are subtracted.
    classes_ : array
        Names of the labels if they are known, else their numbers; the classes if there is one per row.
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
    >>> clf = CCMNClassifier(noise, epochs=30, lr=0.05, random_state=0)
    >>> clf = clf.fit(data.X, noise.corrupt(data.Y, random_state=0))
    >>> clf.predict(data.X).shape
    (1000, 10)
    """

    _checkpoints: tuple[Checkpoint, ...] = ()
    """Checkpoints of a completed fit, which are deleted after the model has been saved."""

    def __init__(
        self,
        noise: Any = "both",
        *,
        loss: str = "ranking",
        surrogate: str | Callable[..., Any] = "auto",
        model: str | Callable[..., Any] = "linear",
        lr: float | Sequence[float] = (5e-2, 5e-3, 5e-4),
        epochs: int = 200,
        batch_size: int | str = "auto",
        weight_decay: float = 1e-4,
        scale: bool = True,
        validation_fraction: float = 0.2,
        correction: str | None = None,
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
        self.correction = correction
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def paper(
        cls, noise: Any, loss: str = "ranking", surrogate: str = "sigmoid", model: str = "linear", **parameters: Any
    ) -> Self:
        """Return the classifier with the settings of the paper.

        They are Adam with 200 epochs, the learning rates 5e-2, 5e-3 and 5e-4, the l2 weight 1e-4, and features as
        they are. The batch size depends on the dataset: pass ``batch_size`` from the paper's appendix.

        Parameters
        ----------
        noise : NoiseModel or str
            Noise model of the training labels.
        loss : {"ranking", "hamming"}, default="ranking"
            Loss.
        surrogate : str, default="sigmoid"
            Surrogate.
        model : {"linear", "mlp"}, default="linear"
            Model.
        **parameters
            Other parameters of the classifier.

        Returns
        -------
        CCMNClassifier
            Classifier that has not been fitted.
        """
        return cls(noise, loss=loss, surrogate=surrogate, model=model, **{"scale": False, **parameters})

    # -- Fitting

    def fit(
        self,
        X: Any,
        y: Any = None,
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
        X : array, DataFrame, CSR matrix or Tensor of shape (n, d), or inputs of shape (n, ...), or ShardedData
            Features. For a custom network also an array with more dimensions, such as images, or a map-style
            ``Dataset`` of such inputs, whose items are read batch by batch; rates are then estimated from out-of-fold
            embeddings of the network (:func:`ccmn.cross_fit_proba`). A ``ShardedData`` is a folder of Parquet shards
            with features and labels that may be larger than memory.
        y : array, DataFrame or CSR matrix of shape (n, q), list of label sets, array of shape (n,), or votes
            Noisy labels: 0, 1 and NaN (not observed), or a list of label sets; one class per row for
            ``TransitionNoise``. Votes of several annotators are an array of shape (n, annotators, q), NaN where an
            annotator did not vote, or a ``VoteTable``; the probabilities of the true labels are then the labels.
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
            ``GroupedNoise``.
        checkpoint : path-like, default=None
            File to which the state of the training is written every few epochs. The same call with the same data,
            labels, parameters and ``random_state`` resumes from it. A checkpoint of a different fit raises a
            ValueError. The file of a completed fit is kept until :meth:`save` has written the model, and resumes
            without training.

        Returns
        -------
        CCMNClassifier
            The fitted classifier.
        """
        check_parameters(self.get_params(deep=False), CONSTRAINTS)
        self._check_combinations(sample_weight, validation, validation_is_clean)
        self.__dict__.pop("_network", None)
        seed = int(np.random.default_rng(self.random_state).integers(2**31))
        if hasattr(X, "row_bytes"):  # a ShardedData
            from ccmn.models.streaming import fit_shards

            for name, value in (("y", y), ("sample_weight", sample_weight), ("trusted", trusted), ("groups", groups)):
                if value is not None:
                    raise ValueError(f"{name} must be None if X is a ShardedData, which contains the labels")
            return fit_shards(self, X, seed, validation, validation_is_clean, checkpoint)
        X = read_features(self, X, reset=True)
        data = prepare(self, X, y, sample_weight=sample_weight, trusted=trusted, groups=groups)
        is_vector = not hasattr(self, "input_shape_") or not isinstance(self.noise, str)
        self._set_targets(
            data.targets, *resolve_noise(self.noise, data if is_vector else self._embedded(data, seed), seed)
        )
        train = debias(data, self.noise_, self.group_noise_)
        if validation is None:
            train, valid = split(train, self.validation_fraction, seed)
        else:
            valid = given_validation(self, validation, data.targets, validation_is_clean)
        scaling = Scaling.of(X, data.weights) if self.scale and isinstance(self.model, str) else None
        saved = None if checkpoint is None else self._checkpoint(checkpoint, 5, train, valid)
        n, device = X.shape[0], torch.device(check_device(self.device, torch.cuda.is_available()))
        # float64 costs nothing for few rows, and results do not depend on the rounding of sums.
        exact = n <= MAX_FULL_BATCH_ROWS and isinstance(self.model, str) and device.type == "cpu"
        dtype = torch.float64 if exact else torch.float32
        batch_size = n if n <= MAX_FULL_BATCH_ROWS else 100 if n <= 5000 else 400
        batch_size = batch_size if isinstance(self.batch_size, str) else int(self.batch_size)
        features = Features(train.X if scaling is None else scaling.transform(train.X), dtype=dtype, device=device)
        labels = label_source(train.p if train.noisy is None else train.noisy, device, dtype)
        batches = Rows([np.arange(features.n)], batch_size, [seed], device=device, ranks=ProcessGroup.current())
        weights = None
        if train.importance is not None:  # with a mean of 1, so that the learning rate does not depend on their scale
            weights = torch.from_numpy(train.importance / train.importance.mean()).to(device, dtype)
        self._train(features, labels, batches, weights, valid, scaling, seed, saved)
        return self

    def _check_combinations(self, sample_weight: Any, validation: Any, validation_is_clean: bool) -> None:
        if validation is None and validation_is_clean:
            raise ValueError("validation_is_clean=True has no effect without validation=(X, y)")
        if self.correction is not None and sample_weight is not None:
            raise ValueError(f"sample_weight cannot be combined with correction={self.correction!r}")
        ranks = ProcessGroup.current().world_size
        if ranks > 1 and self.correction is not None:
            raise ValueError(
                f"correction={self.correction!r} needs means over a whole batch, of which each of the {ranks} ranks "
                "has only a share; use correction=None or one process"
            )
        if ranks > 1 and self.random_state is None:
            raise ValueError("random_state must be a number if several ranks train together; got None")

    def _set_targets(self, targets: Targets, noise: NoiseModel, rates: Any, groups: GroupedNoise | None) -> None:
        """Set the attributes that are known before training."""
        self.classes_, self.label_names_, self.inferred_ = targets.classes, targets.label_names, targets.inferred
        self.noise_, self.rates_, self.group_noise_ = noise, rates, groups
        one_hot = "one_hot" if isinstance(noise, TransitionNoise) else "multilabel"
        self._kind = "multiclass" if targets.kind == "multiclass" else one_hot
        self._sparse = targets.sparse and self._kind == "multilabel"
        self.extra_: dict[str, Any] = {}

    def _embedded(self, data: TrainingData, seed: int) -> TrainingData:
        """Return the data with out-of-fold embeddings of the network as features, from which rates are estimated.

        Without a last linear layer, the log-odds of out-of-fold probabilities are the features.
        """
        (n, d), labels = data.X.shape, data.targets.labels
        if data.targets.inferred is not None or n < MIN_ROWS:
            return data
        make_model = partial(self._factory(self.model), d, labels.shape[1])
        settings: Any = {"epochs": min(self.epochs, MAX_CROSS_FIT_EPOCHS), "device": self.device, "random_state": seed}
        Y = to_dense_array(labels)
        fitted = cross_fit_proba(make_model, data.X, Y, verbose=self.verbose, **settings)
        return replace(data, X=logit(fitted.pred_proba) if fitted.embeddings is None else fitted.embeddings)

    def _factory(self, model: Any) -> Any:
        """Return the function that creates a custom network for flat rows, which it reshapes to inputs if necessary."""
        shape = getattr(self, "input_shape_", None)
        return model if shape is None else partial(make_unflattened, model, shape)

    def _checkpoint(self, path: str | os.PathLike[str], every: int, *content: Any) -> Checkpoint:
        """Return the checkpoint of this fit, whose fingerprint identifies parameters, noise and data."""
        group = ProcessGroup.current()
        parts = [part for value in content for part in (value.parts if isinstance(value, Sample) else [value])]
        name = fit_fingerprint(self.get_params(deep=False), self.noise_.to_dict(), *parts)
        # Several ranks write after every epoch, because any of them may stop.
        return Checkpoint(path, name, every=1 if group.is_distributed else every, is_main=group.is_main)

    def _train(
        self,
        features: Features,
        labels: LabelSource,
        batches: Rows | Stream,
        weights: Tensor | None,
        valid: Sample,
        scaling: Scaling | None,
        seed: int,
        saved: Checkpoint | None,
    ) -> None:
        """Train one network per learning rate, at the same time or one after the other, and keep the best one."""
        has_dummy, q, group = self.loss == "ranking", valid.p.shape[1], ProcessGroup.current()
        dtype, device, is_user = features.dtype, features.device, not isinstance(self.model, str)
        surrogate = DEFAULT_SURROGATES[self.loss] if self.surrogate == "auto" else self.surrogate
        # A transition matrix flips labels jointly: the loss takes noisy labels, and the ranking loss has another form.
        own_noise = None if self.noise_.flips_independent else self.noise_
        loss = LOSSES[self.loss](surrogate, own_noise, correction=self.correction).to(device)
        name = "ranking_and_hamming_loss" if has_dummy and q > 1 else "hamming_loss"
        name = name if self._kind == "multilabel" else "one_error"
        valid_features = Features(
            valid.X if scaling is None else scaling.transform(valid.X), dtype=dtype, device=device
        )
        valid_weights = None if valid.weights is None else torch.from_numpy(valid.weights).to(device)
        valid_labels = label_source(valid.p, device, torch.float32)
        criterion = ValidationCriterion(name, loss, valid_features, valid_labels, valid_weights, group)
        lrs, size = [*dict.fromkeys(float(x) for x in np.atleast_1d(self.lr))], (features.d, loss.n_outputs(q))
        runs: list[Run] = []
        history: list[dict[str, float]] = []
        checkpoints: list[Checkpoint] = []
        interrupted = False

        def on_epoch(result: loop.TrainingResult) -> None:
            values = f"loss {float(result.losses[-1].min()):.4f}, validation {float(result.criteria[-1].min()):.4f}"
            show("training", len(result.losses), self.epochs, values)

        for some in [[lr] for lr in lrs] if is_user else [lrs]:
            checkpoint = saved.of(f"lr{some[0]:g}") if saved is not None and is_user else saved
            checkpoints += [] if checkpoint is None else [checkpoint]
            verbose = self.verbose if group.is_main else 0
            with torch.random.fork_rng(enabled=is_user), show_phases(verbose) as show:
                network: Network
                if is_user:
                    torch.manual_seed(seed)
                    network = UserNetwork(self._factory(self.model)(*size).to(device))
                else:
                    network = NETWORKS[str(self.model)](*size, [[seed] * len(lrs)], dtype=dtype, device=device)
                if isinstance(batches, Stream):
                    batches.on_progress = show
                lr, selection = torch.tensor([some], dtype=dtype, device=device), KeepBest(criterion)
                try:
                    result = loop.train(
                        network,
                        [loop.Part(slice(None), loss)],
                        features,
                        labels,
                        batches,
                        StackedAdam(network.parameters, lr, torch.full_like(lr, self.weight_decay)),
                        selection,
                        epochs=self.epochs,
                        weights=weights,
                        on_progress=on_epoch if verbose and isinstance(batches, Rows) else None,
                        checkpoint=checkpoint,
                        group=group,
                    )
                except KeyboardInterrupt:
                    if not runs:
                        raise
                    interrupted = True
                    break
            losses, values = (torch.stack(found)[:, 0].tolist() for found in (result.losses, result.criteria))
            for k, rate in enumerate(some):
                epochs = enumerate(zip(losses, values), 1)
                history += [{"lr": rate, "epoch": e, "loss": left[k], name: right[k]} for e, (left, right) in epochs]
                runs.append(Run(float(selection.value[0, 0, k]), rate, int(selection.epoch[0, 0, k]), network, k))
            if interrupted := result.interrupted:
                break
        best, self.selected_ = select_run(runs, history, name)
        self._history, self._checkpoints = history, () if interrupted else tuple(checkpoints)
        link = LINKS.get((self.loss, str(surrogate)), "slope")
        self._network = FittedNetwork.of(best.network, best.position, q, has_dummy, link)
        if scaling is not None:
            self._network.arrays = scaling.restore(self._network.arrays)
        self._network.fit_slope(valid)
        if interrupted:
            warn("The fit was interrupted; the best model so far is kept.")
        elif group.is_main and (advice := edge_advice(self.selected_, history)):
            warn(" ".join(advice))

    # -- Prediction

    def _scores(self, X: Any, labels: slice | None = None) -> FloatArray:
        return self._network.scores(read_features(self, X, reset=False), labels)

    def _tiles(self) -> list[slice]:
        return self._network.tiles()

    def _predicted(self, scores: FloatArray) -> NDArray[Any]:
        if self._kind == "multilabel":
            return super()._predicted(scores)
        best = scores.argmax(1)
        return (
            np.asarray(self.classes_[best]) if self._kind == "multiclass" else np.eye(scores.shape[1], dtype=int)[best]
        )

    def _probabilities(self, X: Any) -> FloatArray:
        p = self._network.probabilities(self._scores(X))
        return p if self._kind == "multilabel" else p / p.sum(1, keepdims=True)

    def _module(self) -> torch.nn.Module:
        return NetworkModule(self._network, normalize=self._kind != "multilabel")

    @property
    def coef_(self) -> FloatArray:
        """Weights (q, d) of a linear model."""
        return self._linear_weights("coef_")[0]

    @property
    def intercept_(self) -> FloatArray:
        """Biases (q,) of a linear model."""
        return self._linear_weights("intercept_")[1]

    def _linear_weights(self, name: str) -> tuple[FloatArray, FloatArray]:
        """Return weights and biases of the scores; raise an AttributeError if the scores are not linear."""
        if not hasattr(self, "_network"):
            raise AttributeError(f"{name} is available after fit")
        if self._network.kind != "linear":
            raise AttributeError(f"{name} is only available for model='linear'")
        weight, bias = (array.astype(np.float64) for array in self._network.last_layer)
        if self._network.has_dummy:
            weight, bias = weight[:, 1:] - weight[:, :1], bias[1:] - bias[0]
        return np.ascontiguousarray(weight.T), bias

    @property
    def history_(self) -> DataFrame:
        """Training loss and validation criterion of every learning rate and epoch."""
        if not hasattr(self, "_history"):
            raise AttributeError("history_ is available after fit")
        return DataFrame(self._history)

    # -- Saving and loading

    def _description(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {**describe(self), **describe_network(self)}, self._network.arrays

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the model to a file, never as a pickle; then delete the checkpoint of a completed fit.

        Parameters
        ----------
        path : path-like
            File, such as ``model.ccmn``. An existing file is replaced atomically.
        """
        super().save(path)
        for checkpoint in self._checkpoints:
            checkpoint.remove()
        self._checkpoints = ()

    @classmethod
    def _from_description(cls, d: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> CCMNClassifier:
        """Return the fitted classifier that :meth:`save` has described; raise an error if a field is invalid."""
        clf = read_description(cls, d)
        # Functions of the user are stored as null. All other parameters are checked.
        named = {"model": clf.model or "linear", "surrogate": clf.surrogate or "auto"}
        check_parameters({**clf.get_params(deep=False), **named}, CONSTRAINTS)
        read_network(clf, d, arrays)
        return clf

    def _set_module(self, model: Callable[..., Any]) -> None:
        """Create the custom network of a loaded model and load its weights; built-in networks are not changed."""
        network = self._network
        if network.kind != "user":
            return
        module = self._factory(model)(self.n_features_in_, network.n_labels + network.has_dummy)
        try:
            module.load_state_dict({name: torch.from_numpy(array) for name, array in network.arrays.items()})
        except RuntimeError as error:
            raise ValueError(f"The network created by model(...) does not match the saved weights: {error}") from None
        self.model, network.module = model, module.eval()

    def __sklearn_tags__(self) -> Tags:
        """Return the tags of a multi-label classifier that accepts sparse features, or of one for classes."""
        tags, has_classes = super().__sklearn_tags__(), isinstance(self.noise, TransitionNoise)
        tags.input_tags.sparse = True
        tags.target_tags.multi_output, tags.target_tags.single_output = True, has_classes
        tags.classifier_tags.multi_label, tags.classifier_tags.multi_class = True, has_classes
        return tags
