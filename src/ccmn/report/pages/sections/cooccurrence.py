"""Which labels go together."""

from __future__ import annotations

import math

from ccmn._validation import FloatArray
from ccmn.report.drawing.heatmap import heatmap
from ccmn.report.facts.cooccurrence import CooccurrenceFacts
from ccmn.report.pages.frame import numbers, paragraph, section

_TEXT = "Of the rows with the label at the left, the share that have the one at the top, too: the more, the bluer."


def cooccurrence_section(facts: CooccurrenceFacts) -> str:
    """One map of the labels given, one of the true ones where they can be estimated."""
    maps = _map(facts, "as given", facts.given)
    if facts.corrected is not None:
        maps += _map(facts, "corrected for the noise", facts.corrected)
    shown, rest = len(facts.names), facts.left_out
    left_out = f" The {shown} commonest labels are shown; {rest} are left out." if rest else ""
    return section("together", "Labels together", paragraph(_TEXT + left_out), f'<div class="figures">{maps}</div>')


def _map(facts: CooccurrenceFacts, title: str, shares: FloatArray) -> str:
    rows = [(name, *map(_cell, row)) for name, row in zip(facts.names, shares.tolist())]
    drawn = heatmap(facts.names, shares, title, f"co-occurrence, {title}")
    return f"<div>{drawn}{numbers(('', *facts.names), rows, f'numbers, {title}')}</div>"


def _cell(share: float) -> str:
    return f"{share:.2f}" if math.isfinite(share) else "–"
