"""Beside the row: how far the review has come, the rates as they stand, exporting and training."""

from __future__ import annotations

from html import escape

from ccmn.estimation import NoiseRates
from ccmn.estimation.rates import Rate
from ccmn.review.queue import MOST_ASKED
from ccmn.review.rates import Counted
from ccmn.review.retrain import Retraining
from ccmn.review.session import Session, View

ENOUGH_ROWS = 50
"""Complete rows drawn by lot from which on counted rates tend to be better than what was thought before."""


def progress_panel(session: Session, view: View) -> str:
    """How many rows were answered, and how many of them count."""
    done = view.progress
    return (
        f'<h2>Progress</h2><p id="progress">Answers: <b id="answers">{done["answers"]}</b>, on {done["rows"]} of '
        f"{session.subject.data.n:,} rows. Complete rows drawn by lot, which count for the rates: "
        f'<b id="counted">{done["counted"]}</b>. Everything is saved as you go.</p>'
    )


def training_panel(session: Session, view: View, retraining: Retraining) -> str:
    """The buttons that make something of the answers, and what came of them."""
    position, running = view.item.position, retraining.state == "running"
    off = " disabled" if running else ""
    return (
        '<h2>Use the answers</h2><div class="buttons">'
        f'<form method="post" action="/row/{position}/retrain"><button id="retrain"{off}>Retrain with these</button>'
        f'</form><form method="post" action="/row/{position}/export"><button id="export">Export</button></form></div>'
        f'<p id="training" data-state="{retraining.state}">{_training(session, retraining)}</p>{_few(view)}'
        f'<p class="faint">Exports and models go to <code>{escape(str(session.folder))}</code>.</p>'
    )


def _training(session: Session, retraining: Retraining) -> str:
    if retraining.state == "running":
        return "Training …"
    if retraining.state == "failed":
        return f"Training failed: {escape(retraining.error)}"
    trained = session.trained
    if trained is None:
        return "No model was trained yet."
    gain = ""
    if "test_after" in trained:
        gain = (
            " Wrong labels on clean test rows: "
            f"{trained['test_before']:.1%} without your answers, <b>{trained['test_after']:.1%}</b> with them."
        )
    return (
        f"Trained in {trained['seconds']:.0f} s on all rows, {trained['labels']} of their labels put right or "
        f"confirmed by you; saved as {escape(retraining.path.name)}.{gain} To use it: <code>ccmn predict "
        f"{escape(str(retraining.path))} DATA</code>."
    )


def _few(view: View) -> str:
    if view.progress["counted"] >= ENOUGH_ROWS:
        return ""
    return (
        f'<p class="faint">With fewer than {ENOUGH_ROWS} complete rows drawn by lot the rates are rough: a model '
        "trained now may err more than one trained before anybody looked. Aim at 100.</p>"
    )


def rates_panel(session: Session, view: View) -> str:
    """The rates of every label: counted, with intervals, and those that the queue and the model go by."""
    trained = session.trained
    used = session.before if trained is None else NoiseRates.from_dict(trained["rates"])
    names = session.subject.label_names
    labels = range(len(names)) if len(names) <= MOST_ASKED else sorted(view.item.asked)
    lines = "".join(_line(j, names[j], view.counts[j], used) for j in labels)
    few = "" if len(names) <= MOST_ASKED else f" ({len(labels)} of {len(names)} labels: those of this row)"
    since = "before anybody looked" if trained is None else "at the latest training"
    return (
        f"<h2>Noise rates{few}</h2>"
        '<p class="faint">Counted on complete rows drawn by lot, with 90 % intervals that shrink as you go on; '
        f"“in use”: as estimated {since} (≤: at most).</p>"
        '<div class="wide" tabindex="0"><table><thead><tr><th scope=col rowspan=2>label</th><th scope=colgroup '
        "colspan=3>lost: true, but not given</th><th scope=colgroup colspan=3>added: given, but not true</th></tr><tr>"
        f"{2 * '<th scope=col>in use</th><th scope=col>counted</th><th scope=col>interval</th>'}</tr></thead>"
        f"<tbody>{lines}</tbody></table></div>"
    )


def _line(j: int, name: str, counts: Counted, used: NoiseRates) -> str:
    bound = used.kind[j] == "upper bound"
    sides = (
        _cells(f"pos-{j}", float(used.rho_pos[j]), bound, counts.pos, counts.lost, counts.positives),
        _cells(f"neg-{j}", float(used.rho_neg[j]), bound, counts.neg, counts.added, counts.negatives),
    )
    return f"<tr><th scope=row>{escape(name)}</th>{''.join(sides)}</tr>"


def _cells(key: str, used: float, bound: bool, rate: Rate, k: int, m: int) -> str:
    counted = f"{k} of {m}" if m else "–"
    return (
        f'<td id="used-{key}">{"≤ " if bound else ""}{used:.3f}</td><td id="counted-{key}">{counted}</td>'
        f'<td id="interval-{key}" data-low="{rate.low:.4f}" data-high="{rate.high:.4f}">'
        f"{_bar(rate, used, bool(m))}<small>{rate.low:.2f}–{rate.high:.2f}</small></td>"
    )


def _bar(rate: Rate, used: float, known: bool) -> str:
    """The interval from 0 to 1, the counted rate in it, and the rate in use as a tick; the numbers stand beside it."""
    low, high = 100 * rate.low, 100 * rate.high
    centre = f'<circle cx="{100 * rate.value:.1f}" cy="6" r="3"/>' if known else ""
    return (
        '<svg viewBox="0 0 100 12" width="60" height="12" aria-hidden="true"><path class="track" d="M0 6H100"/>'
        f'<path class="interval" d="M{low:.1f} 6H{high:.1f}"/><path class="used" d="M{100 * used:.1f} 1V11"/>{centre}'
        "</svg>"
    )
