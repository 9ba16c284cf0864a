"""Label noise with separate rates for each group of rows, such as the source or the annotator of a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from typing_extensions import Self

from ccmn._containers import Labels, is_sparse
from ccmn._random import RandomState, as_generator
from ccmn._validation import FloatArray, check_groups
from ccmn.noise.class_conditional import ClassConditionalNoise
from ccmn.noise.noise_model import Described


class GroupedNoise(Described):
    r"""Class-conditional noise with separate rates for each group of rows.

    .. math:: p_{ij} = \frac{\tilde y_{ij} - \rho_{neg,\,g_i j}}{1 - \rho_{pos,\,g_i j} - \rho_{neg,\,g_i j}}

    Each label is debiased on its own, so :math:`E[p \mid y] = y` holds in every row. Rows with verified labels are a
    group with rates of zero. ``corrupt`` and ``debias`` work as in a noise model, with the group of each row as an
    additional argument.

    Parameters
    ----------
    models : mapping from group to ClassConditionalNoise
        Noise model of each group. All models must have the same labels.

    Attributes
    ----------
    models : dict
        Noise model of each group.
    n_labels : int
        Number of labels q.
    label_names : tuple of str or None
        Names of the labels.

    See Also
    --------
    ClassConditionalNoise : Noise with the same rates in all rows.

    Examples
    --------
    >>> import numpy as np
    >>> crowd, expert = ClassConditionalNoise([0.2], [0.1]), ClassConditionalNoise([0.0], [0.0])
    >>> noise = GroupedNoise({"crowd": crowd, "expert": expert})
    >>> noise.debias(np.array([[1], [1]]), ["crowd", "expert"]).round(3)
    array([[1.286],
           [1.   ]])
    """

    kind: ClassVar[str] = "grouped"

    def __init__(self, models: Mapping[Any, ClassConditionalNoise]) -> None:
        if not models:
            raise ValueError("GroupedNoise requires at least one group, {group: ClassConditionalNoise(...)}")
        wrong = next((m for m in models.values() if not isinstance(m, ClassConditionalNoise)), None)
        if wrong is not None:
            raise TypeError(f"Expected a ClassConditionalNoise for each group; got {type(wrong).__name__}")
        labels = {(m.n_labels, m.label_names) for m in models.values()}
        if len(labels) > 1:
            raise ValueError("The noise models of all groups must have the same labels with the same names")
        self.models = dict(models)
        self.n_labels, self.label_names = labels.pop()

    @property
    def groups(self) -> tuple[Any, ...]:
        """Groups, in the order of the rows of ``rho_pos`` and ``rho_neg``."""
        return tuple(self.models)

    def corrupt(self, Y: Labels, groups: Sequence[Any], random_state: RandomState = None) -> Labels:
        """Flip true labels at random, with the rates of the group of each row.

        Parameters
        ----------
        Y : array, Tensor, DataFrame or CSR matrix of shape (n, q)
            True labels 0 or 1. NaN (not observed) stays NaN.
        groups : sequence of length n
            Group of each row.
        random_state : int, Generator or None, default=None
            Source of randomness.

        Returns
        -------
        array, Tensor, DataFrame or CSR matrix of shape (n, q)
            Noisy labels in the container and dtype of ``Y``.
        """
        rng = as_generator(random_state)
        if not is_sparse(Y):
            return self._rates_of_rows(groups, len(Y)).corrupt(Y, rng)
        index = check_groups(groups, Y.shape[0], self.groups)
        rows = [np.flatnonzero(index == g) for g in range(len(self.models))]
        parts = [model.corrupt(Y.tocsr()[own], rng) for own, model in zip(rows, self.models.values())]
        original_order = np.argsort(np.concatenate(rows))
        return type(Y)(scipy.sparse.vstack(parts, format="csr")[original_order])

    def debias(self, Y_noisy: Labels, groups: Sequence[Any]) -> Labels:
        """Return real-valued labels whose expectation given the true labels is the true labels.

        Parameters
        ----------
        Y_noisy : array, Tensor, DataFrame or CSR matrix of shape (n, q)
            Noisy labels 0 or 1. NaN (not observed) stays NaN.
        groups : sequence of length n
            Group of each row.

        Returns
        -------
        array, Tensor or DataFrame of shape (n, q)
            Debiased labels. CSR input gives a dense array.
        """
        n = Y_noisy.shape[0] if is_sparse(Y_noisy) else len(Y_noisy)
        return self._rates_of_rows(groups, n).debias(Y_noisy)

    def mean(self, groups: Sequence[Any]) -> ClassConditionalNoise:
        """Return the noise model of a random row: the rates averaged over the rows.

        Parameters
        ----------
        groups : sequence
            Group of each row.

        Returns
        -------
        ClassConditionalNoise
            Noise model with the mean rates.
        """
        rates = self._rates_of_rows(groups, len(groups))
        return ClassConditionalNoise(rates.rho_pos.mean(0), rates.rho_neg.mean(0), label_names=self.label_names)

    def _rates_of_rows(self, groups: Sequence[Any], n: int) -> _RatesOfRows:
        index = check_groups(groups, n, self.groups)
        rho_pos = np.stack([model.rho_pos for model in self.models.values()])
        rho_neg = np.stack([model.rho_neg for model in self.models.values()])
        return _RatesOfRows(rho_pos[index], rho_neg[index], self.label_names)

    def to_dict(self) -> dict[str, Any]:
        """Return a description that can be stored as JSON if the groups can.

        Returns
        -------
        dict
            Keys ``"kind"`` and ``"models"``, a list of ``[group, description]``.
        """
        return {"kind": self.kind, "models": [[key, model.to_dict()] for key, model in self.models.items()]}

    @classmethod
    def _from_fields(cls, d: dict[str, Any]) -> Self:
        return cls({key: ClassConditionalNoise.from_dict(model) for key, model in d["models"]})

    def __repr__(self) -> str:
        return f"GroupedNoise({len(self.models)} groups, {self.n_labels} labels)"


class _RatesOfRows(ClassConditionalNoise):
    """Class-conditional noise with rates (n, q), for n rows of labels."""

    def __init__(self, rho_pos: FloatArray, rho_neg: FloatArray, label_names: tuple[str, ...] | None) -> None:
        self.rho_pos, self.rho_neg = rho_pos, rho_neg
        self.n_labels, self.label_names = rho_pos.shape[1], label_names
