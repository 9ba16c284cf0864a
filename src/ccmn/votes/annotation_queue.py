"""Annotation queue: labels for which another vote is expected to help most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ccmn._validation import FloatArray, check_count
from ccmn.estimation.dawid_skene import expected_counts
from ccmn.votes.inference import InferredLabels

if TYPE_CHECKING:
    from pandas import DataFrame

TIE_WEIGHT = 1e-3
"""Weight of the variance of a label in its gain, which matters only where two votes cannot change the decision."""


def next_votes(inferred: InferredLabels, n_votes: int = 100, *, annotator: Any = None) -> DataFrame:
    r"""Rank the labels for which another vote is expected to help most.

    A label with probability :math:`\mu` of being true is wrong with probability :math:`\min(\mu, 1 - \mu)` after
    thresholding. The gain is the expected decrease of this probability by two more votes :math:`v, v'`,

    .. math:: \min(\mu, 1 - \mu) - \sum_{v, v'} \min\big(\mu\, P(v \mid 1) P(v' \mid 1),\;
        (1 - \mu)\, P(v \mid 0) P(v' \mid 0)\big) .

    Two votes are considered, because one vote often cannot change a decision.

    Parameters
    ----------
    inferred : InferredLabels
        Result of :func:`ccmn.infer_labels`.
    n_votes : int, default=100
        Number of labels that are returned.
    annotator : object or None, default=None
        Name (or number, if annotators have no names) of the annotator who will vote. The gain is then computed with
        the rates of this annotator, and labels on which the annotator has voted are left out. By default, the
        vote of a typical annotator is expected, whose rates are the means of the label.

    Returns
    -------
    DataFrame
        Columns row, label, proba (of a true label) and gain, in descending order of the gain. ``label`` is the number
        of the label; if labels have names, there is also a column name.

    See Also
    --------
    ccmn.infer_labels : Infer the true labels from votes.

    Examples
    --------
    >>> import numpy as np
    >>> import ccmn
    >>> votes = np.repeat(np.arange(40) % 2, 3).reshape(40, 3, 1).astype(float)  # three annotators agree
    >>> votes[4] = [[0], [1], [np.nan]]  # two annotators disagree
    >>> ccmn.next_votes(ccmn.infer_labels(votes), 1).row.tolist()
    [4]
    """
    from pandas import DataFrame

    check_count(n_votes, "n_votes")
    gain = expected_gain(inferred.proba, *_voter_rates(inferred, annotator))
    if annotator is not None:
        done = inferred.votes.annotator == _annotator_number(inferred, annotator)
        gain[inferred.votes.row[done], inferred.votes.label[done]] = -np.inf
    q = gain.shape[1]
    flat = gain.ravel()
    order = np.argsort(-flat, kind="stable")[:n_votes]
    order = order[np.isfinite(flat[order])]
    row, label = order // q, order % q
    frame = DataFrame({"row": row, "label": label, "proba": inferred.proba[row, label], "gain": flat[order]})
    if inferred.votes.label_names is not None:
        frame.insert(2, "name", [inferred.votes.label_names[j] for j in label])
    return frame


def expected_gain(proba: FloatArray, rho_pos: FloatArray, rho_neg: FloatArray) -> FloatArray:
    """Return the expected decrease of the error probabilities (n, q) by two votes with these rates (q,).

    A small multiple of the variance of the label orders labels whose decision two votes cannot change.
    """
    true, absent = (1 - rho_pos, rho_pos), (rho_neg, 1 - rho_neg)
    left = sum(
        np.minimum(proba * true[first] * true[second], (1 - proba) * absent[first] * absent[second])
        for first in (0, 1)
        for second in (0, 1)
    )
    return np.asarray(np.minimum(proba, 1 - proba) - left + TIE_WEIGHT * proba * (1 - proba))


def _annotator_number(inferred: InferredLabels, annotator: Any) -> int:
    """Return the number of an annotator."""
    names = inferred.votes.annotator_names or tuple(range(inferred.votes.shape[1]))
    if annotator not in names:
        raise ValueError(f"annotator must be one of {', '.join(map(repr, names[:5]))} ...; got {annotator!r}")
    return names.index(annotator)


def _voter_rates(inferred: InferredLabels, annotator: Any) -> tuple[FloatArray, FloatArray]:
    """Return the rates (q,) of an annotator, or the mean rates of the votes on each label."""
    if annotator is not None:
        number = _annotator_number(inferred, annotator)
        return inferred.rho_pos[number], inferred.rho_neg[number]
    counts = expected_counts(inferred.votes, inferred.proba)

    def mean(rates: FloatArray, trials: FloatArray) -> NDArray[np.float64]:
        weights = trials + 1e-9  # a label without votes gets the mean of all annotators
        return np.asarray((rates * weights).sum(0) / weights.sum(0))

    return mean(inferred.rho_pos, counts.positives), mean(inferred.rho_neg, counts.negatives)
