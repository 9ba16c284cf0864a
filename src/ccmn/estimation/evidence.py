"""Evidence: what there is to estimate noise rates from, checked once; scores are worked out when first asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ccmn.estimation.rates import LabelRates, Side
from ccmn.estimation.scores import out_of_fold_scores
from ccmn.estimation.surface import Surfaces, flat_surfaces, label_surfaces
from ccmn.validation import FloatArray


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
