"""Out-of-fold probabilities and embeddings of networks, by cross-fitting.

A network that was trained on a row has memorized part of the noise of its labels. Its probabilities and embeddings of
that row hide the noise, so that estimated rates are too small. Here every row is predicted by a network that was
trained on the other folds.

With known or estimated rates, the networks are trained with the forward loss. They then predict the true labels, and
their probabilities are the prior of the posterior probabilities :meth:`ccmn.ClassConditionalNoise.posterior`.
"""

from __future__ import annotations

import copy
import os
import queue
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.special
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from torch import Tensor
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, Dataset, Subset, default_collate

from ccmn._containers import Labels, is_sparse, to_dense_array, unwrap
from ccmn._files import atomic_write, check_file, fingerprint
from ccmn._progress import show_phases
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
from ccmn.estimation.link import fit_scaling
from ccmn.losses import ForwardLoss, HammingLoss, MultiLabelLoss
from ccmn.noise import ClassConditionalNoise
from ccmn.training.batches import split_item
from ccmn.training.default_model import stratified_folds

MAX_ANCHORS = 2000
"""Rows by which the embeddings of the folds are aligned."""
MAX_BYTES_ON_DEVICE = 2**30
"""Arrays up to this size are copied to the device once instead of batch by batch."""
WARM_UP = 0.1
"""Fraction of the steps of the one-cycle schedule in which the learning rate increases; it then decreases to 0."""
_LOGIT_EPS = 1e-6
"""Probabilities are clipped to [eps, 1 - eps] before they are scaled."""

Arrays = dict[str, NDArray[Any]]


class CrossFit(NamedTuple):
    """Out-of-fold results of :func:`ccmn.cross_fit_proba`."""

    pred_proba: FloatArray
    """P(noisy label = 1 | x) of every row (n, q), by a network that was not trained on the row; with ``noise``,
    P(true label = 1 | x)."""
    embeddings: NDArray[np.float32] | None
    """Out-of-fold embeddings (n, e) in common coordinates; None without a last layer."""
    folds: NDArray[np.intp]
    """Fold of every row (n,)."""


def cross_fit_proba(
    make_model: Callable[[], torch.nn.Module],
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
    device: str | Sequence[str] = "auto",
    mixed_precision: bool = False,
    num_workers: int = 0,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    random_state: RandomState = 0,
    verbose: int = 0,
) -> CrossFit:
    """Return out-of-fold probabilities and embeddings of a network, by cross-fitting.

    One network per fold is trained on the rows of the other folds, with the logistic loss of the noisy labels and
    without noise correction. The held-out fold selects the number of epochs. Pass the embeddings to
    ``estimate_noise(embeddings, Y_noisy)`` and the probabilities to :func:`ccmn.find_label_issues`. Do not pass
    probabilities or embeddings of a network that was trained on the same rows: they hide the noise that the network
    has memorized.

    With ``noise``, the networks predict the true labels. ``noise.posterior(Y_noisy, pred_proba)`` are then the
    probabilities of the true labels given the features and the noisy labels, on which a network can be trained with any
    loss.

    Parameters
    ----------
    make_model : callable
        Function without arguments that returns a ``torch.nn.Module`` with one output (a logit) per label. It is called
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
    device : str or sequence of str, default="auto"
        Device, or several devices that train different folds at the same time. "auto" uses all CUDA devices, or the
        CPU if there is none.
    mixed_precision : bool, default=False
        Whether the network computes in bfloat16 where this is safe (autocast).
    num_workers : int, default=0
        Processes that load the items of a ``Dataset``, for every fold in training.
    collate_fn : callable, default=None
        Function that makes a batch from a list of items of a ``Dataset``, such as a padding collator.
    checkpoint : path-like, default=None
        Folder to which every completed fold is written. A call with the same labels, weights and parameters resumes
        from it. The content of arrays is compared as well; of a ``Dataset`` only the length is compared.
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
        If an argument is invalid, or if ``checkpoint`` belongs to another call.

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
    settings: dict[str, Any] = {
        "epochs": check_count(epochs, "epochs"),
        "patience": check_count(patience, "patience"),
        "batch_size": check_count(batch_size, "batch_size"),
        "lr": check_real(lr, "lr", 0, float("inf")),
        "weight_decay": check_penalty(weight_decay, "weight_decay"),
        "mixed_precision": bool(mixed_precision),
        "one_cycle": noise is not None,
        "seed": int(as_generator(random_state).integers(2**31)),
    }
    inputs = _read_inputs(X, num_workers, collate_fn)
    Y = check_label_matrix(to_dense_array(inputs.labels() if Y_noisy is None else Y_noisy), "Y_noisy")
    if len(Y) != len(inputs):
        raise ValueError(f"X and Y_noisy must have the same number of rows; got {len(inputs)} and {len(Y)}")
    if not 2 <= check_count(n_folds, "n_folds") <= len(Y):
        raise ValueError(f"n_folds must be at least 2 and at most the number of rows, {len(Y)}; got {n_folds}")
    if noise is not None:
        check_label_width(Y.shape, noise.n_labels)
    folds = stratified_folds(Y, n_folds, np.random.default_rng(settings["seed"]))
    devices = _devices(device)
    # With several GPUs, fork_rng warns unless its devices are listed.
    with torch.random.fork_rng(range(torch.cuda.device_count())):
        torch.manual_seed(settings["seed"])
        network = _check_model(make_model())
        fitting = _CrossFitting(
            network=network,
            inputs=inputs,
            labels=torch.from_numpy(Y.astype(np.float32)),
            folds=folds,
            loss=HammingLoss("logistic") if noise is None else ForwardLoss(noise),
            head=_head_name(network, head, Y.shape[1]),
            **settings,
        )
        files = None
        if checkpoint is not None:
            weights = [tensor.detach().float().cpu().numpy() for tensor in network.state_dict().values()]
            rates = [] if noise is None else [noise.rho_pos, noise.rho_neg]
            identity = fingerprint(Y, folds, *inputs.identity(), *weights, fitting.head, settings, *rates)
            files = _FoldFiles(Path(checkpoint), identity)
        parts = _run_folds(fitting, files, devices, verbose)
    fitted = _collect(parts, folds)
    return fitted if noise is None else fitted._replace(pred_proba=_scaled(fitted.pred_proba, Y, noise))


class _Arrays:
    """Rows of one array (named "") or of a mapping of arrays."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self._tensors = {name: _as_tensor(array) for name, array in arrays.items()}
        lengths = sorted({len(tensor) for tensor in self._tensors.values()})
        if len(lengths) != 1:
            raise ValueError(f"the arrays of X must have the same number of rows; got {lengths}")
        self._length = lengths[0]

    def __len__(self) -> int:
        return self._length

    def identity(self) -> list[Any]:
        """Return the values that identify the inputs in a checkpoint."""
        tensors = self._tensors.values()
        return [(tensor.float() if tensor.is_floating_point() else tensor).cpu().numpy() for tensor in tensors]

    def labels(self) -> Any:
        """Return the labels of the items, which arrays do not contain."""
        raise ValueError("Expected noisy labels: cross_fit_proba(make_model, X, Y_noisy); got Y_noisy=None")

    def on(self, device: torch.device) -> _Arrays:
        """Return the inputs on a device if they are small enough, and unchanged otherwise."""
        if sum(tensor.nbytes for tensor in self._tensors.values()) > MAX_BYTES_ON_DEVICE:
            return self
        return _Arrays({name: tensor.to(device) for name, tensor in self._tensors.items()})

    def batches(self, rows: Tensor, size: int) -> Iterator[Any]:
        """Yield the inputs of batches of rows."""
        for index in torch.split(rows, size):
            batch = {name: tensor[index.to(tensor.device)] for name, tensor in self._tensors.items()}
            yield batch.get("", batch)


class _Items(Dataset[Any]):
    """Items of a map-style Dataset without their labels, loaded by a DataLoader."""

    def __init__(self, dataset: Any, num_workers: int, collate_fn: Callable[[list[Any]], Any] | None) -> None:
        self._dataset = dataset
        self._loading: dict[str, Any] = {"num_workers": num_workers, "collate_fn": collate_fn or default_collate}

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, row: int) -> Any:
        return split_item(self._dataset[row])[0]

    def identity(self) -> list[Any]:
        """Return the values that identify the inputs in a checkpoint."""
        return [type(self._dataset).__name__, len(self)]

    def labels(self) -> Any:
        """Return the labels of the items."""
        labels = [split_item(self._dataset[row])[1] for row in range(len(self))]
        if not labels or labels[0] is None:
            raise ValueError(
                "Expected items (input, labels) or mappings with the key 'labels' in the Dataset, or the argument "
                "Y_noisy; got items without labels"
            )
        return np.stack([to_dense_array(row).astype(np.float64) for row in labels])

    def on(self, device: torch.device) -> _Items:
        """Return the inputs, which are loaded batch by batch."""
        return self

    def batches(self, rows: Tensor, size: int) -> Iterator[Any]:
        """Yield the inputs of batches of rows."""
        yield from DataLoader(Subset(self, rows.tolist()), size, **self._loading)


def _as_tensor(array: Any) -> Tensor:
    """Return an array as a tensor of at least one dimension; float64 becomes float32."""
    if is_sparse(array):
        raise ValueError("X must be dense; got a sparse matrix. Pass a Dataset whose items are dense rows.")
    tensor = array if isinstance(array, Tensor) else torch.as_tensor(np.ascontiguousarray(unwrap(array)[0]))
    if not tensor.ndim:
        raise ValueError("X must have at least one dimension, the rows; got a number")
    return tensor.float() if tensor.dtype == torch.float64 else tensor


def _read_inputs(X: Any, num_workers: int, collate_fn: Callable[[list[Any]], Any] | None) -> _Arrays | _Items:
    """Return the rows of X."""
    if isinstance(X, Mapping):
        return _Arrays(X)
    if isinstance(X, Tensor) or hasattr(X, "__array__") or is_sparse(X):
        return _Arrays({"": X})
    if not (hasattr(X, "__len__") and hasattr(X, "__getitem__")):
        raise TypeError(
            "X must be an array, a mapping of arrays, or a map-style Dataset with a length and items; got "
            f"{type(X).__name__}"
        )
    return _Items(X, num_workers, collate_fn)


def _devices(device: str | Sequence[str]) -> list[torch.device]:
    """Return the devices that train folds at the same time."""
    cuda = torch.cuda.is_available()
    if device == "auto" and cuda:
        return [torch.device("cuda", number) for number in range(torch.cuda.device_count())]
    names = [device] if isinstance(device, str) else list(device)
    if not names:
        raise ValueError("device must name at least one device; got an empty sequence")
    return [torch.device(check_device(name, cuda)) for name in names]


def _check_model(network: Any) -> torch.nn.Module:
    """Return the module of the user if it can be trained."""
    if not isinstance(network, torch.nn.Module):
        raise TypeError(f"make_model() must return a torch.nn.Module; got {type(network).__name__}")
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise ValueError("make_model() must return a module with trainable parameters; got none")
    return network


def _head_name(network: torch.nn.Module, head: str | None, q: int) -> str | None:
    """Return the name of the last layer of a network with q outputs."""
    layers = {name: layer for name, layer in network.named_modules() if name}
    if head == "auto":
        matching = [n for n, layer in layers.items() if isinstance(layer, torch.nn.Linear) and layer.out_features == q]
        return matching[-1] if matching else None
    if head is not None and head not in layers:
        raise ValueError(f"head must be the name of a layer of the network, {', '.join(layers)}; got {head!r}")
    return head


class _FoldFiles(NamedTuple):
    """Files with the results of completed folds."""

    folder: Path
    identity: str

    def read(self, number: int, shapes: Mapping[str, tuple[int, int]]) -> Arrays | None:
        """Return the result of a fold, or None if it is not completed; -1 in ``shapes`` is any size."""
        path = self.folder / f"fold-{number}.safetensors"
        if not path.exists():
            return None
        try:
            with safe_open(check_file(path), "np") as file:
                metadata = file.metadata() or {}
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise ValueError(f"checkpoint {path} is damaged ({error}); delete it to train this fold again") from None
        if metadata.get("fingerprint") != self.identity:
            raise ValueError(
                f"checkpoint {path} belongs to another call (data, labels, network or parameters differ); delete it, "
                "or use another folder"
            )
        for name, (rows, columns) in shapes.items():
            array = arrays.get(name, np.empty(0))
            fits = array.ndim == 2 and len(array) == rows and columns in (-1, array.shape[1])
            valid = fits and array.dtype.kind == "f" and np.isfinite(array).all()
            if not valid or (name == "pred_proba" and ((array < 0) | (array > 1)).any()):
                raise ValueError(f"checkpoint {path} is damaged ({name}); delete it to train this fold again")
        return arrays

    def write(self, number: int, arrays: Arrays) -> None:
        """Write the result of a fold atomically."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(self.folder / f"fold-{number}.safetensors") as stream:
            stream.write(save(arrays, metadata={"fingerprint": self.identity}))


@dataclass(frozen=True, kw_only=True)
class _CrossFitting:
    """Network, data and parameters of all folds."""

    network: torch.nn.Module
    inputs: _Arrays | _Items
    labels: Tensor
    folds: NDArray[np.intp]
    """Fold of every row."""
    loss: MultiLabelLoss
    """Loss on a CPU; every fold uses a copy."""
    head: str | None
    epochs: int
    patience: int
    batch_size: int
    lr: float
    weight_decay: float
    mixed_precision: bool
    one_cycle: bool
    seed: int

    def shapes(self, number: int) -> dict[str, tuple[int, int]]:
        """Return the shapes of the results of a fold; -1 for the size of embeddings, which is not known yet."""
        n = int((self.folds == number).sum())
        shapes = {"pred_proba": (n, self.labels.shape[1])}
        return {**shapes, "embeddings": (n, -1), "anchors": (len(self.anchors()), -1)} if self.head else shapes

    def anchors(self) -> Tensor:
        """Return the rows by which embeddings are aligned."""
        order = np.random.default_rng(self.seed).permutation(len(self.labels))
        return torch.from_numpy(order[:MAX_ANCHORS])

    def fit_fold(self, number: int, device: torch.device, advance: Callable[[int], None]) -> Arrays:
        """Train the network of a fold; return the results of its held-out rows at the best epoch."""
        rows, held_out = (
            torch.from_numpy(np.flatnonzero(part)) for part in (self.folds != number, self.folds == number)
        )
        _seed_layers(device, self.seed + number)
        network, inputs = copy.deepcopy(self.network).to(device), self.inputs.on(device)
        labels, loss = self.labels.to(device), copy.deepcopy(self.loss).to(device)
        trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=self.lr, weight_decay=self.weight_decay)
        schedule = None
        if self.one_cycle:
            steps = self.epochs * -(-len(rows) // self.batch_size)
            schedule = OneCycleLR(optimizer, self.lr, steps, pct_start=WARM_UP)
        generator = torch.Generator().manual_seed(self.seed + number)
        best_loss, best_epoch, best, weights = float("inf"), 0, None, None
        for epoch in range(self.epochs):
            network.train()
            order = rows[torch.randperm(len(rows), generator=generator)]
            for index, batch in zip(torch.split(order, self.batch_size), inputs.batches(order, self.batch_size)):
                if len(index) == 1 and len(rows) > 1:
                    continue  # batch normalization needs two rows
                optimizer.zero_grad(set_to_none=True)
                loss(self._logits(network, batch), labels[index.to(device)]).backward()
                optimizer.step()
                if schedule is not None:
                    schedule.step()
            logits = torch.cat(list(self._predict(network, inputs, held_out)))
            held_out_loss = float(self.loss(logits, self.labels[held_out]))
            advance(1)
            if best is None or held_out_loss < best_loss:
                best_loss, best_epoch, best = held_out_loss, epoch, logits
                weights = copy.deepcopy(network.state_dict()) if self.head else None
            if epoch - best_epoch >= self.patience:
                advance(self.epochs - 1 - epoch)
                break
        assert best is not None
        result = {"pred_proba": torch.sigmoid(best.double()).numpy()}
        if weights is not None:
            network.load_state_dict(weights)
            for name, part in (("embeddings", held_out), ("anchors", self.anchors())):
                result[name] = self._embeddings(network, inputs, part)
        return result

    @torch.no_grad()
    def _predict(self, network: torch.nn.Module, inputs: _Arrays | _Items, rows: Tensor) -> Iterator[Tensor]:
        """Yield the logits of batches of rows, on the CPU."""
        network.eval()
        for batch in inputs.batches(rows, self.batch_size):
            yield self._logits(network, batch).cpu()

    def _embeddings(self, network: torch.nn.Module, inputs: _Arrays | _Items, rows: Tensor) -> NDArray[np.float32]:
        """Return the inputs of the last layer, one vector per row."""
        captured: list[Tensor] = []
        layer = network.get_submodule(str(self.head))
        layer.register_forward_pre_hook(lambda _, arguments: captured.append(arguments[0].flatten(1).float().cpu()))
        # A layer that is called more than once counts with its last input.
        last = [captured[-1] for _ in self._predict(network, inputs, rows)]
        return torch.cat(last).numpy()

    def _logits(self, network: torch.nn.Module, batch: Any) -> Tensor:
        """Return the logits of a batch."""
        weight = next(parameter for parameter in network.parameters() if parameter.is_floating_point())

        def move(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            return value.to(weight.device, weight.dtype if value.is_floating_point() else value.dtype)

        with torch.autocast(weight.device.type, dtype=torch.bfloat16, enabled=self.mixed_precision):
            if isinstance(batch, Mapping):
                outputs = network(**{name: move(value) for name, value in batch.items()})
            else:
                outputs = network(move(batch))
        outputs = getattr(outputs, "logits", outputs)
        q = self.labels.shape[1]
        if not isinstance(outputs, Tensor) or outputs.ndim != 2 or outputs.shape[1] != q:
            got = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
            raise ValueError(f"the network must return one logit per label, shape (batch, {q}); got {got}")
        return outputs.float()


def _seed_layers(device: torch.device, seed: int) -> None:
    """Seed the random numbers of layers such as dropout, on one device only."""
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


def _run_folds(
    fitting: _CrossFitting, files: _FoldFiles | None, devices: Sequence[torch.device], verbose: int
) -> list[Arrays]:
    """Return the results of all folds; folds that are not in the files are trained, one per device at a time."""
    numbers = range(int(fitting.folds.max()) + 1)
    parts = {k: part for k in numbers if files and (part := files.read(k, fitting.shapes(k))) is not None}
    missing = [k for k in numbers if k not in parts]
    free: queue.SimpleQueue[torch.device] = queue.SimpleQueue()
    for device in devices:
        free.put(device)
    epochs: list[int] = []

    with show_phases(verbose) as on_progress:

        def advance(count: int) -> None:
            epochs.append(count)
            on_progress("cross-fitting", sum(epochs), fitting.epochs * len(missing))

        def run(number: int) -> None:
            device = free.get()
            try:
                parts[number] = fitting.fit_fold(number, device, advance)
            finally:
                free.put(device)
            if files is not None:
                files.write(number, parts[number])

        if len(devices) == 1:
            for number in missing:
                run(number)
        else:
            with ThreadPoolExecutor(len(devices)) as pool:
                list(pool.map(run, missing))
    return [parts[number] for number in numbers]


def _collect(parts: Sequence[Arrays], folds: NDArray[np.intp]) -> CrossFit:
    """Return the results of all folds in the order of the rows, with aligned embeddings."""
    position = folds.argsort(kind="stable").argsort()
    pred_proba = np.concatenate([part["pred_proba"] for part in parts])[position]
    if "embeddings" not in parts[0]:
        return CrossFit(pred_proba, None, folds)
    aligned = [align(part["embeddings"], part["anchors"], parts[0]["anchors"]) for part in parts]
    return CrossFit(pred_proba, np.concatenate(aligned)[position].astype(np.float32), folds)


def _scaled(pred_proba: FloatArray, Y: FloatArray, noise: ClassConditionalNoise) -> FloatArray:
    """Return probabilities of true labels after Platt scaling; labels with few rows of a class are not scaled."""
    logits = scipy.special.logit(np.clip(pred_proba, _LOGIT_EPS, 1 - _LOGIT_EPS))
    slope, offset = fit_scaling(Y, logits, noise.rho_pos, noise.rho_neg)
    scaled: FloatArray = scipy.special.expit(np.nan_to_num(slope, nan=1.0) * logits + np.nan_to_num(offset))
    return scaled


def align(values: NDArray[Any], anchors: NDArray[Any], target: NDArray[Any]) -> NDArray[Any]:
    r"""Return vectors mapped by the rotation and translation that move the anchors closest to their targets.

    .. math:: (v - \bar a) R + \bar t, \qquad R = \arg\min_{R^\top R = I} \lVert (A - \bar a) R - (T - \bar t) \rVert_F

    >>> align(np.array([[1.0, 0.0]]), np.eye(2), np.array([[1.0, 5.0], [0.0, 4.0]])).round(6)
    array([[1., 5.]])
    """
    center, target_center = anchors.mean(0), target.mean(0)
    rotation, _ = scipy.linalg.orthogonal_procrustes(anchors - center, target - target_center)
    aligned: NDArray[Any] = (values - center) @ rotation + target_center
    return aligned
