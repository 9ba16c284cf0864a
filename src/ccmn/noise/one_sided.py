"""What candidate sets and weak labels share: one of the two rates is zero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import Self

from ccmn._containers import Labels, label_names_of
from ccmn.noise.class_conditional import ClassConditionalNoise, count_rates
from ccmn.seeding import RandomState, as_generator
from ccmn.validation import check_count, check_rates, name_some


class OneSidedNoise(ClassConditionalNoise):
    """Labels are only added, or only lost; a subclass says which."""

    rate: ClassVar[str]
    """Which rate is not zero: "rho_pos" or "rho_neg"."""

    broken_promise: ClassVar[str]
    """What it means when pairs show a flip on the other side."""

    def __init__(
        self, rho: ArrayLike, *, n_labels: int | None = None, label_names: Sequence[str] | None = None
    ) -> None:
        names = label_names if label_names is not None else label_names_of(rho)
        # Checked here as well, so that a message speaks of rho, the argument the user typed.
        rates = check_rates(rho, "rho", n_labels)
        zero = np.zeros_like(rates)
        rho_pos, rho_neg = (rates, zero) if self.rate == "rho_pos" else (zero, rates)
        super().__init__(rho_pos, rho_neg, label_names=names)

    @classmethod
    def from_pairs(cls, Y_true: Labels, Y_noisy: Labels) -> Self:
        """Empirical rates; refused when the pairs show a flip on the side that cannot be."""
        rho_pos, rho_neg, names = count_rates(Y_true, Y_noisy)
        rho, other = (rho_pos, rho_neg) if cls.rate == "rho_pos" else (rho_neg, rho_pos)
        if other.any():
            where = name_some(np.flatnonzero(other), names, other.size)
            raise ValueError(
                f"{cls.broken_promise}, but that is not so for {where}; "
                "count both rates with ClassConditionalNoise.from_pairs"
            )
        return cls(rho, label_names=names)

    @classmethod
    def sample(  # type: ignore[override]  # one rate, not two: there is no sum to bound
        cls,
        q: int,
        choices: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6),
        random_state: RandomState = None,
    ) -> Self:
        """The paper's draw for candidate sets: one rate from ``choices``, the same for every label."""
        rates = check_rates(choices, "choices", None)
        return cls(float(as_generator(random_state).choice(rates)), n_labels=check_count(q, "q"))

    @classmethod
    def _from_fields(cls, d: dict[str, Any]) -> Self:
        return cls(d[cls.rate], label_names=d.get("label_names"))
