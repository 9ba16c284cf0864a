"""Label noise with separate rates for each group of rows, such as the source or the annotator of a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from typing_extensions import Self

from ccmn._containers import Labels, is_sparse, label_names_of, unwrap
from ccmn._random import RandomState, as_generator
from ccmn._validation import FloatArray, check_groups, check_label_values, check_label_width, check_same_labels
from ccmn.noise.class_conditional import ClassConditionalNoise, debias_labels, flip_labels
from ccmn.noise.noise_model import read_description


class GroupedNoise:
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

    @property
    def rho_pos(self) -> FloatArray:
        """False-negative rates ``P(noisy 0 | true 1)``, a float64 array of shape (groups, q)."""
        return np.stack([model.rho_pos for model in self.models.values()])

    @property
    def rho_neg(self) -> FloatArray:
        """False-positive rates ``P(noisy 1 | true 0)``, a float64 array of shape (groups, q)."""
        return np.stack([model.rho_neg for model in self.models.values()])

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
        if is_sparse(Y):
            return self._corrupt_csr(Y.tocsr(), groups, rng)
        array, rewrap = unwrap(Y)
        return rewrap(flip_labels(array, *self._rates_of_rows(Y, array, groups), rng))

    def _corrupt_csr(self, labels: Any, groups: Sequence[Any], rng: np.random.Generator) -> Any:
        """Corrupt the rows of each group, then restore the order of the rows."""
        index = check_groups(groups, labels.shape[0], self.groups)
        rows = [np.flatnonzero(index == g) for g in range(len(self.models))]
        parts = [model.corrupt(labels[own], rng) for own, model in zip(rows, self.models.values())]
        original_order = np.argsort(np.concatenate(rows))
        return type(labels)(scipy.sparse.vstack(parts, format="csr")[original_order])

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
        if is_sparse(Y_noisy):
            Y_noisy = Y_noisy.toarray()
        is_tensor = isinstance(Y_noisy, torch.Tensor)
        if is_tensor and not Y_noisy.is_floating_point():
            Y_noisy = Y_noisy.to(torch.get_default_dtype())
        array, rewrap = unwrap(Y_noisy)
        rates = self._rates_of_rows(Y_noisy, array, groups)
        dtype = array.dtype if is_tensor or array.dtype == np.float32 else np.float64
        return rewrap(debias_labels(array.astype(np.float64), *rates).astype(dtype))

    def rates_of_rows(self, groups: Sequence[Any], n: int) -> tuple[FloatArray, FloatArray]:
        """Return the rates of the group of each row.

        Parameters
        ----------
        groups : sequence of length n
            Group of each row.
        n : int
            Number of rows.

        Returns
        -------
        rho_pos, rho_neg : arrays of shape (n, q)
            Rates of every row.
        """
        index = check_groups(groups, n, self.groups)
        return self.rho_pos[index], self.rho_neg[index]

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
        rho_pos, rho_neg = self.rates_of_rows(groups, len(groups))
        return ClassConditionalNoise(rho_pos.mean(0), rho_neg.mean(0), label_names=self.label_names)

    def _rates_of_rows(self, labels: Any, array: NDArray[Any], groups: Sequence[Any]) -> tuple[FloatArray, FloatArray]:
        """Check labels, which are also given as an array, and return the rates of every row."""
        check_same_labels(("labels", label_names_of(labels)), ("the noise model", self.label_names))
        rates = self.rates_of_rows(groups, len(array))
        check_label_width(array.shape, self.n_labels)
        check_label_values(array)
        return rates

    def to_dict(self) -> dict[str, Any]:
        """Return a description that can be stored as JSON if the groups can.

        Returns
        -------
        dict
            Keys ``"kind"`` and ``"models"``, a list of ``[group, description]``.
        """
        return {"kind": self.kind, "models": [[key, model.to_dict()] for key, model in self.models.items()]}

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> Self:
        """Return the noise of a description.

        Parameters
        ----------
        d : dict
            Result of ``to_dict``.

        Returns
        -------
        GroupedNoise
            Noise with the models of the description.

        Raises
        ------
        ValueError
            If ``d`` is not a valid description.
        """
        return read_description({cls.kind: cls}, d, cls.__name__)

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
        return f"GroupedNoise({len(self.models)} groups, {self.n_labels} labels)"

    def __str__(self) -> str:
        """Return the mean rates of the first twelve groups."""
        lines = [
            f"  {key}: mean rho_pos {model.rho_pos.mean():.3f}, mean rho_neg {model.rho_neg.mean():.3f}"
            for key, model in list(self.models.items())[:12]
        ]
        return "\n".join([repr(self), *lines, *(["  ..."] if len(self.models) > 12 else [])])
