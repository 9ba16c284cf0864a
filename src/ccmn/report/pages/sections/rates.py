"""Noise rates of every label with their intervals and kind."""

from __future__ import annotations

from html import escape

from ccmn.report.drawing.intervals import Interval, intervals, scale_of
from ccmn.report.facts.rates import LabelRate, RateFact, RateFacts
from ccmn.report.pages.frame import numbers, paragraph, section

_MOST_DRAWN = 60
_KINDS = {
    "known": "known: given, and taken at their word",
    "point": "point: an estimate of the rate itself",
    "upper bound": "upper bound: the rate may be lower, no row says how much",
}


def rates_section(facts: RateFacts) -> str:
    """Two drawings, lost and added; kinds and doubts in words."""
    true = any(label.lost.true is not None for label in facts.labels)
    kinds = dict.fromkeys(label.kind for label in facts.labels)
    text = (
        "How often a true label is lost, and how often a false one is added. "
        + (f"Bars: intervals that aim at {facts.level:.0%}. " if kinds.keys() - {"known"} else "")
        + ("Cross-lines: the true rates, known here because the noise was made. " if true else "")
        + "; ".join(_KINDS.get(kind, kind) for kind in kinds).capitalize()
        + "."
    )
    sides = {
        title: [_interval(label, side) for label in facts.labels[:_MOST_DRAWN]]
        for side, title in (("lost", "true labels lost, rho_pos"), ("added", "false labels added, rho_neg"))
    }
    end = scale_of(value for values in sides.values() for value in values)
    drawn = "".join(intervals(values, end, title, title) for title, values in sides.items())
    rows = [(c.name, *_cells(c.lost, true), *_cells(c.added, true), c.kind, c.method) for c in facts.labels]
    both = [name for side in ("lost", "added") for name in (side, "from", "to", *(("true",) if true else ()))]
    table = numbers(("label", *both, "kind", "method"), rows)
    figures = f'<div class="figures">{drawn}</div>'
    return section("rates", "Noise rates", paragraph(text), figures, _left_out(facts), table, _doubts(facts))


def _interval(label: LabelRate, side: str) -> Interval:
    rate: RateFact = getattr(label, side)
    return Interval(label.name, rate.value, rate.low, rate.high, rate.true)


def _cells(rate: RateFact, true: bool) -> tuple[str, ...]:
    numbers = (rate.value, rate.low, rate.high, *((rate.true,) if true else ()))
    return tuple("" if number is None else f"{number:.3f}" for number in numbers)


def _left_out(facts: RateFacts) -> str:
    rest = len(facts.labels) - _MOST_DRAWN
    return paragraph(f"The other {rest} labels are in the table.", "faint") if rest > 0 else ""


def _doubts(facts: RateFacts) -> str:
    if not facts.doubts:
        return ""
    items = "".join(f"<li>{escape(doubt)}</li>" for doubt in facts.doubts)
    return f"<details><summary>{len(facts.doubts)} doubts about these rates</summary><ul>{items}</ul></details>"
