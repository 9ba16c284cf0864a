"""Noise rates per row, and the base class of noise models whose rates depend on the row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from typing_extensions import Self

from ccmn._validation import check_row_rates
from ccmn.noise.class_conditional import ClassConditionalNoise, RateDebiasing, RateNoise, debias_labels
from ccmn.noise.noise_model import BaseNoise, Debiasing


class RowDebiasing(RateDebiasing):
    """Debiasing map of the labels of given rows, with rates of shape (n, q)."""

    def forward(self, Y_noisy: Tensor) -> Tensor:
        """Return the debiased labels in the dtype of ``Y_noisy``; NaN stays NaN."""
        return debias_labels(Y_noisy.double(), self.rho_pos, self.rho_neg).to(Y_noisy.dtype)


class RowNoise(RateNoise):
    r"""Noise model with separate rates for every label of every row.

    .. math:: p_{ij} = \frac{\tilde y_{ij} - \rho_{neg,\,ij}}{1 - \rho_{pos,\,ij} - \rho_{neg,\,ij}}

    Each label is debiased with its own rates, so :math:`E[p \mid y] = y` holds in every row. The model applies to the
    labels of exactly these rows. ``ScoreDependentNoise.at`` and ``GroupedNoise.at`` return it, for metrics and audits.

    Parameters
    ----------
    rho_pos : array-like of shape (n, q)
        False-negative rates ``P(noisy 0 | true 1)``.
    rho_neg : array-like of shape (n, q)
        False-positive rates ``P(noisy 1 | true 0)``. The two rates of an entry must have a sum below 1.
    label_names : sequence of str, default=None
        Names of the labels.

    Attributes
    ----------
    n_labels : int
        Number of labels q.
    label_names : tuple of str or None
        Names of the labels.

    See Also
    --------
    ScoreDependentNoise : Rates that depend on the predicted probability.
    GroupedNoise : Rates that depend on the source of a row.

    Examples
    --------
    >>> noise = RowNoise([[0.0], [0.5]], [[0.0], [0.1]])
    >>> noise.debias([[1], [1]])
    array([[1.  ],
           [2.25]])
    """

    kind: ClassVar[str] = "rows"

    def __init__(self, rho_pos: ArrayLike, rho_neg: ArrayLike, *, label_names: Sequence[str] | None = None) -> None:
        super().__init__(*check_row_rates(rho_pos, rho_neg), label_names=label_names)

    def debiasing(self) -> Debiasing:
        """Return ``debias`` as a PyTorch module for labels of all rows, which does not check its input.

        Returns
        -------
        Debiasing
            Module with the buffers ``rho_pos`` and ``rho_neg``.
        """
        return RowDebiasing(self._rho_pos, self._rho_neg)

    def _check_labels(self, shape: Any, values: NDArray[Any]) -> None:
        super()._check_labels(shape, values)
        if tuple(shape) != self._rho_pos.shape:
            raise ValueError(
                f"Expected labels of the rows that the rates belong to, {self._rho_pos.shape}; got {shape}"
            )

    def _corrupt_csr(self, labels: Any, rng: np.random.Generator) -> Any:
        # The rates are dense (n, q) arrays, so dense labels are acceptable.
        return type(labels)(self._corrupt_array(labels.toarray(), rng))

    def __repr__(self) -> str:
        """Return one line with the mean rates, for the representation of estimators."""
        n, q = self._rho_pos.shape
        rates = f"mean rho_pos {self._rho_pos.mean():.3f}, mean rho_neg {self._rho_neg.mean():.3f}"
        return f"RowNoise({n} rows, {q} labels, {rates})"


class RowDependentNoise(BaseNoise):
    """Base class of noise that is class-conditional given a condition of the row: its group or its score.

    The attribute ``models`` maps each condition to its noise model. The method ``at`` of a subclass returns the
    ``RowNoise`` of given rows.
    """

    condition: ClassVar[str]
    """Name of the condition in error messages."""

    def __init__(self, models: Mapping[Any, ClassConditionalNoise]) -> None:
        name, condition = type(self).__name__, self.condition
        if not models:
            raise ValueError(f"{name} requires at least one {condition}, {{{condition}: ClassConditionalNoise(...)}}")
        wrong = next((m for m in models.values() if not isinstance(m, ClassConditionalNoise)), None)
        if wrong is not None:
            raise TypeError(f"Expected a ClassConditionalNoise for each {condition}; got {type(wrong).__name__}")
        labels = {(m.n_labels, m.label_names) for m in models.values()}
        if len(labels) > 1:
            raise ValueError(f"The noise models of all {condition}s must have the same labels with the same names")
        self.models = dict(models)
        self.n_labels, self.label_names = labels.pop()

    def to_dict(self) -> dict[str, Any]:
        """Return a description that can be stored as JSON if the keys of ``models`` can.

        Returns
        -------
        dict
            Keys ``"kind"`` and ``"models"``, a list of ``[key, description]``.
        """
        return {"kind": self.kind, "models": [[key, model.to_dict()] for key, model in self.models.items()]}

    @classmethod
    def _from_fields(cls, d: dict[str, Any]) -> Self:
        return cls({key: ClassConditionalNoise.from_dict(model) for key, model in d["models"]})

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same type and models."""
        return type(other) is type(self) and self.models == other.models

    def __hash__(self) -> int:
        """Return a hash of the models."""
        return hash(tuple(self.models.items()))

    def __repr__(self) -> str:
        """Return one line, for the representation of estimators."""
        return f"{type(self).__name__}({len(self.models)} {self.condition}s, {self.n_labels} labels)"

    def __str__(self) -> str:
        """Return the mean rates of the first twelve conditions."""
        lines = [
            f"  {self._title(key)}: mean rho_pos {model.rho_pos.mean():.3f}, mean rho_neg {model.rho_neg.mean():.3f}"
            for key, model in list(self.models.items())[:12]
        ]
        return "\n".join([repr(self), *lines, *(["  ..."] if len(self.models) > 12 else [])])

    def _title(self, key: Any) -> str:
        return str(key)
