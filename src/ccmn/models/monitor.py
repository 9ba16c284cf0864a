r"""Progress display, and the check whether the model overfits the noise.

The check uses the parts of the unbiased training risk,

.. math:: R^+_j = \frac1n \sum_i p_{ij}\, \phi(f_{ij}), \qquad R^-_j = \frac1n \sum_i (1 - p_{ij})\, \phi(-f_{ij})

for the Hamming loss and :math:`R_j = \frac{1}{nq} \sum_i p_{ij} \sum_{k \ne j} (1 - p_{ik})\, \phi(f_{ij} - f_{ik})`
(including the dummy label among the k) for the ranking loss. They estimate quantities that cannot be negative. A model
that fits the noise of single training labels makes them negative; no true label is needed to see this. They are
computed once, for the selected weights: negative values in single batches, or after the selected epoch, do no harm.

Every fit to noisy labels decreases these parts. A part is reported if the sum of its negative terms is at least twice
that of its positive terms, whatever the scale of phi: a model that has memorized the noisy labels has almost no
positive terms.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ccmn._progress import show_phases
from ccmn.losses import HammingLoss, MultiLabelLoss, RankingLoss
from ccmn.losses._fast import pair_sums_by_label
from ccmn.losses.multilabel_loss import with_weights
from ccmn.losses.surrogates import phi_of
from ccmn.models.predictor import FittedNetwork
from ccmn.models.training_data import Sample
from ccmn.training import EpochProgress, SparseLabels, StreamProgress

MAX_RISK_ROWS = 2000
"""The parts of the risk are means over at most this number of training rows, evenly spread."""
MAX_RISK_PART = -0.05
"""Parts of the risk above this value are not reported."""
MIN_NEGATIVE_RATIO = 2.0
"""A part is reported if its negative terms are at least this many times its positive ones."""
MIN_STANDARD_ERRORS = 2.0
"""A part is reported if it is at least this many standard errors below 0."""
MAX_LABELS_NAMED = 5
"""The warning names at most this many labels."""

OnEpoch = Callable[[EpochProgress], None] | None
OnRows = Callable[[StreamProgress], None] | None


@contextlib.contextmanager
def show_progress(verbose: int, criterion: str, *, stream: bool = False) -> Iterator[tuple[OnEpoch, OnRows]]:
    """Yield callbacks for the end of an epoch and for rows of a stream.

    With ``verbose=1``, they report the progress; with ``verbose=2``, they print one line per epoch. The progress of a
    stream counts rows, that of rows in memory counts epochs.
    """
    if verbose >= 2:
        latest: list[StreamProgress] = []

        def print_epoch(progress: EpochProgress) -> None:
            speed = f", {_rows_per_second(latest[-1])}" if latest else ""
            print(f"{_epoch_line(progress, criterion)}{speed}", file=sys.stderr, flush=True)

        yield print_epoch, lambda progress: latest.__setitem__(slice(None), [progress])
        return
    if verbose < 1:
        yield None, None
        return
    with show_phases(verbose) as on_progress:
        if stream:
            yield (
                None,
                lambda rows: on_progress(f"epoch {rows.epoch + 1}", rows.rows, rows.total, _rows_per_second(rows)),
            )
        else:
            yield (
                lambda epoch: on_progress("training", epoch.epoch + 1, epoch.epochs, _epoch_values(epoch, criterion)),
                None,
            )


def _rows_per_second(progress: StreamProgress) -> str:
    """Return the speed as text."""
    return f"{progress.rows / max(progress.seconds, 1e-9):,.0f} rows/s"


def _epoch_line(progress: EpochProgress, criterion: str) -> str:
    """Return the line of an epoch."""
    return f"epoch {progress.epoch + 1}/{progress.epochs}: {_epoch_values(progress, criterion)}"


def _epoch_values(progress: EpochProgress, criterion: str) -> str:
    """Return loss and criterion of the run that is best in this epoch."""
    if progress.criterion is None:
        return f"loss {float(progress.loss.min()):.4f}"
    best = int(progress.criterion[0].argmin())
    return f"loss {float(progress.loss[0, best]):.4f}, validation {criterion} {float(progress.criterion[0, best]):.4f}"


# -- Parts of the training risk


@dataclass(frozen=True)
class RiskParts:
    """Parts of the training risk of every label: R+ and R- of the Hamming loss (2, q), or one part (1, q)."""

    means: NDArray[np.float64]
    errors: NDArray[np.float64]
    """Standard errors of the means."""
    sizes: NDArray[np.float64]
    """Means of the absolute terms. Positive and negative terms are (sizes + means) / 2 and (sizes - means) / 2."""

    def negative(self) -> NDArray[np.intp]:
        """Return the labels with a negative part, the most negative first."""
        mostly_negative = self.sizes - self.means > MIN_NEGATIVE_RATIO * (self.sizes + self.means)
        significant = (self.means < MAX_RISK_PART) & (self.means < -MIN_STANDARD_ERRORS * self.errors)
        worst = np.where(mostly_negative & significant, self.means, 0).min(0)
        return np.argsort(worst, kind="stable")[: int((worst < 0).sum())]


def training_risk_parts(loss: MultiLabelLoss, network: FittedNetwork, train: Sample) -> RiskParts | None:
    """Return the parts of the training risk of a fitted network; None if no part can be negative."""
    if isinstance(train.p, SparseLabels):
        return None  # too many labels for dense rows
    n = train.X.shape[0]
    rows = train.take(np.arange(0, n, -(-n // MAX_RISK_ROWS)))
    p = rows.dense_labels()
    return risk_parts(loss, network.outputs(rows.X), p, rows.weights) if can_be_negative(loss, p) else None


def can_be_negative(loss: MultiLabelLoss, p: NDArray[np.floating]) -> bool:
    """Return whether the loss has parts and some debiased labels have negative weights in them."""
    if isinstance(loss, RankingLoss):
        # With one true class per row, the pair sum has another form without row sums over debiased labels.
        if loss.noise is not None and not loss.noise.flips_independent:
            return False
    elif not isinstance(loss, HammingLoss):
        return False
    return bool(((p < 0) | (p > 1)).any())


def risk_parts(
    loss: MultiLabelLoss,
    outputs: NDArray[np.floating],
    p: NDArray[np.floating],
    weights: NDArray[np.float64] | None = None,
) -> RiskParts:
    """Return the parts of a Hamming or ranking loss from outputs (n, n_outputs) and debiased labels (n, q)."""
    scores, targets = torch.from_numpy(outputs).double(), torch.from_numpy(p).double()
    share = (~targets.isnan()).double()
    if weights is not None:
        share = share * torch.from_numpy(weights).unsqueeze(-1)
    share = share / share.sum(0).clamp_min(torch.finfo(torch.float64).tiny)
    if isinstance(loss, RankingLoss):
        f, pos, neg = with_weights(scores[:, 1:], targets)
        f = torch.cat((scores[:, :1], f), 1)
        # The dummy label is positive and negative; its own row sum belongs to no label.
        pos, neg = (torch.nn.functional.pad(side, (1, 0), value=1.0) for side in (pos, neg))
        terms = [pair_sums_by_label(f, pos, neg, loss.surrogate)[:, 1:] / targets.shape[1]]
    else:
        f, pos, neg = with_weights(scores, targets)
        phi = phi_of(loss.surrogate)
        with torch.no_grad():
            terms = [pos * phi(f), neg * phi(-f)]
    means = [(share * values).sum(0) for values in terms]
    errors = [(share * (values - mean)).square().sum(0).sqrt() for values, mean in zip(terms, means)]
    sizes = [(share * values.abs()).sum(0) for values in terms]
    return RiskParts(*(torch.stack(part).numpy() for part in (means, errors, sizes)))


def overfitting_warning(
    parts: RiskParts, names: Sequence[str] | None, *, corrected: bool, has_epochs: bool
) -> str | None:
    """Return a warning about labels whose risk is negative, with remedies that apply; None if there are none.

    ``has_epochs`` is False after a fit in closed form or by Newton steps, without epochs and without a risk correction.
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
