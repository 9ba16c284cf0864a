"""Rates per source: annotators, sites or import batches each with their own class-conditional noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from typing_extensions import Self

from ccmn._containers import Labels, is_sparse, label_names_of, unwrap
from ccmn._random import RandomState, as_generator
from ccmn._validation import FloatArray, check_groups, check_label_values, check_label_width, check_same_labels
from ccmn.noise.class_conditional import ClassConditionalNoise, debias_labels, flip_labels


class GroupedNoise:
    r"""One row of rates per group; every row of the data belongs to one.

    .. math:: p_{ij} = \frac{\tilde y_{ij} - \rho_{neg,\,g_i j}}{1 - \rho_{pos,\,g_i j} - \rho_{neg,\,g_i j}}

    Debiasing works entry by entry, so nothing else changes: E[p | y] = y in every row, whatever its group. Rows known
    to be right are a group with rates of zero.

    Parameters
    ----------
    models : mapping from group to ClassConditionalNoise
        All of the same labels.

    Examples
    --------
    >>> import numpy as np
    >>> crowd, expert = ClassConditionalNoise([0.2], [0.1]), ClassConditionalNoise([0.0], [0.0])
    >>> noise = GroupedNoise({"crowd": crowd, "expert": expert})
    >>> noise.debias(np.array([[1], [1]]), ["crowd", "expert"]).round(3)
    array([[1.286],
           [1.   ]])
    """

    def __init__(self, models: Mapping[Any, ClassConditionalNoise]) -> None:
        if not models:
            raise ValueError("GroupedNoise needs at least one group, {group: ClassConditionalNoise(...)}")
        members = list(models.values())
        wrong = next((m for m in members if not isinstance(m, ClassConditionalNoise)), None)
        if wrong is not None:
            raise TypeError(
                f"every group needs rates per label, ClassConditionalNoise(...); got {type(wrong).__name__}"
            )
        if len({m.n_labels for m in members}) > 1 or len({m.label_names for m in members}) > 1:
            raise ValueError("the groups must be about the same labels, as many and by the same names")
        self.models = dict(models)
        self.n_labels, self.label_names = members[0].n_labels, members[0].label_names

    @property
    def groups(self) -> tuple[Any, ...]:
        """The groups, in the order of the rates."""
        return tuple(self.models)

    @property
    def rho_pos(self) -> FloatArray:
        """P(noisy 0 | true 1), float64 (groups, q)."""
        return np.stack([model.rho_pos for model in self.models.values()])

    @property
    def rho_neg(self) -> FloatArray:
        """P(noisy 1 | true 0), float64 (groups, q)."""
        return np.stack([model.rho_neg for model in self.models.values()])

    def corrupt(self, labels: Labels, groups: Sequence[Any], random_state: RandomState = None) -> Labels:
        """Flip true labels at random, every row as its group says; the container given comes back."""
        if is_sparse(labels):
            return self._corrupt_csr(labels.tocsr(), groups, as_generator(random_state))
        array, rewrap = self._read(labels)
        rho_pos, rho_neg = self.rates_of_rows(groups, len(array))
        return rewrap(flip_labels(array, rho_pos, rho_neg, as_generator(random_state)))

    def _corrupt_csr(self, labels: Any, groups: Sequence[Any], rng: np.random.Generator) -> Any:
        """One group after the other, and the rows back in their order."""
        index = check_groups(groups, labels.shape[0], self.groups)
        rows = [np.flatnonzero(index == g) for g in range(len(self.models))]
        parts = [model.corrupt(labels[own], rng) for own, model in zip(rows, self.models.values())]
        back = np.argsort(np.concatenate(rows))
        return type(labels)(scipy.sparse.vstack(parts, format="csr")[back])

    def debias(self, noisy: Labels, groups: Sequence[Any]) -> Labels:
        """Real-valued labels p with E[p | true labels] = true labels; NaN stays NaN, CSR comes back dense."""
        array, rewrap = self._read(noisy)
        rho_pos, rho_neg = self.rates_of_rows(groups, len(array))
        real = array if array.dtype == np.float32 else array.astype(np.float64)
        return rewrap(debias_labels(real, rho_pos, rho_neg).astype(real.dtype, copy=False))

    def rates_of_rows(self, groups: Sequence[Any], n: int) -> tuple[FloatArray, FloatArray]:
        """(rho_pos, rho_neg), (n, q) each: the rates of every row's group."""
        index = check_groups(groups, n, self.groups)
        return self.rho_pos[index], self.rho_neg[index]

    def mean(self, groups: Sequence[Any]) -> ClassConditionalNoise:
        """The rates of a row taken at random: what the labels as a whole look like."""
        rho_pos, rho_neg = self.rates_of_rows(groups, len(groups))
        return ClassConditionalNoise(rho_pos.mean(0), rho_neg.mean(0), label_names=self.label_names)

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe where the groups are; ``from_dict`` reads it back."""
        models = [[group, model.to_dict()] for group, model in self.models.items()]
        return {"kind": "grouped", "models": models}

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> Self:
        """The inverse of ``to_dict``."""
        if not isinstance(d, dict) or d.get("kind") != "grouped" or "models" not in d:
            raise ValueError(
                "not the description of grouped noise: {'kind': 'grouped', 'models': [[group, noise], ...]}"
            )
        return cls({group: ClassConditionalNoise.from_dict(model) for group, model in d["models"]})

    def _read(self, labels: Labels) -> tuple[NDArray[Any], Any]:
        check_same_labels(("labels", label_names_of(labels)), ("the noise model", self.label_names))
        array, rewrap = unwrap(labels.toarray() if is_sparse(labels) else labels)
        check_label_width(array.shape, self.n_labels)
        check_label_values(array)
        return array, rewrap

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GroupedNoise) and self.models == other.models

    def __hash__(self) -> int:
        return hash(tuple(self.models.items()))

    def __repr__(self) -> str:
        head = f"GroupedNoise({len(self.models)} groups, {self.n_labels} labels)"
        lines = [
            f"  {group}: mean rho_pos {model.rho_pos.mean():.3f}, mean rho_neg {model.rho_neg.mean():.3f}"
            for group, model in list(self.models.items())[:12]
        ]
        return "\n".join([head, *lines, *(["  ..."] if len(self.models) > 12 else [])])
