"""A fitted CCMNClassifier as a JSON-safe description; its weights are kept beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ccmn.noise import GroupedNoise, NoiseModel

if TYPE_CHECKING:
    from ccmn.models.classifier import CCMNClassifier


def description_of(clf: CCMNClassifier) -> dict[str, Any]:
    """Everything but the weights; ``ccmn.models.loading`` makes a classifier of it again."""
    scorer = clf._scorer
    return {
        "parameters": {k: _json_safe(v) for k, v in clf.get_params(deep=False).items()},
        "kind": clf._kind,
        "network": scorer.network.kind,
        "classes": clf.classes_.tolist(),
        "label_names": clf.label_names_,
        "feature_names": [str(n) for n in getattr(clf, "feature_names_in_", [])] or None,
        "n_features": int(clf.n_features_in_),
        "noise": clf.noise_.to_dict(),
        "link": scorer.link,
        "has_dummy": scorer.has_dummy,
        "sparse": clf._sparse,
        "slope": scorer.slope,
        "thresholds": scorer.thresholds.tolist(),
        "history": clf._history,
        "selected": clf.selected_,
        "extra": clf.extra_,
    }


def _json_safe(value: Any) -> Any:
    """A parameter as JSON can hold it; a user's own function becomes null, since code is never stored."""
    if isinstance(value, (NoiseModel, GroupedNoise)):
        return value.to_dict()
    if isinstance(value, (np.ndarray, tuple)):
        return [_json_safe(v) for v in value]
    if isinstance(value, np.generic):
        return value.item()
    return value if isinstance(value, (str, int, float, bool, list)) else None
