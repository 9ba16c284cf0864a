"""Names of labels and features."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence, Sized
from typing import Any

_MOST_NAMED = 5


def name_some(labels: Iterable[int], names: Sequence[str] | None, total: int) -> str:
    """Name the labels a message is about: 'labels 3 and 7 (of 14)'.

    >>> name_some([3, 7], None, 14)
    'labels 3 and 7 (of 14)'
    >>> name_some([0], ["sea", "sky"], 2)
    "label 'sea' (of 2)"
    """
    labels = list(labels)
    shown = [repr(names[j]) if names else str(j) for j in labels[:_MOST_NAMED]]
    rest = len(labels) - len(shown)
    if rest:
        listed = f"{', '.join(shown)} and {rest} more"
    elif len(shown) > 1:
        listed = f"{', '.join(shown[:-1])} and {shown[-1]}"
    else:
        listed = shown[0]
    return f"label{'s' if len(labels) > 1 else ''} {listed} (of {total})"


def check_label_names(names: Sequence[Any] | None, n_labels: int) -> tuple[str, ...] | None:
    """Label names as strings, one per label, no name twice."""
    return _check_names(names, n_labels, "label")


def check_feature_names(names: Sequence[Any] | None, n_features: int) -> tuple[str, ...] | None:
    """Feature names as strings, one per feature, no name twice."""
    return _check_names(names, n_features, "feature")


def _check_names(names: Sequence[Any] | None, total: int, what: str) -> tuple[str, ...] | None:
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, Sized) or len(names) != total:
        given = f"{len(names)} names" if isinstance(names, Sized) and not isinstance(names, str) else repr(names)
        raise ValueError(f"{what}_names must give one name per {what} ({total}); got {given}")
    result = tuple(str(name) for name in names)
    if len(set(result)) < total:
        twice = next(name for name, count in Counter(result).items() if count > 1)
        raise ValueError(f"{what}_names must differ; {twice!r} stands there more than once")
    return result


def check_same_labels(first: tuple[str, Sequence[str] | None], second: tuple[str, Sequence[str] | None]) -> None:
    """Two things about labels are about the same ones, in the same order, as far as both know their names."""
    (argument, names), (other, others) = first, second
    if names is None or others is None or tuple(names) == tuple(others):
        return
    same = set(names) == set(others)
    remedy = f"bring them into one order, {argument}[list of names]" if same else "they must be about the same labels"
    raise ValueError(
        f"{argument} is about labels {', '.join(names[:4])} ..., {other} about {', '.join(others[:4])} ...: {remedy}"
    )
