"""Candidate sets: false labels are added, none is lost (partial multi-label learning, section 5 of the paper)."""

from __future__ import annotations

from typing import ClassVar

from ccmn.noise.one_sided import OneSidedNoise


class PartialNoise(OneSidedNoise):
    """Candidate label sets: ``rho_pos = 0``, ``rho_neg = rho``.

    >>> PartialNoise(0.3, n_labels=2).debias([[1, 0]]).round(3)
    array([[ 1.   , -0.429]])
    """

    kind: ClassVar[str] = "partial"
    rate: ClassVar[str] = "rho_neg"
    broken_promise: ClassVar[str] = "candidate sets must hold every true label"
