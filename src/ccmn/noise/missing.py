"""Weak labels: true labels are lost, none is added (learning with missing labels, section 3 of the paper)."""

from __future__ import annotations

from typing import ClassVar

from ccmn.noise.one_sided import OneSidedNoise


class MissingNoise(OneSidedNoise):
    """Missing positives: ``rho_pos = rho``, ``rho_neg = 0``.

    >>> MissingNoise(0.5, n_labels=2).debias([[1, 0]])
    array([[2., 0.]])
    """

    kind: ClassVar[str] = "missing"
    rate: ClassVar[str] = "rho_pos"
    broken_promise: ClassVar[str] = "weak labels must hold no false label"
