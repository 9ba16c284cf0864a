r"""Progress of a fit: a bar on a terminal, a line an epoch on request, nothing otherwise.

Has the model learned single noisy labels? The parts of the unbiased risk tell, without a single true label.

.. math:: R^+_j = \frac1n \sum_i p_{ij}\, \phi(f_{ij}), \qquad R^-_j = \frac1n \sum_i (1 - p_{ij})\, \phi(-f_{ij})

for the Hamming loss and :math:`R_j = \frac{1}{nq} \sum_i p_{ij} \sum_{k \ne j} (1 - p_{ik})\, \phi(f_{ij} - f_{ik})`
(the dummy label among the k) for the ranking loss estimate numbers that cannot be negative. On rows that the model did
not see they are below zero by chance at most; on training rows they are pushed below it by a model that fits the noise
of single labels. They are looked at once, for the weights that are kept: a batch that dips below zero, or epochs beyond
the one that validation chose, do no harm and are not reported.

Every fit to noisy labels pushes them down a little, a linear one on few rows below zero here and there. What is
reported is a part whose negative terms outweigh the positive ones two to one, whatever the scale of phi: a model that
knows every noisy label by heart has hardly any positive terms left.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccmn.losses import HammingLoss, MultiLabelLoss, RankingLoss
from ccmn.losses.multilabel_loss import weigh
from ccmn.losses.pairs import pair_sums_by_label
from ccmn.losses.surrogates import phi_of
from ccmn.models.predictor import FittedNetwork
from ccmn.models.training_data import Sample
from ccmn.training import Passed, Progress, SparseLabels


@contextlib.contextmanager
def progress_of(verbose: int, criterion: str) -> Iterator[Callable[[Progress], None] | None]:
    """What to call after each epoch. verbose=1: a bar, on a terminal only; verbose=2: a line, anywhere."""
    if verbose >= 2:
        yield lambda p: print(_line(p, criterion), file=sys.stderr, flush=True)
    elif verbose == 1 and sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
        with Bar(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=None)
            yield lambda p: bar.update(task, total=p.epochs, completed=p.epoch + 1, description=_figures(p, criterion))
    else:
        yield None


@contextlib.contextmanager
def stream_progress_of(
    verbose: int, criterion: str
) -> Iterator[tuple[Callable[[Progress], None] | None, Callable[[Passed], None] | None]]:
    """What to call after each epoch, and while rows pass by: rows a second, on a terminal as they come."""
    if verbose >= 2:
        latest: list[Passed] = []
        yield (
            lambda p: print(f"{_line(p, criterion)}, {_speed(latest[-1])}", file=sys.stderr, flush=True),
            lambda passed: latest.__setitem__(slice(None), [passed]),
        )
    elif verbose == 1 and sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("epoch {task.fields[epoch]}"), BarColumn(), TextColumn("{task.description}"))
        with Bar(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=None, epoch=1)

            def tell(p: Progress) -> None:
                bar.console.print(_line(p, criterion))

            def passed(p: Passed) -> None:
                bar.update(task, total=p.total, completed=p.rows, epoch=p.epoch + 1, description=_speed(p))

            yield tell, passed
    else:
        yield None, None


def _speed(passed: Passed) -> str:
    return f"{passed.rows / max(passed.seconds, 1e-9):,.0f} rows/s"


def _figures(progress: Progress, criterion: str) -> str:
    """The figures of the run that is best this epoch."""
    if progress.criterion is None:
        return f"loss {float(progress.loss.min()):.4f}"
    best = int(progress.criterion[0].argmin())
    return f"loss {float(progress.loss[0, best]):.4f}, validation {criterion} {float(progress.criterion[0, best]):.4f}"


def _line(progress: Progress, criterion: str) -> str:
    return f"epoch {progress.epoch + 1}/{progress.epochs}: {_figures(progress, criterion)}"


MOST_ROWS = 2000
"""The parts are means over so many of the training rows, evenly spread: enough, and at no cost worth speaking of."""
LOWEST = -0.05
"""Only a part below this is reported,"""
OUTWEIGHED = 2.0
"""only where its negative terms are so many times the positive ones,"""
STANDARD_ERRORS = 2.0
"""and only where chance does not explain it: few debiased labels bring a small mean below zero by themselves."""

MAX_LABELS_NAMED = 5
"""The warning names at most this many labels."""


@dataclass(frozen=True)
class RiskParts:
    """R+ and R- of every label, (2, q), or the one part of the ranking loss, (1, q)."""

    means: NDArray[np.float64]
    errors: NDArray[np.float64]
    """Their standard errors."""
    sizes: NDArray[np.float64]
    """Means of the terms without their signs: positive and negative ones make up (sizes + means) / 2 and
    (sizes - means) / 2."""

    def negative(self) -> NDArray[np.intp]:
        """Numbers of the labels with a part that has gone negative, the lowest first."""
        outweighed = self.sizes - self.means > OUTWEIGHED * (self.sizes + self.means)
        gone = outweighed & (self.means < LOWEST) & (self.means < -STANDARD_ERRORS * self.errors)
        worst = np.where(gone, self.means, 0).min(0)
        return np.argsort(worst, kind="stable")[: int((worst < 0).sum())]


def risk_parts_of(loss: MultiLabelLoss, network: FittedNetwork, training: Sample) -> RiskParts | None:
    """The parts of the training risk at the weights that are kept; None where there are none to go negative."""
    if isinstance(training.p, SparseLabels):
        return None  # of so many labels not even a sample of rows is made dense for this
    some = training.take(np.arange(training.X.shape[0])[spread_rows(training.X.shape[0])])
    p = some.dense_labels()
    if not can_go_negative(loss, p):
        return None
    return risk_parts(loss, network.outputs(some.X), p, some.weights)


def can_go_negative(loss: MultiLabelLoss, p: NDArray[Any]) -> bool:
    """Does this loss have parts, and do these labels weigh some of them negatively? (NaN: not observed.)"""
    if isinstance(loss, RankingLoss):
        # One true class a row: its pair sum is another, without row sums over debiased labels.
        if loss.noise is not None and not loss.noise.flips_independent:
            return False
    elif not isinstance(loss, HammingLoss):
        return False
    return bool(((p < 0) | (p > 1)).any())


def spread_rows(n: int) -> slice:
    """At most ``MOST_ROWS`` of n rows."""
    return slice(None, None, -(-n // MOST_ROWS))


def risk_parts(
    loss: MultiLabelLoss, outputs: NDArray[Any], p: NDArray[Any], weights: NDArray[np.float64] | None = None
) -> RiskParts:
    """The parts of a Hamming or ranking loss from outputs (n, n_outputs) and debiased labels (n, q)."""
    scores, targets = torch.from_numpy(outputs).double(), torch.from_numpy(p).double()
    share = (~targets.isnan()).double()
    if weights is not None:
        share = share * torch.from_numpy(weights).unsqueeze(-1)
    rows = _ranking_rows if isinstance(loss, RankingLoss) else _hamming_rows
    found = [_summary(values, share) for values in rows(loss, scores, targets)]
    return RiskParts(*(torch.stack(each).numpy() for each in zip(*found)))


def _hamming_rows(loss: MultiLabelLoss, outputs: Tensor, targets: Tensor) -> list[Tensor]:
    f, pos, neg = weigh(outputs, targets)
    phi = phi_of(loss.surrogate)
    with torch.no_grad():
        return [pos * phi(f), neg * phi(-f)]


def _ranking_rows(loss: MultiLabelLoss, outputs: Tensor, targets: Tensor) -> list[Tensor]:
    f, pos, neg = weigh(outputs[:, 1:], targets)
    f = torch.cat((outputs[:, :1], f), 1)
    # The dummy is positive and negative at once; its own row sum belongs to no label.
    pos, neg = (torch.nn.functional.pad(side, (1, 0), value=1.0) for side in (pos, neg))
    return [pair_sums_by_label(f, pos, neg, loss.surrogate)[:, 1:] / targets.shape[1]]


def _summary(values: Tensor, share: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Weighted means over rows, their standard errors, and the means without signs, (q,) each."""
    share = share / share.sum(0).clamp_min(torch.finfo(torch.float64).tiny)
    mean = (share * values).sum(0)
    return mean, (share * (values - mean)).square().sum(0).sqrt(), (share * values.abs()).sum(0)


def warning_about(parts: RiskParts, names: Sequence[str] | None, *, corrected: bool, has_epochs: bool) -> str | None:
    """Return a warning about labels whose risk is negative, with remedies that apply; None if there are none.

    ``has_epochs`` is False after a fit in closed form or by L-BFGS, which have neither epochs nor a correction.
    """
    labels = parts.negative()
    if not len(labels):
        return None
    shown = ", ".join(repr(names[j]) if names else str(j) for j in labels[:MAX_LABELS_NAMED])
    more = f" and {len(labels) - MAX_LABELS_NAMED} more" if len(labels) > MAX_LABELS_NAMED else ""
    if has_epochs:
        remedy = "" if corrected else 'correction="relu", '
        remedy += 'a larger weight_decay, early stopping on more validation rows (validation=), or loss="forward"'
    else:
        remedy = 'a larger weight_decay, more validation rows (validation=), or solver="adam" with correction="relu"'
    worst, q = parts.means[:, labels].min(), parts.means.shape[1]
    return (
        f"The estimated training risk is negative for {len(labels)} of {q} labels (minimum {worst:.2g}): the model "
        f"overfits the noise of {shown}{more}. Use {remedy}."
    )
