"""The parameters of CCMNClassifier: which values each may have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ccmn._validation import check_choice, check_count, check_penalty, check_real
from ccmn.losses import CORRECTIONS, LOSSES, SURROGATES
from ccmn.noise import GroupedNoise, NoiseModel
from ccmn.training import NETWORKS, Ranks

if TYPE_CHECKING:
    from ccmn.models.classifier import CCMNClassifier

ESTIMATED_SIDES = {"estimate": "both", "partial": "partial", "missing": "missing"}
"""The words for ``noise``, and the sides whose rates are then estimated."""


def check_ranks(clf: CCMNClassifier, ranks: Ranks) -> None:
    """What several processes cannot do together."""
    if ranks.world > 1 and clf.correction is not None:
        raise ValueError(
            f"correction={clf.correction!r} acts on means over a whole batch, of which each of the {ranks.world} "
            "processes has a share: use correction=None, or one process"
        )
    if ranks.world > 1 and clf.random_state is None:
        raise ValueError("several processes must start alike: give random_state a number")


def check_parameters(clf: CCMNClassifier) -> None:
    """Every parameter that is wrong by itself, before anything is computed."""
    check_choice(clf.loss, "loss", (*LOSSES, "forward", "plugin"))
    check_choice(clf.solver, "solver", ("auto", "adam", "closed_form", "lbfgs"))
    check_choice(clf.threshold, "threshold", ("fixed", "f1"))
    if not callable(clf.model):
        NETWORKS[clf.model]
    if not callable(clf.surrogate):
        SURROGATES[clf.surrogate]
    if clf.correction is not None:
        CORRECTIONS[clf.correction]
        if clf.loss not in LOSSES:
            raise ValueError(f"correction={clf.correction!r} does nothing with loss={clf.loss!r}")
    if isinstance(clf.noise, str):
        check_choice(clf.noise, "noise", tuple(ESTIMATED_SIDES))
    elif clf.noise is not None and not isinstance(clf.noise, (NoiseModel, GroupedNoise)):
        raise TypeError(
            f"noise must be 'estimate', 'partial', 'missing', a noise model or None; got {type(clf.noise).__name__}"
        )
    if clf.flood_level and clf.correction != "flood":
        raise ValueError(f"flood_level={clf.flood_level!r} does nothing without correction='flood'")
    check_count(clf.epochs, "epochs")
    if clf.patience is not None:
        check_count(clf.patience, "patience")
    if clf.batch_size != "auto":
        check_count(clf.batch_size, "batch_size")
    _check_learning_rates(clf.lr)
    check_penalty(clf.weight_decay, "weight_decay")
    check_real(clf.validation_fraction, "validation_fraction", 0, 1)


def _check_learning_rates(lr: object) -> None:
    try:
        rates = np.atleast_1d(np.asarray(lr, dtype=np.float64))
    except (TypeError, ValueError):
        rates = np.empty(0)
    if rates.ndim != 1 or rates.size == 0 or not ((rates > 0) & np.isfinite(rates)).all():
        raise ValueError(f"lr must be a positive number or a list of them; got {lr!r}")
