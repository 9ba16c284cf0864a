"""NoiseRates: what an estimation says, with its errors, its assumptions and its doubts; never a bare array."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.special
from numpy.typing import ArrayLike

from ccmn._containers import Labels, label_names_of, to_dense_array
from ccmn._validation import FloatArray, check_joint, check_label_names, check_rate_sums, check_rates
from ccmn.noise import ClassConditionalNoise, MissingNoise, PartialNoise

Side = Literal["both", "partial", "missing"]
"""Which flips can be: both, only added labels (rho_pos = 0), only lost ones (rho_neg = 0)."""

SIDES: tuple[Side, ...] = ("both", "partial", "missing")

NOISE_TYPES: dict[str, Side] = {"estimate": "both", "partial": "partial", "missing": "missing"}
"""Noise type that is estimated for each string value of the parameter ``noise`` of classifiers and audits."""

Kind = Literal["known", "point", "upper bound"]
"""What a number is: given by the user, an estimate of the rate itself, or of the most that the rate can be."""

LEVEL = 0.9
"""Coverage that the intervals aim at."""

Z_LEVEL = math.sqrt(2) * float(scipy.special.erfinv(LEVEL))
"""Standard errors to either side of an interval of that coverage."""

LEAST_SIGNAL = 0.1
"""The signal 1 - rho_pos - rho_neg that is always left (the guard of section 9)."""

WIDE = 0.4
"""Length of an interval from which on a rate is as good as not known."""

UNINFORMED_SE = 12**-0.5
"""Standard deviation of a rate of which nothing is known but that it lies in [0, 1]."""


class Flag(NamedTuple):
    """A doubt about the result.

    ``code`` is for programs ("clipped", "unidentified", ...), ``note`` for people; ``label`` is the index of the
    label it is about, None where it is about all; ``name`` is the name of that label, if it is known.
    """

    code: str
    note: str
    label: int | None = None
    name: str | None = None

    def named(self, names: Sequence[str] | None) -> Flag:
        """Return the flag with the name of its label."""
        return self if names is None or self.label is None else self._replace(name=names[self.label])

    def __str__(self) -> str:
        label = self.label if self.name is None else repr(self.name)
        return f"{'all labels' if self.label is None else f'label {label}'}: {self.note} [{self.code}]"


class Rate(NamedTuple):
    """One rate of one label, with its standard error and interval."""

    value: float
    se: float
    low: float
    high: float


NEVER = Rate(0.0, 0.0, 0.0, 0.0)
"""The rate of a side that was declared not to be."""

UNINFORMED = Rate(0.0, UNINFORMED_SE, 0.0, 1.0)
"""No evidence at all: correct nothing, claim nothing."""


class LabelRates(NamedTuple):
    """What an estimator says of one label."""

    pos: Rate
    neg: Rate
    kind: Kind
    method: str
    notes: tuple[tuple[str, str], ...] = ()
    """(code, note) of every doubt."""


@dataclass(frozen=True, eq=False, repr=False)
class NoiseRates:
    """Estimated noise rates of every label.

    Attributes
    ----------
    rho_pos, rho_neg : float64 (q,)
        P(noisy 0 | true 1) and P(noisy 1 | true 0).
    se_pos, se_neg : float64 (q,)
        Standard errors; exactly 0 on a side that was declared not to be.
    ci_pos, ci_neg : float64 (q, 2)
        Intervals that aim at 90 %.
    prior : float64 (q,)
        P(true 1) that goes with the rates.
    kind : tuple of "known", "point" or "upper bound"
        An upper bound is an estimate of the most that a rate can be: with no row whose label is certain from its
        features, more noise is reported than there is (section 1).
    method : tuple of str
        How each label was estimated.
    sides : tuple of "both", "partial" or "missing"
        What was declared of each label.
    n_pos, n_neg : int64 (q,)
        Observed positives and negatives.
    flags : tuple of Flag
        Doubts, label by label and overall.
    settings : dict
        What the estimation was run with.
    label_names : tuple of str or None
    """

    rho_pos: FloatArray
    rho_neg: FloatArray
    se_pos: FloatArray
    se_neg: FloatArray
    ci_pos: FloatArray
    ci_neg: FloatArray
    prior: FloatArray
    kind: tuple[Kind, ...]
    method: tuple[str, ...]
    sides: tuple[Side, ...]
    n_pos: np.ndarray[Any, np.dtype[np.int64]]
    n_neg: np.ndarray[Any, np.dtype[np.int64]]
    flags: tuple[Flag, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    label_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        rho_pos = check_rates(self.rho_pos, "rho_pos", None)
        q = rho_pos.size
        rho_neg = check_rates(self.rho_neg, "rho_neg", q)
        names = check_label_names(self.label_names, q)
        check_rate_sums(rho_pos, rho_neg, names)
        checked: dict[str, Any] = {"rho_pos": rho_pos, "rho_neg": rho_neg, "label_names": names}
        numbers = ("se_pos", "se_neg", "ci_pos", "ci_neg", "prior")
        checked |= {name: np.array(getattr(self, name), dtype=np.float64) for name in numbers}
        checked |= {name: np.array(getattr(self, name), dtype=np.int64) for name in ("n_pos", "n_neg")}
        checked |= {name: tuple(getattr(self, name)) for name in ("kind", "method", "sides")}
        checked["flags"] = tuple(Flag(*flag[:3]).named(names) for flag in self.flags)
        for name, value in checked.items():
            if name not in ("flags", "label_names") and len(value) != q:
                raise ValueError(f"{name} must have one entry per label ({q}); got {len(value)}")
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
            object.__setattr__(self, name, value)

    @property
    def n_labels(self) -> int:
        """Number of labels, q."""
        return self.rho_pos.size

    @property
    def noise(self) -> ClassConditionalNoise:
        """The noise model with these rates: partial or missing where that was declared of every label."""
        if set(self.sides) == {"partial"}:
            return PartialNoise(self.rho_neg, label_names=self.label_names)
        if set(self.sides) == {"missing"}:
            return MissingNoise(self.rho_pos, label_names=self.label_names)
        return ClassConditionalNoise(self.rho_pos, self.rho_neg, label_names=self.label_names)

    @property
    def cautious_noise(self) -> ClassConditionalNoise:
        """The noise model to train with: it corrects less where both sides are open and rho_neg is hardly known.

        An interval of rho_neg of length w > 0.4 takes the share w / 2 off its rate. Too large a rate of added labels
        takes true ones away, and does more harm than too small a one does good (benchmarks/gap_closed.py).
        """
        width = self.ci_neg[:, 1] - self.ci_neg[:, 0]
        less = (width > WIDE) & np.array([side == "both" for side in self.sides])
        if not less.any():
            return self.noise
        rho_neg = np.where(less, self.rho_neg * (1 - width / 2), self.rho_neg)
        return ClassConditionalNoise(self.rho_pos, rho_neg, label_names=self.label_names)

    @classmethod
    def known(cls, noise: ClassConditionalNoise, Y_noisy: Labels) -> NoiseRates:
        """Rates that the user knows, in the same form as estimated ones; the prior comes from the noisy labels."""
        side: Side = "partial" if isinstance(noise, PartialNoise) else "both"
        side = "missing" if isinstance(noise, MissingNoise) else side
        labels = [
            LabelRates(Rate(p, 0.0, p, p), Rate(m, 0.0, m, m), "known", "known")
            for p, m in zip(noise.rho_pos.tolist(), noise.rho_neg.tolist())
        ]
        Y = to_dense_array(Y_noisy).astype(np.float64)
        names = noise.label_names or label_names_of(Y_noisy)
        return gather(labels, Y, (side,) * len(labels), {}, names)

    @classmethod
    def from_confident_joint(cls, joint: ArrayLike, label_names: Sequence[str] | None = None) -> NoiseRates:
        """Rates from a confident joint per label, (q, 2, 2): observed label, then true label, as cleanlab has it.

        Counts or shares, of the whole data set; ``cleanlab.count.compute_confident_joint(..., multi_label=True)``
        gives such an array.

        >>> NoiseRates.from_confident_joint([[[60, 10], [5, 25]]]).rho_pos.round(3)
        array([0.286])
        """
        counts = check_joint(joint)
        true, observed = counts.sum(1), counts.sum(2)
        shares = counts[:, 0, 1] / true[:, 1], counts[:, 1, 0] / true[:, 0]
        sides = [_shares(share, many) for share, many in zip(shares, (true[:, 1], true[:, 0]))]
        labels = [LabelRates(pos, neg, "point", "confident joint") for pos, neg in zip(*sides)]
        declared: list[Side] = ["both" for _ in labels]
        rates = gather(labels, np.zeros((0, len(labels))), declared, {}, label_names)
        return replace(
            rates, n_pos=observed[:, 1].round(), n_neg=observed[:, 0].round(), prior=true[:, 1] / true.sum(1)
        )

    def labels_with(self, code: str) -> list[int]:
        """Numbers of the labels with a flag of that code."""
        return sorted({flag.label for flag in self.flags if flag.code == code and flag.label is not None})

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe; ``from_dict`` reads it back."""
        result: dict[str, Any] = {}
        for entry in fields(self):
            value = getattr(self, entry.name)
            result[entry.name] = value.tolist() if isinstance(value, np.ndarray) else value
        result |= {name: list(result[name]) for name in ("kind", "method", "sides")}
        result["flags"] = [list(flag[:3]) for flag in self.flags]
        result["settings"] = dict(self.settings)
        result["label_names"] = None if self.label_names is None else list(self.label_names)
        return result

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> NoiseRates:
        """The inverse of ``to_dict``."""
        wanted = {entry.name for entry in fields(cls)}
        given = set(d) if isinstance(d, Mapping) else set()
        if given != wanted:
            wrong = ", ".join(sorted(wanted ^ given)[:5])
            raise ValueError(f"not the description of noise rates: these entries are missing or unknown: {wrong}")
        return cls(**d)

    def __repr__(self) -> str:
        head = f"NoiseRates({self.n_labels} label{'s' if self.n_labels > 1 else ''})"
        names = self.label_names or tuple(str(j) for j in range(self.n_labels))
        shown = range(self.n_labels) if self.n_labels <= 12 else range(10)
        width = max(5, *(len(names[j]) for j in shown))
        lines = [f"  {'label':<{width}}  rho_pos      +-  rho_neg      +-  prior  kind"]
        lines += [
            f"  {names[j]:<{width}}  {self.rho_pos[j]:7.3f}  {self.se_pos[j]:6.3f}  {self.rho_neg[j]:7.3f}  "
            f"{self.se_neg[j]:6.3f}  {self.prior[j]:5.3f}  {self.kind[j]} ({self.method[j]})"
            for j in shown
        ]
        lines += [f"  ... and {self.n_labels - len(shown)} more"] if len(shown) < self.n_labels else []
        lines += [f"  ! {flag}" for flag in self.flags[:5]]
        lines += [f"  ! ... and {len(self.flags) - 5} more flags"] if len(self.flags) > 5 else []
        return "\n".join([head, *lines])


def _shares(values: FloatArray, many: FloatArray) -> list[Rate]:
    """Counted shares with binomial errors; of joints that hold shares and not counts, nothing is known of the error."""
    errors = np.where(many > 1, np.sqrt(values * (1 - values) / np.maximum(many, 1)), UNINFORMED_SE)
    low, high = (np.clip(values + sign * Z_LEVEL * errors, 0, 1) for sign in (-1, 1))
    return [Rate(*map(float, numbers)) for numbers in zip(values, errors, low, high)]


def gather(
    labels: Sequence[LabelRates],
    Y: FloatArray,
    sides: Sequence[Side],
    settings: Mapping[str, Any],
    label_names: Sequence[str] | None,
    flags: Sequence[Flag] = (),
) -> NoiseRates:
    """The result from what was said of each label: guarded, with the prior that follows from rates and labels."""
    guarded = [guard(label) if label.kind != "known" else label for label in labels]
    rho_pos, rho_neg = (np.array([rate.value for rate in side]) for side in zip(*((r.pos, r.neg) for r in guarded)))
    # Soft labels, mean votes, count by what they lean to.
    n_pos, n_neg = (Y > 0.5).sum(0), (Y <= 0.5).sum(0)
    observed = np.nansum(Y, 0) / np.maximum(n_pos + n_neg, 1)
    return NoiseRates(
        rho_pos=rho_pos,
        rho_neg=rho_neg,
        se_pos=np.array([r.pos.se for r in guarded]),
        se_neg=np.array([r.neg.se for r in guarded]),
        ci_pos=np.array([(r.pos.low, r.pos.high) for r in guarded]),
        ci_neg=np.array([(r.neg.low, r.neg.high) for r in guarded]),
        prior=prior_from_rates(observed, rho_pos, rho_neg),
        kind=tuple(r.kind for r in guarded),
        method=tuple(r.method for r in guarded),
        sides=tuple(sides),
        n_pos=n_pos,
        n_neg=n_neg,
        flags=(*(Flag(code, note, j) for j, r in enumerate(guarded) for code, note in r.notes), *flags),
        settings=settings,
        label_names=None if label_names is None else tuple(label_names),
    )


def prior_from_rates(observed: FloatArray, rho_pos: FloatArray, rho_neg: FloatArray) -> FloatArray:
    r"""Clean prevalence from the observed one, section 0; kept in [0, 1].

    .. math:: \pi = \frac{\tilde p - \rho_{neg}}{1 - \rho_{pos} - \rho_{neg}}
    """
    prior: FloatArray = np.clip((observed - rho_neg) / (1 - rho_pos - rho_neg), 0, 1)
    return prior


def guard(label: LabelRates) -> LabelRates:
    """Rates that leave a signal of at least ``LEAST_SIGNAL``: both are scaled down where they do not, with a flag."""
    total, most = label.pos.value + label.neg.value, 1 - LEAST_SIGNAL
    if total <= most:
        return label
    pos, neg = (rate._replace(value=rate.value * most / total) for rate in (label.pos, label.neg))
    note = (
        f"rho_pos + rho_neg came out at {total:.2f} and was scaled down to {most:g}: the label carries next to nothing"
    )
    return label._replace(pos=pos, neg=neg, notes=(*label.notes, ("clipped", note)))
