"""Is this the description of a model? Every field, before anything is made of it.

Checksums tell that a file is as it was written, not that what was written makes sense.
"""

from __future__ import annotations

import math
from typing import Any

from ccmn.models.parameters import check_parameters
from ccmn.models.probabilities import LINKS
from ccmn.noise import ClassConditionalNoise, NoiseModel

KINDS = ("multilabel", "binary", "multiclass")


def check_description(d: dict[str, Any], noise: NoiseModel) -> None:
    """Refuse what cannot be, naming the field; ``noise`` is what ``d["noise"]`` describes."""
    q = noise.n_labels
    _require(d["kind"] in KINDS, "kind", f"one of {', '.join(KINDS)}", d["kind"])
    _require(_is_count(d["n_features"]), "n_features", "a whole number of at least 1", d["n_features"])
    _check_classes(d["classes"], d["kind"], q)
    _check_names(d["label_names"], q, "label_names")
    _check_names(d["feature_names"], d["n_features"], "feature_names")
    _require(d["link"] in LINKS, "link", f"one of {', '.join(LINKS)}", d["link"])
    if d["link"] == "plugin" and not isinstance(noise, ClassConditionalNoise):
        raise ValueError(f"link 'plugin' needs noise with two rates per label; it is {noise.kind!r}")
    _require(_is_number(d["slope"]) and 0 < d["slope"] < math.inf, "slope", "a number above 0", d["slope"])
    for flag in ("has_dummy", "sparse"):
        _require(isinstance(d[flag], bool), flag, "true or false", d[flag])
    cuts = d["thresholds"]
    fine = isinstance(cuts, list) and len(cuts) == q and all(_is_number(t) and math.isfinite(t) for t in cuts)
    _require(fine, "thresholds", f"a list of {q} numbers", cuts)
    _require(_is_history(d["history"]), "history", "a list of rows of numbers", d["history"])
    _require(d["selected"] is None or isinstance(d["selected"], dict), "selected", "an object or null", d["selected"])
    _require(isinstance(d["extra"], dict), "extra", "an object", d["extra"])


def check_stored_parameters(clf: Any) -> None:
    """The parameters that a file names. Functions of the user's own were stored as null, and are not looked at."""
    model, surrogate = clf.model, clf.surrogate
    try:
        clf.model, clf.surrogate = model or "linear", surrogate or "sigmoid"
        check_parameters(clf)
    finally:
        clf.model, clf.surrogate = model, surrogate


def _check_classes(classes: Any, kind: str, q: int) -> None:
    """What the columns are, or the classes: one for each label, or two (or one alone) for a single label."""
    sizes = (1, 2) if kind == "binary" else (q,)
    plain = isinstance(classes, list) and all(isinstance(c, (str, int, float)) for c in classes)
    fine = plain and len(classes) in sizes and len(set(classes)) == len(classes) and (kind != "binary" or q == 1)
    _require(fine, "classes", f"a list of {' or '.join(map(str, sizes))} names or numbers that differ", classes)


def _check_names(names: Any, total: int, field: str) -> None:
    fine = isinstance(names, list) and len(names) == total and all(isinstance(name, str) for name in names)
    _require(names is None or fine, field, f"a list of {total} names, or null", names)


def _is_history(rows: Any) -> bool:
    return isinstance(rows, list) and all(isinstance(row, dict) and all(map(_is_number, row.values())) for row in rows)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _require(fine: bool, field: str, expected: str, given: Any) -> None:
    if not fine:
        shown = f"{len(given)} entries" if isinstance(given, list) else repr(given)[:60]
        raise ValueError(f"{field} must be {expected}; got {shown}")
