"""The most suspicious labels, with the rows they were given to."""

from __future__ import annotations

from html import escape

from ccmn.report.drawing.png import data_uri
from ccmn.report.facts.instances import Features, Instance, Picture, Snippet
from ccmn.report.facts.suspects import Suspect, SuspectFacts
from ccmn.report.pages.frame import numbers, paragraph, section

_PIXELS = 160
"""Width of a picture on the page."""

_CERTAIN = 0.999
_MOST_LABELS = 8
"""Labels of a row that a card lists; the table has all."""

_SURE = (
    "Over 99.9% says that the model's score lies beyond what these rates allow: it is as sure as model and rates are."
)


def suspects_section(facts: SuspectFacts) -> str:
    """A card per label, the worst first."""
    if not facts.suspects:
        return section("suspicious", "Suspicious labels", paragraph("No label is probably wrong."))
    text = f"The {len(facts.suspects)} most suspicious of {facts.found:,} listed. {facts.note}"
    text += f" {_SURE}" if facts.suspects[0].p_wrong >= _CERTAIN else ""
    text += f" Of those shown, {facts.wrong} are wrong." if facts.wrong is not None else ""
    cards = "".join(_card(suspect) for suspect in facts.suspects)
    known = facts.suspects[0].is_wrong is not None
    head = ("row", "label", "given", "p_wrong", "labels given to the row", *(("is wrong",) if known else ()))
    table = numbers(head, [_cells(suspect) for suspect in facts.suspects])
    return section("suspicious", "Suspicious labels", paragraph(text), f'<div class="cards">{cards}</div>', table)


def _card(suspect: Suspect) -> str:
    given, likely = ("given", "probably false") if suspect.given else ("not given", "probably missing")
    labels = ", ".join(suspect.others[:_MOST_LABELS]) or "none"
    rest = len(suspect.others) - _MOST_LABELS
    labels += f" and {rest} more" if rest > 0 else ""
    return (
        f'<article class="card">{_instance(suspect.instance)}'
        f"<p><b>{escape(suspect.label)}</b> is {given}, {likely}: <b>{_percent(suspect.p_wrong)}</b>{_verdict(suspect)}"
        f'</p><p class="faint">row {suspect.row}; labels given: {escape(labels)}</p></article>'
    )


def _percent(p: float) -> str:
    """Never a certainty, which no estimate is."""
    return f"{p:.1%}" if p < _CERTAIN else "over 99.9%"


def _verdict(suspect: Suspect) -> str:
    if suspect.is_wrong is None:
        return ""
    kind, word = ("good", "✓ it is wrong") if suspect.is_wrong else ("bad", "✗ it was right")
    return f' <span class="{kind}">{word}</span>'


def _instance(instance: Instance) -> str:
    if isinstance(instance, Picture):
        height, width = instance.pixels.shape[:2]
        return (
            f'<img class="pixels" src="{data_uri(instance.pixels)}" width="{_PIXELS}" '
            f'height="{round(_PIXELS * height / width)}" alt="the picture">'
        )
    if isinstance(instance, Snippet):
        return f"<blockquote>{escape(instance.text)}</blockquote>"
    return _features(instance)


def _features(instance: Features) -> str:
    rows = "".join(
        f"<tr><th>{escape(feature.name)}</th><td>{feature.value:.4g}</td>"
        f"<td>{'for' if feature.tells > 0 else 'against'}</td></tr>"
        for feature in instance.features
    )
    return f'<div class="wide"><table>{rows}</table></div>'


def _cells(suspect: Suspect) -> tuple[str, ...]:
    known = () if suspect.is_wrong is None else ("yes" if suspect.is_wrong else "no",)
    given = str(suspect.given)
    return (str(suspect.row), suspect.label, given, f"{suspect.p_wrong:.4f}", ", ".join(suspect.others) or "–", *known)
