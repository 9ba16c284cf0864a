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
from contextlib import contextmanager
from dataclasses import dataclass, replace
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
from torch.utils.data import DataLoader, Dataset, default_collate

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
from ccmn.estimation.out_of_fold import Fold, stratified_folds
from ccmn.losses import ForwardLoss, HammingLoss, MultiLabelLoss
from ccmn.noise import ClassConditionalNoise
from ccmn.training.batches import split_item

MAX_ANCHORS = 2000
"""Rows by which the embeddings of the folds are aligned."""
MAX_BYTES_ON_DEVICE = 2**30
"""Arrays up to this size are copied to the device once instead of batch by batch."""
WARM_UP = 0.1
"""Fraction of the steps of the one-cycle schedule in which the learning rate increases; it then decreases to 0."""
_LOGIT_EPS = 1e-6
"""Probabilities are clipped to [eps, 1 - eps] before they are scaled."""


Advance = Callable[[int], None]
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


@dataclass(frozen=True)
class _Settings:
    """Parameters of the training of a fold."""

    epochs: int
    patience: int
    batch_size: int
    lr: float
    weight_decay: float
    head: str | None
    mixed_precision: bool
    one_cycle: bool
    seed: int


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
    settings = _Settings(
        epochs=check_count(epochs, "epochs"),
        patience=check_count(patience, "patience"),
        batch_size=check_count(batch_size, "batch_size"),
        lr=check_real(lr, "lr", 0, float("inf")),
        weight_decay=check_penalty(weight_decay, "weight_decay"),
        head=None,
        mixed_precision=bool(mixed_precision),
        one_cycle=noise is not None,
        seed=int(as_generator(random_state).integers(2**31)),
    )
    inputs = _read_inputs(X, num_workers, collate_fn)
    Y = check_label_matrix(to_dense_array(inputs.labels() if Y_noisy is None else Y_noisy), "Y_noisy")
    if len(Y) != len(inputs):
        raise ValueError(f"X and Y_noisy must have the same number of rows; got {len(inputs)} and {len(Y)}")
    if not 2 <= check_count(n_folds, "n_folds") <= len(Y):
        raise ValueError(f"n_folds must be at least 2 and at most the number of rows, {len(Y)}; got {n_folds}")
    if noise is not None:
        check_label_width(Y.shape, noise.n_labels)
    folds = stratified_folds(Y, n_folds, np.random.default_rng(settings.seed))
    devices = _devices(device)
    # With several GPUs, fork_rng warns unless its devices are listed.
    with torch.random.fork_rng(range(torch.cuda.device_count())), _progress(verbose) as bar:
        torch.manual_seed(settings.seed)
        network = _check_model(make_model())
        settings = replace(settings, head=_head_name(network, head, Y.shape[1]))
        files = _FoldFiles.of(checkpoint, network, inputs, Y, folds, settings, noise)
        loss = HammingLoss("logistic") if noise is None else ForwardLoss(noise)
        fitting = _CrossFitting(network, inputs, torch.from_numpy(Y.astype(np.float32)), folds, settings, loss)
        parts = _run_folds(fitting, files, devices, bar)
    fitted = _collect(parts, folds, Y.shape)
    return fitted if noise is None else fitted._replace(pred_proba=_scaled(fitted.pred_proba, Y, noise))


class _Inputs:
    """Rows of one array, or of a mapping of arrays."""

    def __init__(self, arrays: Any) -> None:
        named = {name: _as_tensor(array) for name, array in arrays.items()} if isinstance(arrays, Mapping) else None
        self._named, self._single = named, None if named is not None else _as_tensor(arrays)
        lengths = {len(tensor) for tensor in self._tensors()}
        if len(lengths) != 1:
            raise ValueError(f"the arrays of X must have the same number of rows; got {sorted(lengths)}")
        self._length = lengths.pop()

    def __len__(self) -> int:
        return self._length

    def _tensors(self) -> list[Tensor]:
        return [self._single] if self._single is not None else list((self._named or {}).values())

    def identity(self) -> list[Any]:
        """Return the values that identify the inputs in a checkpoint."""
        tensors = (tensor.float() if tensor.is_floating_point() else tensor for tensor in self._tensors())
        return [tensor.cpu().numpy() for tensor in tensors]

    def labels(self) -> Any:
        """Return the labels of the items, which arrays do not contain."""
        raise ValueError("Expected noisy labels: cross_fit_proba(make_model, X, Y_noisy); got Y_noisy=None")

    def on(self, device: torch.device) -> _Inputs:
        """Return the inputs on a device if they are small enough, and unchanged otherwise."""
        if sum(tensor.nbytes for tensor in self._tensors()) > MAX_BYTES_ON_DEVICE:
            return self
        moved = {name: tensor.to(device) for name, tensor in (self._named or {}).items()}
        return _Inputs(moved) if self._single is None else _Inputs(self._single.to(device))

    def batches(self, rows: Fold, size: int, generator: torch.Generator | None) -> Iterator[tuple[Any, Tensor]]:
        """Yield batches of inputs and their row numbers; the order is random if a generator is given."""
        order = torch.from_numpy(rows)
        if generator is not None:
            order = order[torch.randperm(len(order), generator=generator)]
        for index in torch.split(order, size):
            if self._single is not None:
                yield self._single[index.to(self._single.device)], index
            else:
                yield {name: tensor[index.to(tensor.device)] for name, tensor in (self._named or {}).items()}, index


class _DatasetInputs(_Inputs):
    """Items of a map-style Dataset, loaded by a DataLoader."""

    def __init__(self, dataset: Any, num_workers: int, collate_fn: Callable[[list[Any]], Any] | None) -> None:
        self._dataset, self._workers, self._collate = dataset, num_workers, collate_fn or default_collate

    def __len__(self) -> int:
        return len(self._dataset)

    def identity(self) -> list[Any]:
        return [type(self._dataset).__name__, len(self._dataset)]

    def labels(self) -> Any:
        labels = [split_item(self._dataset[i])[1] for i in range(len(self))]
        if not labels or labels[0] is None:
            raise ValueError(
                "Expected items (input, labels) or mappings with the key 'labels' in the Dataset, or the argument "
                "Y_noisy; got items without labels"
            )
        return np.stack([to_dense_array(row).astype(np.float64) for row in labels])

    def on(self, device: torch.device) -> _Inputs:
        return self

    def batches(self, rows: Fold, size: int, generator: torch.Generator | None) -> Iterator[tuple[Any, Tensor]]:
        order = torch.from_numpy(rows)
        if generator is not None:
            order = order[torch.randperm(len(order), generator=generator)]
        items = _Items(self._dataset, order.tolist())
        loader = DataLoader(items, size, num_workers=self._workers, collate_fn=self._collate)
        yield from zip(loader, torch.split(order, size))


class _Items(Dataset[Any]):
    """Inputs of some items of a Dataset, in the given order, without their labels."""

    def __init__(self, dataset: Any, order: Sequence[int]) -> None:
        self._dataset, self._order = dataset, order

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, position: int) -> Any:
        return split_item(self._dataset[self._order[position]])[0]


def _as_tensor(array: Any) -> Tensor:
    """Return an array as a tensor of at least one dimension; float64 becomes float32."""
    if is_sparse(array):
        raise ValueError("X must be dense; got a sparse matrix. Pass a Dataset whose items are dense rows.")
    tensor = array if isinstance(array, Tensor) else torch.as_tensor(np.ascontiguousarray(unwrap(array)[0]))
    if not tensor.ndim:
        raise ValueError("X must have at least one dimension, the rows; got a number")
    return tensor.float() if tensor.dtype == torch.float64 else tensor


def _read_inputs(X: Any, num_workers: int, collate_fn: Callable[[list[Any]], Any] | None) -> _Inputs:
    """Return the rows of X."""
    if isinstance(X, (Mapping, Tensor)) or hasattr(X, "__array__") or is_sparse(X):
        return _Inputs(X)
    if not (hasattr(X, "__len__") and hasattr(X, "__getitem__")):
        raise TypeError(
            "X must be an array, a mapping of arrays, or a map-style Dataset with a length and items; got "
            f"{type(X).__name__}"
        )
    return _DatasetInputs(X, num_workers, collate_fn)


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
    layers = [(name, layer) for name, layer in network.named_modules() if name]
    if head == "auto":
        matching = (isinstance(layer, torch.nn.Linear) and layer.out_features == q for _, layer in layers)
        return next((name for (name, _), match in reversed(list(zip(layers, matching))) if match), None)
    if head is not None and head not in dict(layers):
        last = layers[-1][0] if layers else ""
        raise ValueError(f"head must be the name of a layer of the network, such as {last!r}; got {head!r}")
    return head


@contextmanager
def _progress(verbose: int) -> Iterator[Callable[[int], Advance]]:
    """Yield a function that starts to report a number of steps and returns its update."""
    with show_phases(verbose) as on_progress:

        def start(total: int) -> Advance:
            done = 0

            def advance(steps: int) -> None:
                nonlocal done
                done += steps
                on_progress("cross-fitting", done, total)

            return advance

        yield start


@dataclass(frozen=True)
class _FoldFiles:
    """Files with the results of completed folds."""

    folder: Path | None
    identity: str

    @classmethod
    def of(
        cls,
        folder: str | os.PathLike[str] | None,
        network: torch.nn.Module,
        inputs: _Inputs,
        Y: FloatArray,
        folds: Sequence[Fold],
        settings: _Settings,
        noise: ClassConditionalNoise | None,
    ) -> _FoldFiles:
        """Return the files in a folder, which is created; the identity covers weights, data and parameters."""
        if folder is None:
            return cls(None, "")
        Path(folder).mkdir(parents=True, exist_ok=True)
        weights = [tensor.detach().float().cpu().numpy() for tensor in network.state_dict().values()]
        rates = [] if noise is None else [noise.rho_pos, noise.rho_neg]
        return cls(Path(folder), fingerprint(Y, *folds, *inputs.identity(), *weights, settings, *rates))

    def read(self, number: int, shapes: Mapping[str, tuple[int, int]]) -> Arrays | None:
        """Return the result of a fold, or None if it is not completed; -1 in ``shapes`` is any size."""
        path = None if self.folder is None else self.folder / f"fold-{number}.safetensors"
        if path is None or not path.exists():
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
        for name, shape in shapes.items():
            array = arrays.get(name)
            if array is None or not _is_valid(array, shape) or (name == "pred_proba" and not _are_rates(array)):
                raise ValueError(f"checkpoint {path} is damaged ({name}); delete it to train this fold again")
        return arrays

    def write(self, number: int, arrays: Arrays) -> None:
        """Write the result of a fold atomically."""
        if self.folder is not None:
            with atomic_write(self.folder / f"fold-{number}.safetensors") as stream:
                stream.write(save(arrays, metadata={"fingerprint": self.identity}))


def _is_valid(array: NDArray[Any], shape: tuple[int, int]) -> bool:
    """Return whether an array consists of finite floating-point numbers and has a shape; -1 is any size."""
    fits = array.ndim == 2 and all(known in (-1, size) for known, size in zip(shape, array.shape))
    return fits and array.dtype.kind == "f" and bool(np.isfinite(array).all())


def _are_rates(array: NDArray[Any]) -> bool:
    return bool(((array >= 0) & (array <= 1)).all())


@dataclass(frozen=True)
class _CrossFitting:
    """Network, data and parameters of all folds."""

    network: torch.nn.Module
    inputs: _Inputs
    labels: Tensor
    folds: Sequence[Fold]
    settings: _Settings
    loss: MultiLabelLoss
    """Loss on a CPU; every fold uses a copy."""

    def steps(self, number: int) -> int:
        """Return the number of batches of an epoch of a fold, including the prediction of the held-out rows."""
        held_out = len(self.folds[number])
        size = self.settings.batch_size
        return -(-(len(self.labels) - held_out) // size) + -(-held_out // size)

    def shapes(self, number: int) -> dict[str, tuple[int, int]]:
        """Return the shapes of the results of a fold; -1 for the size of embeddings, which is not known yet."""
        n = len(self.folds[number])
        shapes = {"pred_proba": (n, self.labels.shape[1])}
        return {**shapes, "embeddings": (n, -1), "anchors": (len(self.anchors()), -1)} if self.settings.head else shapes

    def anchors(self) -> Fold:
        """Return the rows by which embeddings are aligned."""
        rng = np.random.default_rng(self.settings.seed)
        return rng.permutation(len(self.labels))[:MAX_ANCHORS]

    def fit_fold(self, number: int, device: torch.device, advance: Advance) -> Arrays:
        """Train the network of a fold; return the results of its held-out rows at the best epoch."""
        settings, held_out = self.settings, self.folds[number]
        rows = np.concatenate([fold for k, fold in enumerate(self.folds) if k != number])
        _seed_layers(device, settings.seed + number)
        network, inputs = copy.deepcopy(self.network).to(device), self.inputs.on(device)
        trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=settings.lr, weight_decay=settings.weight_decay)
        schedule = None
        if settings.one_cycle:
            steps = settings.epochs * -(-len(rows) // settings.batch_size)
            schedule = OneCycleLR(optimizer, settings.lr, steps, pct_start=WARM_UP)
        generator = torch.Generator().manual_seed(settings.seed + number)
        best_loss, best_epoch, best, weights = float("inf"), 0, None, None
        for epoch in range(settings.epochs):
            self._train_epoch(network, inputs, rows, optimizer, schedule, generator, advance)
            logits = torch.cat(list(self._outputs(network, inputs, held_out, advance)))
            loss = float(self.loss(logits, self.labels[held_out]))
            if best is None or loss < best_loss:
                best_loss, best_epoch, best = loss, epoch, logits
                weights = copy.deepcopy(network.state_dict()) if settings.head else None
            if epoch - best_epoch >= settings.patience:
                advance((settings.epochs - 1 - epoch) * self.steps(number))
                break
        assert best is not None
        result = {"pred_proba": torch.sigmoid(best.double()).numpy()}
        if weights is not None:
            network.load_state_dict(weights)
            for name, part in (("embeddings", held_out), ("anchors", self.anchors())):
                result[name] = torch.cat(list(self._embeddings(network, inputs, part))).numpy()
        return result

    def _train_epoch(
        self,
        network: torch.nn.Module,
        inputs: _Inputs,
        rows: Fold,
        optimizer: torch.optim.Optimizer,
        schedule: OneCycleLR | None,
        generator: torch.Generator,
        advance: Advance,
    ) -> None:
        """Update the weights once with every batch."""
        network.train()
        device = next(network.parameters()).device
        labels, loss = self.labels.to(device), copy.deepcopy(self.loss).to(device)
        for batch, index in inputs.batches(rows, self.settings.batch_size, generator):
            advance(1)
            if len(index) == 1 and len(rows) > 1:
                continue  # batch normalization needs two rows
            optimizer.zero_grad(set_to_none=True)
            value = loss(self._call(network, batch, device), labels[index.to(device)])
            value.backward()
            optimizer.step()
            if schedule is not None:
                schedule.step()

    @torch.no_grad()
    def _outputs(self, network: torch.nn.Module, inputs: _Inputs, rows: Fold, advance: Advance) -> Iterator[Tensor]:
        """Yield the logits of batches of rows, on the CPU."""
        network.eval()
        device = next(network.parameters()).device
        for batch, _ in inputs.batches(rows, self.settings.batch_size, None):
            yield self._call(network, batch, device).float().cpu()
            advance(1)

    def _embeddings(self, network: torch.nn.Module, inputs: _Inputs, rows: Fold) -> Iterator[Tensor]:
        """Yield the inputs of the last layer, one vector per row, on the CPU."""
        captured: list[Tensor] = []
        layer = network.get_submodule(str(self.settings.head))
        hook = layer.register_forward_pre_hook(lambda _, arguments: captured.append(arguments[0]))
        try:
            for _ in self._outputs(network, inputs, rows, lambda steps: None):
                yield captured.pop().flatten(1).float().cpu()
        finally:
            hook.remove()

    def _call(self, network: torch.nn.Module, batch: Any, device: torch.device) -> Tensor:
        """Return the logits of a batch."""
        enabled = self.settings.mixed_precision
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled):
            if isinstance(batch, Mapping):
                outputs = network(**{name: _to_network(value, network) for name, value in batch.items()})
            else:
                outputs = network(_to_network(batch, network))
        outputs = getattr(outputs, "logits", outputs)
        q = self.labels.shape[1]
        if not isinstance(outputs, Tensor) or outputs.ndim != 2 or outputs.shape[1] != q:
            got = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
            raise ValueError(f"the network must return one logit per label, shape (batch, {q}); got {got}")
        return outputs.float()


def _to_network(value: Any, network: torch.nn.Module) -> Any:
    """Return a tensor on the device of a network; floating-point numbers get the type of its weights."""
    if not isinstance(value, Tensor):
        return value
    weight = next(parameter for parameter in network.parameters() if parameter.is_floating_point())
    return value.to(weight.device, weight.dtype if value.is_floating_point() else value.dtype)


def _seed_layers(device: torch.device, seed: int) -> None:
    """Seed the random numbers of layers such as dropout, on one device only."""
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


def _run_folds(
    fitting: _CrossFitting, files: _FoldFiles, devices: Sequence[torch.device], bar: Callable[[int], Advance]
) -> list[Arrays]:
    """Return the results of all folds; folds that are not in the files are trained, one per device at a time."""
    parts = [files.read(number, fitting.shapes(number)) for number in range(len(fitting.folds))]
    missing = [number for number, part in enumerate(parts) if part is None]
    advance = bar(sum(fitting.settings.epochs * fitting.steps(number) for number in missing))
    free: queue.SimpleQueue[torch.device] = queue.SimpleQueue()
    for device in devices:
        free.put(device)

    def run(number: int) -> Arrays:
        device = free.get()
        try:
            part = fitting.fit_fold(number, device, advance)
        finally:
            free.put(device)
        files.write(number, part)
        return part

    if len(devices) == 1:
        trained = [run(number) for number in missing]
    else:
        with ThreadPoolExecutor(len(devices)) as pool:
            trained = list(pool.map(run, missing))
    for number, part in zip(missing, trained):
        parts[number] = part
    return [part for part in parts if part is not None]


def _collect(parts: Sequence[Arrays], folds: Sequence[Fold], shape: tuple[int, ...]) -> CrossFit:
    """Return the results of all folds in the order of the rows, with aligned embeddings."""
    pred_proba, numbers = np.empty(shape), np.empty(shape[0], dtype=np.intp)
    embeddings = None
    if "embeddings" in parts[0]:
        embeddings = np.empty((shape[0], parts[0]["embeddings"].shape[1]), dtype=np.float32)
    for number, (fold, part) in enumerate(zip(folds, parts)):
        pred_proba[fold], numbers[fold] = part["pred_proba"], number
        if embeddings is not None:
            embeddings[fold] = align(part["embeddings"], part["anchors"], parts[0]["anchors"])
    return CrossFit(pred_proba, embeddings, numbers)


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
