"""A trained network of one run, as plain arrays: what predicts, and what is saved.

Predictions of many labels: scores exist for a tile of rows and labels at a time, never as a whole matrix.

Scores into probabilities of the true labels, strictly inside (0, 1), increasing in the score, 1/2 at the cut.

| loss | probability | why |
| --- | --- | --- |
| hamming / square | (1 + f) / 2, bent at the ends so that it never reaches 0 or 1 | the minimiser is f = 2 P - 1 |
| hamming / logistic, forward | sigma(f) | the minimiser is the log-odds |
| plugin | (P_noisy - rho_neg) / (1 - rho_pos - rho_neg), bent at the ends likewise | the noise inverted |
| all others | sigma(a f), the slope a > 0 fitted on validation data with debiased labels | no natural one |

From features to scores and probabilities: what a fitted classifier predicts with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit

from ccmn._containers import is_sparse
from ccmn.noise import ClassConditionalNoise, NoiseModel
from ccmn.training import Network, StackedLinear, StackedMLP, UserNetwork

_ROWS_AT_ONCE = 8192
_WEIGHTS_AT_ONCE = 1 << 24
"""Larger weights are taken to float64 a part at a time."""


@dataclass
class FittedNetwork:
    """Weights by name, and the module itself where the user brought one.

    Linear and MLP outputs are computed in float64 from the stored weights, so that they depend neither on how rows
    are batched nor on whether the model was saved in between.
    """

    kind: str
    """"linear", "mlp" or "user"."""
    arrays: dict[str, NDArray[Any]]
    module: torch.nn.Module | None = field(default=None, repr=False)

    def outputs(self, X: Any) -> NDArray[np.float64]:
        """(n, n_outputs); rows are taken in blocks, sparse ones stay sparse in products."""
        blocks = [self._block(X[start : start + _ROWS_AT_ONCE]) for start in range(0, X.shape[0], _ROWS_AT_ONCE)]
        return np.concatenate(blocks)

    def some_outputs(self, X: Any, columns: slice) -> NDArray[np.float64]:
        """Some of the outputs of a few rows. A user's own network can only work out all of them."""
        return _module_outputs(self.module, X)[:, columns] if self.kind == "user" else self._some(X, columns)

    @property
    def weights_per_output(self) -> int:
        """How many weights one output costs to look at; for a user's own network all outputs cost the same."""
        return 0 if self.kind == "user" else int(self._last[0].shape[0])

    @property
    def _last(self) -> tuple[NDArray[Any], NDArray[Any]]:
        names = ("weight", "bias") if self.kind == "linear" else ("second_weight", "second_bias")
        return self.arrays[names[0]], self.arrays[names[1]]

    def _block(self, X: Any) -> NDArray[np.float64]:
        if self.kind == "user":
            return _module_outputs(self.module, X)
        inputs, columns = self._last[0].shape
        size = max(1, _WEIGHTS_AT_ONCE // max(1, inputs))
        if columns <= size:
            return self._some(X, slice(None))
        outputs = np.empty((X.shape[0], columns))
        for start in range(0, columns, size):
            outputs[:, start : start + size] = self._some(X, slice(start, start + size))
        return outputs

    def _some(self, X: Any, columns: slice) -> NDArray[np.float64]:
        X = X if is_sparse(X) else np.asarray(X, dtype=np.float64)
        if self.kind == "mlp":
            X = np.maximum(np.asarray(X @ self.arrays["weight"].astype(np.float64)) + self.arrays["bias"], 0)
        weight, bias = self._last
        return np.asarray(np.asarray(X @ weight[:, columns].astype(np.float64)) + bias[columns])


def _module_outputs(module: torch.nn.Module | None, X: Any) -> NDArray[np.float64]:
    if module is None:
        raise ValueError("this model has a network of the user's own: load it with load_model(path, model=...)")
    parameter = next(module.parameters())
    dense = X.toarray() if is_sparse(X) else np.asarray(X)
    with torch.no_grad():
        outputs = module(torch.as_tensor(dense).to(parameter.device, parameter.dtype))
    return np.asarray(outputs.double().cpu().numpy())


def run_of(network: Network, k: int) -> FittedNetwork:
    """Run k of the first group of a stack, taken out."""
    if isinstance(network, UserNetwork):
        state = {name: t.detach().cpu().numpy() for name, t in network.module.state_dict().items()}
        return FittedNetwork("user", state, network.module)
    first = network.parameters[0].values.detach()[0, :, k].cpu().numpy()
    arrays = {"weight": first[:-1].copy(), "bias": first[-1].copy()}
    if isinstance(network, StackedMLP):
        second, cut = (p.values.detach()[0, k].cpu().numpy() for p in network.parameters[1:])
        return FittedNetwork("mlp", {**arrays, "second_weight": second.copy(), "second_bias": cut[0].copy()})
    assert isinstance(network, StackedLinear)
    return FittedNetwork("linear", arrays)


MakeModule = Callable[[int, int], torch.nn.Module]


def rebuild_module(make: MakeModule, n_features: int, n_outputs: int, arrays: dict[str, NDArray[Any]]) -> FittedNetwork:
    """A user's network with saved weights in it."""
    module = make(n_features, n_outputs)
    state = {name: torch.from_numpy(array) for name, array in arrays.items()}
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        raise ValueError(f"the network that model(...) makes does not fit the saved weights: {error}") from None
    return FittedNetwork("user", arrays, module.eval())


Scores = Callable[[Any, slice], NDArray[np.float64]]
"""(features of some rows, some labels) -> their scores."""

SCORES_AT_ONCE = 1 << 20
WEIGHTS_AT_ONCE = 1 << 21


def label_tiles(q: int, weights_per_label: int) -> Iterator[slice]:
    """Labels in tiles whose weights, in float64, are few megabytes."""
    size = max(1, WEIGHTS_AT_ONCE // max(1, weights_per_label))
    yield from (slice(start, min(start + size, q)) for start in range(0, q, size))


def predicted_labels(scores: Scores, X: Any, tiles: list[slice]) -> Any:
    """The labels whose score is >= 0, as CSR (n, q) of int64."""
    rows, columns = [], []
    for labels, part, f in _tiles(scores, X, tiles):
        row, column = np.nonzero(f >= 0)
        rows.append(row + part.start)
        columns.append(column + labels.start)
    at = np.concatenate(rows), np.concatenate(columns)
    ones = np.ones(at[0].size, dtype=np.int64)
    return scipy.sparse.coo_matrix((ones, at), shape=(X.shape[0], tiles[-1].stop)).tocsr()


def top_labels(scores: Scores, X: Any, tiles: list[slice], k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The k labels of every row with the highest scores, highest first, and their scores: (n, k) each.

    The best k so far meet one tile at a time and are told apart by partition: O(n q) time, and nothing of all labels
    is ever sorted. Of equal scores the first label comes first among those kept.
    """
    n = X.shape[0]
    best, which = np.full((n, 0), -np.inf), np.zeros((n, 0), dtype=np.int64)
    for labels in tiles:
        parts = [_meet(best[part], which[part], f, labels.start, k) for _, part, f in _tiles(scores, X, [labels])]
        best, which = (np.concatenate(side) for side in zip(*parts))
    order = np.lexsort((which, -best))
    return np.take_along_axis(which, order, 1), np.take_along_axis(best, order, 1)


def _meet(
    best: NDArray[np.float64], which: NDArray[np.int64], f: NDArray[np.float64], start: int, k: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The k best of those known and those of one more tile."""
    fresh = np.broadcast_to(np.arange(start, start + f.shape[1]), f.shape)
    values, labels = np.concatenate((best, f), 1), np.concatenate((which, fresh), 1)
    if values.shape[1] <= k:
        return values, labels
    kept = np.argpartition(-values, k - 1, axis=1)[:, :k]
    return np.take_along_axis(values, kept, 1), np.take_along_axis(labels, kept, 1)


def _tiles(scores: Scores, X: Any, tiles: list[slice]) -> Iterator[tuple[slice, slice, NDArray[np.float64]]]:
    """(labels, rows, scores of these), tile by tile."""
    for labels in tiles:
        size = max(1, SCORES_AT_ONCE // (labels.stop - labels.start))
        for start in range(0, X.shape[0], size):
            part = slice(start, min(start + size, X.shape[0]))
            yield labels, part, scores(X[part], labels)


_CORNER = 0.9
_FAR = 20.0


LINKS = ("linear", "logistic", "plugin", "slope")


def link_of(loss: str, surrogate: str | None) -> str:
    """Which transformation applies, of ``LINKS``."""
    if loss in ("forward", "plugin"):
        return "logistic" if loss == "forward" else "plugin"
    if loss == "hamming" and surrogate in ("square", "logistic"):
        return "linear" if surrogate == "square" else "logistic"
    return "slope"


def linear_probability(f: NDArray[Any]) -> NDArray[Any]:
    """(1 + f) / 2 up to +-0.9, then approaching 0 and 1 like 1/|f|: increasing everywhere, so no ranks are lost.

    >>> linear_probability(np.array([-3.0, 0.0, 0.5, 1.0])).round(3)
    array([0.002, 0.5  , 0.75 , 0.975])
    """
    excess = np.maximum(np.abs(f) - _CORNER, 0) / (1 - _CORNER)
    bent = 1 - (1 - _CORNER) / 2 / (1 + excess)
    inside = (1 + np.clip(f, -_CORNER, _CORNER)) / 2
    return _strictly_inside(np.where(f > _CORNER, bent, np.where(f < -_CORNER, 1 - bent, inside)))


def logistic_probability(f: NDArray[Any]) -> NDArray[Any]:
    """sigma(f) up to +-20, then approaching 0 and 1 like 1/|f|, where the exponential would run out of digits.

    >>> bool(logistic_probability(np.array([1e4])) > logistic_probability(np.array([1e3])))
    True
    """
    end = expit(-_FAR)
    tail = end / (1 + np.maximum(np.abs(f) - _FAR, 0))
    return _strictly_inside(np.where(f > _FAR, 1 - tail, np.where(f < -_FAR, tail, expit(np.clip(f, -_FAR, _FAR)))))


def _strictly_inside(p: NDArray[Any]) -> NDArray[Any]:
    """Off 0 and 1 by the least that floating point can say, where scores are so large that it has run out."""
    return np.asarray(np.clip(p, np.finfo(np.float64).tiny, np.nextafter(1.0, 0.0)))


class SlopeFit:
    """The a > 0 that minimises the mean of softplus(a f) - p a f on debiased labels (NaN left out).

    One number for all labels: the cut at 0 and every ranking stay what they are. The risk needs of the scores how many
    there are of each size, and of the labels one sum: blocks of rows are added one by one. More than one block is
    counted by scores of eleven binary digits, which moves the slope by about 1e-4 of itself.
    """

    def __init__(self) -> None:
        self._first: tuple[NDArray[Any], NDArray[Any], NDArray[Any]] | None = None
        self._counts: NDArray[np.float64] | None = None
        self._linear = 0.0

    def add(self, scores: NDArray[Any], p: NDArray[Any], row_weights: NDArray[Any] | None = None) -> None:
        """Scores and debiased labels (n, q) of some rows."""
        seen = ~np.isnan(p)
        f, target = scores[seen], p[seen]
        weight = np.ones(f.size) if row_weights is None else np.broadcast_to(row_weights[:, None], p.shape)[seen]
        if self._first is None and self._counts is None:
            self._first = f, target, weight
            return
        if self._first is not None:
            self._count(*self._first)
            self._first = None
        self._count(f, target, weight)

    def _count(self, f: NDArray[Any], target: NDArray[Any], weight: NDArray[Any]) -> None:
        self._linear += float((weight * target * f).sum())
        half = np.clip(f, -_LARGEST_HALF, _LARGEST_HALF).astype(np.float16).view(np.uint16)
        counts = np.asarray(np.bincount(half, weights=weight, minlength=1 << 16), dtype=np.float64)
        self._counts = counts if self._counts is None else self._counts + counts

    def slope(self) -> float:
        """The slope, 1 when undecided."""
        if self._first is not None:
            f, target, weight = self._first
            return _smallest(f, weight, float((weight * target * f).sum()))
        if self._counts is None:
            return 1.0
        kept = np.flatnonzero(self._counts)
        return _smallest(kept.astype(np.uint16).view(np.float16).astype(np.float64), self._counts[kept], self._linear)


_SLOPES = (-4.0, 4.0)
"""Logarithms of the slopes looked at, for scores of unit size."""
_LARGEST_HALF = float(np.finfo(np.float16).max)


def _smallest(f: NDArray[Any], weight: NDArray[Any], linear: float) -> float:
    total = float(weight.sum())
    scale = float(np.sqrt((weight * f**2).sum() / total)) if total > 0 else 0.0
    if scale == 0 or not np.isfinite(scale):
        return 1.0
    f = f / scale

    def slope_of_risk(log_a: float) -> float:
        """Its zero is found to all digits; the least of the risk itself only to half of them."""
        return float((weight * f * expit(np.exp(log_a) * f)).sum() - linear / scale) / total

    # The risk is convex in a: where it still falls at an end, or rises already, that end is the best there is.
    low, high = _SLOPES
    if slope_of_risk(low) >= 0 or slope_of_risk(high) <= 0:
        return float(np.exp(low if slope_of_risk(low) >= 0 else high) / scale)
    return float(np.exp(brentq(slope_of_risk, low, high, xtol=1e-14)) / scale)


@dataclass(frozen=True)
class Scorer:
    """A trained network, and how its outputs are read.

    Parameters
    ----------
    network : FittedNetwork
    noise : NoiseModel
        Inverted in the posterior where the link is "plugin".
    has_dummy : bool
        Is output 0 the dummy label of Eq. (8), which scores are counted from?
    link : str
        How scores become probabilities; see :mod:`ccmn.models.predictor`.
    slope : float
        Of the link "slope".
    thresholds : array (q,)
        The cut of every label.
    """

    network: FittedNetwork
    noise: NoiseModel
    has_dummy: bool
    link: str
    slope: float
    thresholds: NDArray[np.float64]

    def scores(self, X: Any, labels: slice | None = None) -> NDArray[np.float64]:
        """Scores (n, q) before the thresholds, or those of some labels: what the loss decides by."""
        outputs = self._outputs(X) if labels is None else self._some_outputs(X, labels)
        if self.link != "plugin":
            return outputs
        rho_pos, rho_neg = (rates[labels or slice(None)] for rates in self._rates())
        # Increasing in the noisy log-odds, 0 where the clean posterior is 1/2.
        return np.asarray(2 * (expit(outputs) - rho_neg) / (1 - rho_pos - rho_neg) - 1)

    def decisions(self, X: Any, labels: slice | None = None) -> NDArray[np.float64]:
        """Scores counted from the thresholds: a label is predicted where its decision is >= 0."""
        return self.scores(X, labels) - self.thresholds[labels or slice(None)]

    def probabilities(self, decisions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of every label by itself, strictly inside (0, 1)."""
        if self.link in ("linear", "plugin"):
            return linear_probability(decisions)
        return logistic_probability(self.slope * decisions)

    def tiles(self, per_label: int = 1) -> list[slice]:
        """All labels, in tiles; each costs its weights and so many numbers more."""
        return list(label_tiles(self.thresholds.size, max(self.network.weights_per_output, per_label)))

    def _outputs(self, X: Any) -> NDArray[np.float64]:
        outputs = self.network.outputs(X)
        return outputs[:, 1:] - outputs[:, :1] if self.has_dummy else outputs

    def _some_outputs(self, X: Any, labels: slice) -> NDArray[np.float64]:
        if not self.has_dummy:
            return self.network.some_outputs(X, labels)
        dummy = self.network.some_outputs(X, slice(0, 1))
        return self.network.some_outputs(X, slice(labels.start + 1, labels.stop + 1)) - dummy

    def _rates(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        assert isinstance(self.noise, ClassConditionalNoise)
        return self.noise.rho_pos, self.noise.rho_neg
