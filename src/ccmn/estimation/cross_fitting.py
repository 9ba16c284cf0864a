"""Out-of-fold probabilities of classifiers and networks, and embeddings of networks, by cross-fitting.

A model that was trained on a row has memorized part of the noise of its labels. Its probabilities and embeddings of
that row hide the noise, so that estimated rates are too small. Here every row is predicted by a model that was
trained on the other folds.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.special
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.validation import _num_samples, has_fit_parameter
from torch import Tensor
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, Dataset, Subset
from typing_extensions import Self

from ccmn._containers import Labels, is_sparse, to_dense_array, unwrap
from ccmn._messages import show_phases
from ccmn._random import RandomState, as_generator
from ccmn._validation import (
    FloatArray,
    check_count,
    check_device,
    check_label_matrix,
    check_label_width,
    check_noise,
    check_penalty,
    check_real,
)
from ccmn.estimation.posterior import fixed_rates
from ccmn.losses import ForwardLoss, HammingLoss, MultiLabelLoss
from ccmn.noise import ClassConditionalNoise
from ccmn.training.batches import split_item
from ccmn.training.default_model import log_odds, stratified_folds

MAX_ANCHORS = 2000
"""Rows by which the embeddings of the folds are aligned."""
WARM_UP = 0.1
"""Fraction of the steps of the one-cycle schedule in which the learning rate increases; it then decreases to 0."""


class CrossFit(NamedTuple):
    """Out-of-fold results of :func:`ccmn.cross_fit_proba`."""

    pred_proba: FloatArray
    """P(noisy label = 1 | x) of every row (n, q), by a model that was not trained on the row; with ``noise``,
    P(true label = 1 | x)."""
    embeddings: NDArray[np.float32] | None
    """Out-of-fold embeddings (n, e) in common coordinates; None without a last layer."""
    folds: NDArray[np.intp]
    """Fold of every row (n,)."""


def cross_fit_proba(
    model: Any,
    X: Any,
    Y_noisy: Labels | None = None,
    *,
    noise: ClassConditionalNoise | None = None,
    head: str | None = "auto",
    n_folds: int = 5,
    epochs: int = 10,
    patience: int = 2,
    batch_size: int = 128,
    lr: float = 1e-3,
    weight_decay: float = 1e-2,
    device: str = "auto",
    num_workers: int = 0,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    random_state: RandomState = 0,
    verbose: int = 0,
) -> CrossFit:
    """Return out-of-fold probabilities of a classifier, or probabilities and embeddings of a network, by cross-fitting.

    A model per fold is trained on the noisy labels of the other folds, a network with the logistic loss and without
    noise correction. The held-out fold selects the number of epochs. Pass the embeddings to
    ``estimate_noise(embeddings, Y_noisy)`` and the probabilities to :func:`ccmn.find_label_issues`. With ``noise``, the
    networks predict the true labels, and ``noise.posterior(Y_noisy, pred_proba)`` are the probabilities of the true
    labels given the features and the noisy labels, on which a network can be trained with any loss.

    Parameters
    ----------
    model : classifier or callable
        Classifier with ``predict_proba``, for which only ``n_folds`` and ``random_state`` have an effect, or a function
        without arguments that returns a ``torch.nn.Module`` with one output (a logit) per label. The function is called
        once; all folds start from copies of the same weights. The module may return an object with the attribute
        ``logits``.
    X : array, Tensor, mapping of these, or Dataset
        Inputs of n rows: one array of shape (n, ...), such as images or tokens; a mapping whose values are arrays of
        n rows, passed to the network as keyword arguments; or a map-style ``Dataset`` (any object with a length and
        items). An item is the input, a pair (input, labels), or a mapping; its labels are not passed to the network.
    Y_noisy : labels of shape (n, q), default=None
        Noisy labels in [0, 1], NaN where not observed. May be omitted if the items of a ``Dataset`` contain labels;
        reading them then takes one pass over the data.
    noise : ClassConditionalNoise or None, default=None
        Noise model of the labels, such as ``estimate_noise(...).noise``. The networks are then trained with the forward
        loss [2]_ and the one-cycle schedule [3]_, and predict the true labels. Their out-of-fold log-odds are scaled by
        a slope and an offset for every label that maximize the likelihood of the noisy labels (Platt scaling).
    head : str or None, default="auto"
        Name of the last layer of the module, such as "fc" or "classifier". Its input is returned as the embedding.
        The embeddings of the folds are aligned by orthogonal Procrustes analysis [1]_. "auto" is the last
        ``torch.nn.Linear`` with one output per label; without such a layer, and for None, there are no embeddings.
    n_folds : int, default=5
        Number of folds, at least 2.
    epochs : int, default=10
        Largest number of epochs.
    patience : int, default=2
        Training of a fold stops after this number of epochs in which the held-out loss has not improved.
    batch_size : int, default=128
        Rows of a batch.
    lr : float, default=1e-3
        Learning rate of AdamW; with ``noise``, the largest one.
    weight_decay : float, default=1e-2
        Weight decay of AdamW.
    device : str, default="auto"
        Device. "auto" is the CUDA device, or the CPU if there is none.
    num_workers : int, default=0
        Processes that load the items of a ``Dataset``, for every fold in training.
    collate_fn : callable, default=None
        Function that makes a batch from a list of items of a ``Dataset``, such as a padding collator.
    random_state : int, Generator or None, default=0
        Seed of folds, initial weights and batches.
    verbose : int, default=0
        If positive, the progress is printed on stderr.

    Returns
    -------
    CrossFit
        ``pred_proba`` (n, q), ``embeddings`` (n, e) or None, and ``folds`` (n,).

    Raises
    ------
    ValueError
        If an argument is invalid.

    References
    ----------
    .. [1] P. H. Schönemann, "A Generalized Solution of the Orthogonal Procrustes Problem", Psychometrika 31, 1966.
    .. [2] G. Patrini, A. Rozza, A. K. Menon, R. Nock and L. Qu, "Making Deep Neural Networks Robust to Label Noise: A
       Loss Correction Approach", CVPR, 2017.
    .. [3] L. N. Smith and N. Topin, "Super-Convergence: Very Fast Training of Neural Networks Using Large Learning
       Rates", arXiv:1708.07120, 2017.

    Examples
    --------
    >>> import torch
    >>> from ccmn import cross_fit_proba
    >>> from ccmn.data import load_digit_scenes
    >>> data = load_digit_scenes(200)
    >>> images = data.X.reshape(-1, 1, 16, 24)
    >>> def make_model():
    ...     return torch.nn.Sequential(torch.nn.Conv2d(1, 4, 8, 8), torch.nn.Flatten(), torch.nn.Linear(24, 10))
    >>> fitted = cross_fit_proba(make_model, images, data.Y, n_folds=2, epochs=2)
    >>> fitted.pred_proba.shape, fitted.embeddings.shape
    ((200, 10), (200, 24))
    """
    check_noise(noise, ClassConditionalNoise)
    if hasattr(model, "predict_proba") and not isinstance(model, type):
        if noise is not None or Y_noisy is None:
            raise ValueError("A classifier requires Y_noisy, and noise=None; see CorrectedClassifier(estimator)")
        Y = check_label_matrix(to_dense_array(Y_noisy), "Y_noisy")
        _check_folds(n_folds, _num_samples(X), len(Y))
        folds = stratified_folds(np.nan_to_num(Y), n_folds, as_generator(random_state))
        return CrossFit(out_of_fold_proba(model, X, Y, folds), None, folds)
    settings: dict[str, Any] = {
        "epochs": check_count(epochs, "epochs"),
        "patience": check_count(patience, "patience"),
        "batch_size": check_count(batch_size, "batch_size"),
        "lr": check_real(lr, "lr", 0, float("inf")),
        "weight_decay": check_penalty(weight_decay, "weight_decay"),
        "one_cycle": noise is not None,
    }
    place = torch.device(check_device(device, torch.cuda.is_available()))
    seed = int(as_generator(random_state).integers(2**31))
    inputs = _Inputs(X, num_workers=num_workers, collate_fn=collate_fn)
    Y = check_label_matrix(to_dense_array(inputs.labels() if Y_noisy is None else Y_noisy), "Y_noisy")
    n, q = Y.shape
    _check_folds(n_folds, len(inputs), n)
    if noise is not None:
        check_label_width(Y.shape, noise.n_labels)
    loss = (HammingLoss("logistic") if noise is None else ForwardLoss(noise)).to(place)
    labels = torch.from_numpy(Y.astype(np.float32)).to(place)
    folds = stratified_folds(Y, n_folds, np.random.default_rng(seed))
    anchors = torch.from_numpy(np.random.default_rng(seed).permutation(n)[:MAX_ANCHORS])
    log_odds = np.zeros((n, q))
    embeddings: Any = None
    # With several GPUs, fork_rng warns unless its devices are listed.
    with torch.random.fork_rng(range(torch.cuda.device_count())), show_phases(verbose) as on_progress:
        torch.manual_seed(seed)
        initial = model()
        if not isinstance(initial, torch.nn.Module):
            raise TypeError(f"model() must return a torch.nn.Module; got {type(initial).__name__}")
        last = _head_name(initial, head, q)
        for k in range(n_folds):
            torch.manual_seed(seed + k)
            network = copy.deepcopy(initial).to(place)
            rows, held_out = (torch.from_numpy(np.flatnonzero(part)) for part in (folds != k, folds == k))
            order = torch.Generator().manual_seed(seed + k)
            for epoch in _train(network, inputs, labels, loss, rows, held_out, order, **settings):
                on_progress("cross-fitting", k * epochs + epoch + 1, n_folds * epochs)
            on_progress("cross-fitting", (k + 1) * epochs, n_folds * epochs)
            logits, vectors = _predict(network, inputs, held_out, q, batch_size, last)
            log_odds[folds == k] = logits.cpu().numpy()
            if vectors is not None:
                values = _predict(network, inputs, anchors, q, batch_size, last)[1]
                if k == 0:
                    target, embeddings = values, np.empty((n, values.shape[1]), np.float32)
                center, goal = values.mean(0), target.mean(0)
                rotation = scipy.linalg.orthogonal_procrustes(values - center, target - goal)[0]
                embeddings[folds == k] = (vectors - center) @ rotation + goal
    if noise is not None:
        fitted = fixed_rates(log_odds, Y, noise.rho_pos, noise.rho_neg)
        log_odds = fitted.slope[:, 0, 0] * log_odds + fitted.offset[:, 0, 0]
    return CrossFit(scipy.special.expit(log_odds), embeddings, folds)


def _check_folds(n_folds: int, n_inputs: int, n: int) -> None:
    if n != n_inputs:
        raise ValueError(f"X and Y_noisy must have the same number of rows; got {n_inputs} and {n}")
    if not 2 <= check_count(n_folds, "n_folds") <= n:
        raise ValueError(f"n_folds must be at least 2 and at most the number of rows, {n}; got {n_folds}")


class _Inputs(Dataset[Any]):
    """Rows of an array (named ""), rows of a mapping of arrays, or items of a Dataset without their labels."""

    def __init__(self, X: Any, **loading: Any) -> None:
        self._items, self._loading = X, loading
        is_array = isinstance(X, Tensor) or hasattr(X, "__array__") or is_sparse(X)
        arrays = X if isinstance(X, Mapping) else {"": X} if is_array else {}
        self._tensors = {name: _as_tensor(array) for name, array in arrays.items()}
        lengths = sorted({len(tensor) for tensor in self._tensors.values()})
        if len(lengths) > 1:
            raise ValueError(f"the arrays of X must have the same number of rows; got {lengths}")
        if not (is_array or (hasattr(X, "__len__") and hasattr(X, "__getitem__"))):
            raise TypeError(
                "X must be an array, a mapping of arrays, or a map-style Dataset with a length and items; got "
                f"{type(X).__name__}"
            )

    def __len__(self) -> int:
        return len(next(iter(self._tensors.values()), self._items))

    def __getitem__(self, row: int) -> Any:
        return split_item(self._items[row])[0]

    def labels(self) -> Any:
        labels = [] if self._tensors else [split_item(self._items[row])[1] for row in range(len(self))]
        if not labels or labels[0] is None:
            raise ValueError(
                "Expected the argument Y_noisy, or a Dataset with items (input, labels) or mappings with the key "
                "'labels'; got neither"
            )
        return np.stack([to_dense_array(row).astype(np.float64) for row in labels])

    def batches(self, rows: Tensor, size: int) -> Iterator[Any]:
        if not self._tensors:
            yield from DataLoader(Subset(self, rows.tolist()), size, **self._loading)
            return
        for index in torch.split(rows, size):
            batch = {name: tensor[index] for name, tensor in self._tensors.items()}
            yield batch.get("", batch)


def _as_tensor(array: Any) -> Tensor:
    """Return an array as a tensor of at least one dimension; float64 becomes float32."""
    if is_sparse(array):
        raise ValueError("X must be dense; got a sparse matrix. Pass a Dataset whose items are dense rows.")
    tensor = array if isinstance(array, Tensor) else torch.as_tensor(np.ascontiguousarray(unwrap(array)[0]))
    if not tensor.ndim:
        raise ValueError("X must have at least one dimension, the rows; got a number")
    return tensor.float() if tensor.dtype == torch.float64 else tensor


def _head_name(network: torch.nn.Module, head: str | None, q: int) -> str | None:
    """Return the name of the last layer of a network with q outputs."""
    layers = {name: layer for name, layer in network.named_modules() if name}
    if head == "auto":
        matching = [n for n, layer in layers.items() if isinstance(layer, torch.nn.Linear) and layer.out_features == q]
        return matching[-1] if matching else None
    if head is not None and head not in layers:
        raise ValueError(f"head must be the name of a layer of the network, {', '.join(layers)}; got {head!r}")
    return head


def _train(
    network: torch.nn.Module,
    inputs: _Inputs,
    labels: Tensor,
    loss: MultiLabelLoss,
    rows: Tensor,
    held_out: Tensor,
    generator: torch.Generator,
    *,
    epochs: int,
    patience: int,
    batch_size: int,
    lr: float,
    weight_decay: float,
    one_cycle: bool,
) -> Iterator[int]:
    """Train the network of a fold, yield the number of every epoch, and load the weights of the best one."""
    q = labels.shape[1]
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    if not trained:
        raise ValueError("model() must return a module with trainable parameters; got none")
    optimizer = torch.optim.AdamW(trained, lr=lr, weight_decay=weight_decay)
    steps = epochs * -(-len(rows) // batch_size)
    schedule = OneCycleLR(optimizer, lr, steps, pct_start=WARM_UP) if one_cycle else None
    best, best_epoch, weights = float("inf"), 0, network.state_dict()
    for epoch in range(epochs):
        network.train()
        order = rows[torch.randperm(len(rows), generator=generator)]
        for index, batch in zip(torch.split(order, batch_size), inputs.batches(order, batch_size)):
            if len(index) == 1 and len(rows) > 1:
                continue  # batch normalization needs two rows
            optimizer.zero_grad(set_to_none=True)
            loss(_logits(network, batch, q), labels[index]).backward()
            optimizer.step()
            if schedule is not None:
                schedule.step()
        value = float(loss(_predict(network, inputs, held_out, q, batch_size)[0], labels[held_out]))
        if value < best or epoch == 0:
            best, best_epoch, weights = value, epoch, copy.deepcopy(network.state_dict())
        yield epoch
        if epoch - best_epoch >= patience:
            break
    network.load_state_dict(weights)


@torch.no_grad()
def _predict(
    network: torch.nn.Module, inputs: _Inputs, rows: Tensor, q: int, batch_size: int, head: str | None = None
) -> tuple[Tensor, Any]:
    """Return the logits of rows, and with ``head`` the inputs of this layer, one vector per row, else None."""
    logits: list[Tensor] = []
    captured: list[Tensor] = []
    vectors: list[Tensor] = []
    layer = network.get_submodule(head or "")
    hook = layer.register_forward_pre_hook(lambda _, arguments: captured.extend(arguments[:1]))
    network.eval()
    for batch in inputs.batches(rows, batch_size):
        logits.append(_logits(network, batch, q))
        if head is not None:  # a layer that is called more than once counts with its last input
            vectors.append(captured[-1].flatten(1).float().cpu())
        captured.clear()
    hook.remove()
    return torch.cat(logits), torch.cat(vectors).numpy() if vectors else None


def _logits(network: torch.nn.Module, batch: Any, q: int) -> Tensor:
    weight = next(parameter for parameter in network.parameters() if parameter.is_floating_point())

    def move(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return value.to(weight.device, weight.dtype if value.is_floating_point() else value.dtype)

    if isinstance(batch, Mapping):
        outputs = network(**{name: move(value) for name, value in batch.items()})
    else:
        outputs = network(move(batch))
    outputs = getattr(outputs, "logits", outputs)
    if not isinstance(outputs, Tensor) or outputs.ndim != 2 or outputs.shape[1] != q:
        got = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise ValueError(f"the network must return one logit per label, shape (batch, {q}); got {got}")
    return outputs.float()


def out_of_fold_proba(
    estimator: Any, X: Any, Y: FloatArray, folds: NDArray[np.intp], weights: FloatArray | None = None
) -> FloatArray:
    """Return out-of-fold probabilities (n, q) of the noisy labels from clones of a classifier."""
    result = np.empty(Y.shape)
    X = X.tocsr() if is_sparse(X) else X  # rows of other sparse formats cannot be taken in every version of scipy
    for k in np.unique(folds):
        held_out, rest = np.flatnonzero(folds == k), np.flatnonzero(folds != k)
        part = None if weights is None else weights[rest]
        posterior = NoisyPosterior(estimator).fit(_safe_indexing(X, rest), Y[rest], part)
        result[held_out] = posterior.proba(_safe_indexing(X, held_out))
    return result


class NoisyPosterior:
    """P(noisy label = 1 | x) of all labels, from clones of a scikit-learn classifier.

    A label with a single observed value gets the constant (k + 1/2) / (n + 1) for k ones among n observations.
    """

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator
        self.estimators: list[Any] = []
        self._columns: list[NDArray[np.intp]] = []

    def fit(self, X: Any, Y: FloatArray, weights: FloatArray | None = None) -> Self:
        """Fit one clone for all labels with different observed values, or one for each of them."""
        if weights is not None and not has_fit_parameter(self.estimator, "sample_weight"):
            raise ValueError(f"sample_weight is not supported by {type(self.estimator).__name__}; use None")
        ones, zeros = (Y == 1).sum(0), (Y == 0).sum(0)
        self._share = (ones + 0.5) / (ones + zeros + 1)
        varied = np.flatnonzero((ones > 0) & (zeros > 0))
        tags = get_tags(self.estimator)
        multi_output = tags.target_tags.multi_output or tags.classifier_tags.multi_label
        if multi_output and varied.size > 1 and not np.isnan(Y[:, varied]).any():
            self._columns = [varied]
            self.estimators = [self._fitted(X, Y[:, varied].astype(np.int64), weights)]
            return self
        self._columns = [np.array([j]) for j in varied]
        for j in varied:
            observed = np.flatnonzero(~np.isnan(Y[:, j]))
            target = Y[observed, j].astype(np.int64)
            rows = X if observed.size == len(Y) else _safe_indexing(X, observed)
            target = target if tags.target_tags.single_output else target[:, None]
            self.estimators.append(self._fitted(rows, target, None if weights is None else weights[observed]))
        return self

    def _fitted(self, X: Any, y: Any, weights: FloatArray | None) -> Any:
        return clone(self.estimator).fit(X, y, **({} if weights is None else {"sample_weight": weights}))

    def proba(self, X: Any) -> FloatArray:
        """Return the probabilities (n, q) in float64."""
        result = np.tile(self._share, (_num_samples(X), 1))
        for estimator, columns in zip(self.estimators, self._columns):
            result[:, columns] = positive_columns(estimator.predict_proba(X), columns.size)
        return result

    def log_odds(self, X: Any) -> FloatArray:
        """Return the log-odds (n, q) of the noisy labels."""
        return log_odds(self.proba(X))


def positive_columns(proba: Any, q: int) -> FloatArray:
    """Return P(label = 1), (n, q), from q arrays (n, 2), an array (n, q), or an array (n, 2) for one label."""
    if isinstance(proba, list):
        return np.column_stack([np.asarray(label)[:, 1] for label in proba])
    array = np.asarray(proba, dtype=np.float64)
    return array[:, -1:] if q == 1 else array
