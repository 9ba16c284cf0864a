"""Evidence: what there is to estimate noise rates from, checked once; scores are worked out when first asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ccmn._containers import is_sparse, to_dense_array
from ccmn._validation import FloatArray
from ccmn.estimation.likelihood import Surfaces, flat_surfaces, label_surfaces
from ccmn.estimation.noise_rates import LabelRates, Side
from ccmn.estimation.out_of_fold import out_of_fold_scores

MIN_POSITIVES_WITHOUT_ZERO = 10
"""A label with fewer observed positives may lack an observed 0 by chance, as long as other labels have one."""
MAX_LABELS_NAMED = 5
"""Messages name at most this many labels."""


class Trusted(NamedTuple):
    """Rows whose true labels are known."""

    rows: NDArray[np.intp]
    Y: FloatArray


@dataclass(frozen=True, eq=False)
class Evidence:
    """What every estimator is handed.

    Parameters
    ----------
    Y : float64 (n, q)
        Noisy labels, NaN where not observed.
    sides : q of "both", "partial", "missing"
    X : features, checked, or None
    pred_proba : (n, q) or None
        Held-out probabilities of the noisy labels, by any model.
    trusted : Trusted or None
    annotators : (n, a, q) or None
        Votes of several annotators in {0, 1}, NaN where there is none.
    prevalence : (q,) or None
        Known shares of true positives, NaN where not known.
    seed : int
    """

    Y: FloatArray
    sides: Sequence[Side]
    X: Any = None
    pred_proba: FloatArray | None = None
    trusted: Trusted | None = None
    annotators: FloatArray | None = None
    prevalence: FloatArray | None = None
    seed: int = 0

    @property
    def has_scores(self) -> bool:
        """Is there anything that scores could come from?"""
        return self.X is not None or self.pred_proba is not None

    @property
    def was_fitted(self) -> bool:
        """Were models fitted to the features on the way? Then what they say of the fit costs nothing."""
        return self.X is not None and "surfaces" in vars(self)

    @cached_property
    def scores(self) -> FloatArray:
        """A score per entry from a model that did not see the row: given, or worked out from X (section 2)."""
        if self.pred_proba is not None:
            return self.pred_proba
        self._need_scores()
        return out_of_fold_scores(self.X, self.Y, self.seed)

    @cached_property
    def surfaces(self) -> Surfaces:
        """The held-out likelihood of every label over its grid of rates (section 16); flat where there are no features.

        Probabilities of the noisy labels say nothing of a shape: any of them may be those of true labels.
        """
        self._need_scores()
        if self.X is None:
            unknown = np.full(self.Y.shape[1], np.nan)
            return Surfaces(flat_surfaces(self.Y, self.sides), self.scores, np.arange(len(self.Y)), unknown)
        return label_surfaces(self.X, self.Y, self.sides, self.seed)

    def _need_scores(self) -> None:
        if not self.has_scores:
            raise ValueError(
                "this method needs scores: give the features X, or pred_proba, held-out probabilities of the noisy "
                "labels by a model of your own; with trusted=(rows, Y_true) alone use method='trusted'"
            )

    def trusting(self, trusted: Trusted | None) -> Evidence:
        """The same with other trusted rows; they have no part in what features and noisy labels say, which is kept."""
        found = replace(self, trusted=trusted)
        vars(found).update({name: vars(self)[name] for name in ("scores", "surfaces") if name in vars(self)})
        return found

    def observed(self, label: int) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Scores and noisy labels of the rows where this label was observed."""
        seen = ~np.isnan(self.Y[:, label])
        return self.scores[seen, label], self.Y[seen, label] == 1

    def generator(self, label: int) -> np.random.Generator:
        """Random numbers of this label's own: the same whatever else is estimated, and in whatever order."""
        return np.random.default_rng([self.seed, label])


Estimator = Callable[[Evidence], list[LabelRates]]
"""What stands in ``ESTIMATORS``: evidence in, one ``LabelRates`` per label out."""


def check_zeros_observed(
    Y: Any, only_removed: NDArray[np.bool_], names: Sequence[str] | None, Y_trusted: Any = None
) -> None:
    """Raise an error if NaN stands for "not given" in labels (n, q) from which true labels were removed.

    Without an observed 0 nothing tells when a label is absent, and a classifier predicts it everywhere. The error is
    raised in two cases: the matrix contains 1 and NaN but no 0; or a label in ``only_removed`` (noise that only removes
    true labels) has at least ``MIN_POSITIVES_WITHOUT_ZERO`` observed positives, no observed 0, and NaN in rows in
    which other labels are observed. A label that is 1 wherever rows were labeled is valid. A 0 among the true labels
    of trusted rows counts as observed.
    """
    n, q = Y.shape
    if is_sparse(Y):
        ones, unknown = (np.bincount(Y.indices[which], minlength=q) for which in (Y.data == 1, np.isnan(Y.data)))
        partly_unknown = unknown
    else:
        nan = np.isnan(Y)
        ones, unknown = (Y == 1).sum(0), nan.sum(0)
        partly_unknown = (nan & ~nan.all(1, keepdims=True)).sum(0)
    without_zero = (ones > 0) & (unknown > 0) & (ones + unknown == n)
    no_zero_at_all = bool((ones + unknown == n).all())
    if Y_trusted is not None and without_zero.any():
        known = to_dense_array(Y_trusted)
        without_zero &= ~(known == 0).any(0)
        no_zero_at_all &= not (known == 0).any()
    by_chance = (partly_unknown == 0) | (ones < MIN_POSITIVES_WITHOUT_ZERO)
    labels = np.flatnonzero(without_zero if no_zero_at_all else without_zero & only_removed & ~by_chance)
    if not labels.size:
        return
    shown = ", ".join(repr(names[j]) if names else str(j) for j in labels[:MAX_LABELS_NAMED])
    more = f" and {labels.size - MAX_LABELS_NAMED} more" if labels.size > MAX_LABELS_NAMED else ""
    noun, verb = ("Labels", "have") if labels.size > 1 else ("Label", "has")
    raise ValueError(
        f"{noun} {shown}{more} ({labels.size} of {q}) {verb} observed positives but no observed 0: nothing tells when "
        "a label is absent. Write 0 for 'not given' and NaN only for 'nobody looked'."
    )
