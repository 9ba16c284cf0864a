"""Results of noise-rate estimation: rates with standard errors, intervals, assumptions and flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ccmn._containers import Labels, label_names_of, to_dense_array
from ccmn._validation import FloatArray, check_names, check_rate_sums, check_rates
from ccmn.estimation.posterior import CONFIDENCE_LEVEL as CONFIDENCE_LEVEL
from ccmn.estimation.posterior import MIN_ROWS, Flips, RatePosterior
from ccmn.noise import ClassConditionalNoise, GroupedNoise, MissingNoise, PartialNoise
from ccmn.noise.class_conditional import debias_labels

if TYPE_CHECKING:
    from pandas import DataFrame

NoiseType = Literal["both", "partial", "missing"]
"""Errors that can occur: both kinds, only added labels (rho_pos = 0), or only removed labels (rho_neg = 0)."""

NOISE_TYPES: tuple[NoiseType, ...] = ("both", "partial", "missing")
"""Values of the parameter ``noise`` that request an estimate, with the noise type that each of them declares."""

MIN_SIGNAL = 0.1
"""Lower bound of 1 - rho_pos - rho_neg: debiased labels of smaller signal have too large a variance to train with."""

MAX_REPEATED_SHARE = 0.1
"""A larger share of rows that repeat another one is reported."""

MAX_IDENTIFIED_WIDTH = 0.4
"""A rate whose interval is wider than this is poorly identified."""

_NUMBERS = ("se_pos", "se_neg", "ci_pos", "ci_neg", "prior")


class Flag(NamedTuple):
    """Warning that is attached to a result.

    ``code`` is an identifier for programs, such as "few_votes"; ``note`` explains what it means and what to do.
    ``label`` is the index of the label, None for all labels, and ``name`` its name, if known.
    """

    code: str
    note: str
    label: int | None = None
    name: str | None = None

    def __str__(self) -> str:
        """Return the flag as one line: the label, the note and the code."""
        label = self.label if self.name is None else repr(self.name)
        return f"{'all labels' if self.label is None else f'label {label}'}: {self.note} [{self.code}]"


def flag_labels(code: str, labels: NDArray[np.bool_], note: str) -> list[Flag]:
    """Return one flag for each label of a mask (q,)."""
    return [Flag(code, note, j) for j in np.flatnonzero(labels).tolist()]


def name_flags(flags: Sequence[Flag], names: Sequence[str] | None) -> tuple[Flag, ...]:
    """Return the flags with the names of their labels."""
    return tuple(f if names is None or f.label is None else f._replace(name=names[f.label]) for f in flags)


@dataclass(frozen=True, eq=False, repr=False)
class NoiseRates:
    """Estimated noise rates of every label.

    Parameters
    ----------
    rho_pos, rho_neg : array of shape (q,)
        False-negative rates P(noisy 0 | true 1) and false-positive rates P(noisy 1 | true 0).
    se_pos, se_neg : array of shape (q,)
        Standard errors; exactly 0 for a rate that the declared noise type excludes.
    ci_pos, ci_neg : array of shape (q, 2)
        Intervals with nominal coverage of 90 %.
    prior : array of shape (q,)
        Prevalence P(true 1) that follows from the rates and the noisy labels.
    noise_type : tuple of {"both", "partial", "missing"}
        Declared noise type of each label.
    n_pos, n_neg : int array of shape (q,)
        Numbers of observed positives and negatives.
    flags : tuple of Flag, default=()
        Warnings about single labels (``flag.label`` is set) and about the whole result.
    label_names : tuple of str or None, default=None
        Names of the labels.

    See Also
    --------
    ccmn.estimate_noise : Estimate noise rates from noisy labels.

    Examples
    --------
    >>> from ccmn.data import make_noisy_multilabel
    >>> from ccmn.estimation import NoiseRates
    >>> from ccmn.noise import PartialNoise
    >>> task = make_noisy_multilabel(100, 5, 2, noise=PartialNoise([0.2, 0.5]), random_state=0)
    >>> rates = NoiseRates.known(task.noise, task.Y_noisy)
    >>> rates.rho_neg, rates.noise_type
    (array([0.2, 0.5]), ('partial', 'partial'))
    """

    rho_pos: FloatArray
    rho_neg: FloatArray
    se_pos: FloatArray
    se_neg: FloatArray
    ci_pos: FloatArray
    ci_neg: FloatArray
    prior: FloatArray
    noise_type: tuple[NoiseType, ...]
    n_pos: np.ndarray[Any, np.dtype[np.int64]]
    n_neg: np.ndarray[Any, np.dtype[np.int64]]
    flags: tuple[Flag, ...] = ()
    label_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Check all fields, copy the arrays and make them read-only."""
        rho_pos = check_rates(self.rho_pos, "rho_pos", None)
        q = rho_pos.size
        rho_neg = check_rates(self.rho_neg, "rho_neg", q)
        names = check_names(self.label_names, q)
        check_rate_sums(rho_pos, rho_neg, names)
        checked: dict[str, Any] = {"rho_pos": rho_pos, "rho_neg": rho_neg, "label_names": names}
        checked |= {name: np.array(getattr(self, name), dtype=np.float64) for name in _NUMBERS}
        checked |= {name: np.array(getattr(self, name), dtype=np.int64) for name in ("n_pos", "n_neg")}
        checked["noise_type"] = tuple(self.noise_type)
        checked["flags"] = name_flags([Flag(*flag[:3]) for flag in self.flags], names)
        for name, value in checked.items():
            shape = (q, 2) if name in ("ci_pos", "ci_neg") else (q,)
            if name not in ("flags", "label_names") and np.shape(value) != shape:
                raise ValueError(f"{name} must have one entry per label, shape {shape}; got {np.shape(value)}")
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
            object.__setattr__(self, name, value)

    @property
    def n_labels(self) -> int:
        """Number of labels, q."""
        return self.rho_pos.size

    @property
    def noise(self) -> ClassConditionalNoise:
        """Noise model with these rates.

        A ``PartialNoise`` or ``MissingNoise`` if that noise type was declared for every label.
        """
        if set(self.noise_type) == {"partial"}:
            return PartialNoise(self.rho_neg, label_names=self.label_names)
        if set(self.noise_type) == {"missing"}:
            return MissingNoise(self.rho_pos, label_names=self.label_names)
        return ClassConditionalNoise(self.rho_pos, self.rho_neg, label_names=self.label_names)

    @classmethod
    def known(cls, noise: ClassConditionalNoise, Y_noisy: Labels) -> NoiseRates:
        """Return known rates in the form of an estimate.

        Parameters
        ----------
        noise : ClassConditionalNoise
            Noise model with the known rates.
        Y_noisy : labels of shape (n, q)
            Noisy labels, from which the prevalence is computed.

        Returns
        -------
        NoiseRates
            The rates, with standard errors of zero.
        """
        Y, q = to_dense_array(Y_noisy).astype(np.float64), noise.n_labels
        declared: NoiseType = "partial" if isinstance(noise, PartialNoise) else "both"
        return cls(
            rho_pos=noise.rho_pos,
            rho_neg=noise.rho_neg,
            se_pos=np.zeros(q),
            se_neg=np.zeros(q),
            ci_pos=np.stack([noise.rho_pos] * 2, 1),
            ci_neg=np.stack([noise.rho_neg] * 2, 1),
            prior=implied_prevalence(Y, noise.rho_pos, noise.rho_neg),
            noise_type=("missing" if isinstance(noise, MissingNoise) else declared,) * q,
            n_pos=(Y > 0.5).sum(0),
            n_neg=(Y <= 0.5).sum(0),
            label_names=noise.label_names or label_names_of(Y_noisy),
        )

    def to_frame(self) -> DataFrame:
        """Return the rates as a table with one row per label.

        Returns
        -------
        DataFrame
            Rates, standard errors, limits of the 90 % intervals, prevalence and codes of the flags.
        """
        from pandas import DataFrame

        columns: dict[str, Any] = {}
        for side in ("pos", "neg"):
            low, high = getattr(self, f"ci_{side}").T
            columns |= {f"rho_{side}": getattr(self, f"rho_{side}"), f"se_{side}": getattr(self, f"se_{side}")}
            columns |= {f"low_{side}": low, f"high_{side}": high}
        codes = [", ".join(flag.code for flag in self.flags if flag.label == j) for j in range(self.n_labels)]
        return DataFrame({**columns, "prior": self.prior, "flags": codes}, index=self.label_names)

    def plot(self, ax: Any = None) -> Any:
        """Draw the rates with their 90 % intervals, which hold if errors depend only on the label.

        Parameters
        ----------
        ax : matplotlib Axes or None, default=None
            Axes to draw on; new ones with None.

        Returns
        -------
        matplotlib Axes
            The axes.
        """
        if ax is None:
            from matplotlib import pyplot

            ax = pyplot.subplots(figsize=(6, 1 + 0.4 * self.n_labels), layout="constrained")[1]
        position = np.arange(self.n_labels)
        for side, text, shift in (("pos", "missing (rho_pos)", -0.12), ("neg", "added (rho_neg)", 0.12)):
            rate, (low, high) = getattr(self, f"rho_{side}"), getattr(self, f"ci_{side}").T
            error = np.maximum([rate - low, high - rate], 0)
            ax.errorbar(rate, position + shift, xerr=error, fmt="o", label=text)
        ax.set(xlim=(-0.02, 1.02), xlabel="rate, 90 % interval if errors depend only on the label")
        ax.set_yticks(position, self.label_names or position)
        ax.invert_yaxis()
        ax.legend()
        return ax

    def _repr_html_(self) -> str:
        columns = self.to_frame().drop(columns=["se_pos", "se_neg"])
        note = "<p>The 90 % intervals (low, high) hold if errors depend only on the label.</p>"
        return str(columns.to_html(float_format="{:.2f}".format)) + note

    def labels_with(self, code: str) -> list[int]:
        """Return the indices of the labels that have a flag.

        Parameters
        ----------
        code : str
            Code of the flag.

        Returns
        -------
        list of int
            Indices in ascending order.
        """
        return sorted({flag.label for flag in self.flags if flag.code == code and flag.label is not None})

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable description that :meth:`from_dict` reads.

        Returns
        -------
        dict
            One entry per field.
        """
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        values["flags"] = [list(flag[:3]) for flag in self.flags]
        return {
            name: value.tolist()
            if isinstance(value, np.ndarray)
            else list(value)
            if isinstance(value, tuple)
            else value
            for name, value in values.items()
        }

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> NoiseRates:
        """Return the rates of a description written by :meth:`to_dict`.

        Parameters
        ----------
        d : mapping
            The description.

        Returns
        -------
        NoiseRates
            The rates.

        Raises
        ------
        ValueError
            If entries are missing or unknown, or if a value is invalid.
        """
        entries = dict(d) if isinstance(d, Mapping) else {}
        wrong = sorted({entry.name for entry in fields(cls)} ^ set(entries))
        if wrong:
            listed = ", ".join(map(str, wrong[:5]))
            raise ValueError(f"not a description of noise rates; missing or unknown entries: {listed}")
        return cls(**entries)

    def __repr__(self) -> str:
        """Return a table of the rates, followed by the first flags."""
        columns = self.to_frame().drop(columns=[f"{end}_{side}" for end in ("low", "high") for side in ("pos", "neg")])
        lines = [f"NoiseRates({self.n_labels} label{'s' if self.n_labels > 1 else ''})"]
        lines.append(columns.drop(columns="flags").to_string(max_rows=12, float_format="{:.3f}".format))
        lines += [f"! {flag}" for flag in self.flags[:5]]
        lines += [f"! ... and {len(self.flags) - 5} more flags"] if len(self.flags) > 5 else []
        return "\n".join(lines)


@dataclass(frozen=True)
class GroupRates:
    """Estimated noise rates of every group of rows, in the order of their first row."""

    rates: dict[Any, NoiseRates]

    @property
    def noise(self) -> GroupedNoise:
        """Noise model with these rates; it debiases each row with the rates of its group."""
        models = {group: rates.noise for group, rates in self.rates.items()}
        # Groups may differ in their noise type.
        return GroupedNoise(
            {g: ClassConditionalNoise(m.rho_pos, m.rho_neg, label_names=m.label_names) for g, m in models.items()}
        )


def rates_from_posterior(
    posterior: RatePosterior,
    Y: FloatArray,
    noise_type: Sequence[NoiseType],
    names: Sequence[str] | None,
    flips: Flips | None = None,
    *,
    repeated: float = 0.0,
    probabilities_only: bool = False,
) -> NoiseRates:
    """Return the means and intervals of a posterior distribution, with flags for labels whose rates are not known."""
    types, verified = np.array(noise_type), np.zeros(Y.shape[1])
    flags: list[Flag] = []
    if flips is not None:
        verified = flips.positives + flips.negatives
        for excluded, what, counts in (("partial", "removed", flips.removed), ("missing", "added", flips.added)):
            note = f"noise_type={excluded!r} declares that no label was {what}, but some were on the trusted rows. "
            contradicted = (types == excluded) & (counts > 0)
            note += "Use noise_type='both' for this label."
            flags += flag_labels("noise_type_contradicted", contradicted, note)
    few = ((~np.isnan(Y)).sum(0) < MIN_ROWS) & (verified == 0)
    note = f"Fewer than {MIN_ROWS} observed rows: no rates are estimated. Use more rows or known rates."
    flags += flag_labels("few_rows", few, note)
    note = "The features do not predict this label; its rates are unknown. Pass trusted rows or better features."
    flags += flag_labels("unpredicted", ~posterior.predictable & ~few, note)
    width = np.maximum(np.ptp(posterior.ci_pos, axis=1), np.ptp(posterior.ci_neg, axis=1))
    note = f"A 90 % interval is wider than {MAX_IDENTIFIED_WIDTH:g}. Pass trusted rows or declare the noise type."
    flags += flag_labels("wide_interval", posterior.predictable & (width > MAX_IDENTIFIED_WIDTH), note)
    if probabilities_only and not verified.any():
        note = "Probabilities of the noisy labels alone hardly identify the rates. Pass features or trusted rows."
        flags.append(Flag("probabilities_only", note))
    if repeated > MAX_REPEATED_SHARE:
        note = f"{repeated:.0%} of the rows repeat another row and are counted once: intervals assume independent rows."
        flags.append(Flag("repeated_rows", note))
    return NoiseRates(
        **{name: getattr(posterior, name) for name in ("rho_pos", "rho_neg", *_NUMBERS)},
        noise_type=tuple(noise_type),
        n_pos=(Y > 0.5).sum(0),
        n_neg=(Y <= 0.5).sum(0),
        flags=tuple(flags),
        label_names=None if names is None else tuple(names),
    )


def implied_prevalence(Y: FloatArray, rho_pos: FloatArray, rho_neg: FloatArray) -> FloatArray:
    r"""Return the prevalence of the true labels that rates and noisy labels (n, q) imply, limited to [0, 1].

    .. math:: \pi = \frac{o - \rho_{neg}}{1 - \rho_{pos} - \rho_{neg}}
    """
    observed = np.nansum(Y, 0) / np.maximum((~np.isnan(Y)).sum(0), 1)
    return np.asarray(np.clip(debias_labels(observed, rho_pos, rho_neg), 0, 1))
