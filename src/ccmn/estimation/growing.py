"""Noise rates again and again, as more rows are trusted: what does not depend on those is worked out once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ccmn._containers import Labels, label_names_of
from ccmn._random import RandomState
from ccmn.estimation.estimate import rates_from, read_evidence, read_trusted
from ccmn.estimation.rates import NoiseRates


class GrowingEstimate:
    """``estimate_noise(X, Y_noisy, sides=sides, trusted=...)`` for the same labels and ever more trusted rows.

    Nearly all of its time goes into models of the noisy labels, in which trusted rows have no part: here they are
    fitted at the first call of :meth:`rates`, and kept. Parameters as of :func:`ccmn.estimate_noise`.

    Examples
    --------
    >>> from ccmn.data import make_noisy_multilabel
    >>> from ccmn.noise import PartialNoise
    >>> task = make_noisy_multilabel(400, 5, 2, strength=8, noise=PartialNoise([0.2, 0.5]), random_state=0)
    >>> growing = GrowingEstimate(task.X, task.Y_noisy, sides="partial")
    >>> before, after = growing.rates(), growing.rates(trusted=(range(100), task.Y[:100]))
    >>> bool(after.se_neg.mean() < before.se_neg.mean())
    True
    """

    def __init__(
        self, X: Any, Y_noisy: Labels, sides: str | Sequence[str] = "both", random_state: RandomState = 0
    ) -> None:
        self._evidence = read_evidence(X, Y_noisy, sides, None, None, random_state, None, None)
        self._names = label_names_of(Y_noisy)

    def rates(self, trusted: tuple[Any, Labels] | None = None) -> NoiseRates:
        """The rates by features, noisy labels and these trusted rows; doubts are in ``flags``, not in warnings."""
        known = None if trusted is None else read_trusted(trusted, *self._evidence.Y.shape)
        _ = self._evidence.surfaces  # fitted here, so that every later call finds them
        return rates_from(self._evidence.trusting(known), "auto", self._names)
