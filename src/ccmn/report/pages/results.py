"""One self-contained page of results: ours and printed side by side, coloured by difference; nothing is fetched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

import numpy as np

from ccmn.experiments.criteria import GREATER_IS_BETTER
from ccmn.experiments.store import Result
from ccmn.experiments.summary import NEAR, Entry, Summary, is_proposed
from ccmn.report.drawing.critical_difference import critical_difference
from ccmn.report.drawing.lines import Points, colour_key, lines
from ccmn.report.pages.frame import numbers, page, table
from ccmn.report.statements import SELECTIONS, in_words

_INTRODUCTION = (
    "Means over repeats on clean test labels, ± their deviation; below each, the printed mean. Green: better than "
    f"printed, red: worse, full colour at a difference of {2 * NEAR:g}. Bold: best of the column. • / ∘: the best "
    "proposed method is significantly better / worse than this one (paired t-test over the repeats, level 0.05)."
)


def results_page(summaries: Sequence[Summary], results: Sequence[Result]) -> str:
    """The whole page as HTML."""
    body = [f"<p>{_INTRODUCTION}</p>", _overview(summaries)]
    for key in dict.fromkeys((s.table.name, s.protocol) for s in summaries):
        both = [s for s in summaries if (s.table.name, s.protocol) == key]
        ours = [r for r in results if (r.cell.table, r.cell.protocol) == key]
        body += _section(both, ours)
    return page("Results", "The tables, run again", body)


def _overview(summaries: Sequence[Summary]) -> str:
    """A line per table: how often at the printed level, how often unbiased beats plain."""
    head = (
        "table",
        "protocol",
        "selection",
        "at the printed level",
        "unbiased wins / ties / losses",
        "machine, seconds of all cells",
    )
    rows = []
    for s in summaries:
        near, judged = s.near_printed()
        # Values read from a CSV do not say where they were computed.
        machine = f"{', '.join(s.machines)}, {s.seconds:.0f}" if s.seconds else "–"
        figures = (
            s.table.name,
            s.protocol,
            s.selection,
            f"{near} of {judged}",
            " / ".join(map(str, s.wins())),
            machine,
        )
        rows.append(figures)
    return table(head, rows)


def _section(summaries: Sequence[Summary], results: Sequence[Result]) -> Iterator[str]:
    first = summaries[0]
    yield f'<h2 id="{first.table.name}-{first.protocol}">{escape(first.table.title)}, {escape(first.protocol)}</h2>'
    sizes = ", ".join(f"{d} {n}" for d, n in {e.dataset: e.n for e in first.entries}.items())
    yield f'<p class="faint">Rows at hand: {escape(sizes)}.</p>'
    for summary in summaries:
        yield f"<h3>{escape(SELECTIONS[summary.selection].capitalize())}</h3>"
        yield "".join(f"<p>{escape(sentence)}</p>" for sentence in in_words(summary))
        yield from (_results(summary, metric, open_=summary is first) for metric in summary.metrics)
        if summary.ranking is not None:
            yield _ranks(summary)
    yield _curves(first, results)


def _results(summary: Summary, metric: str, *, open_: bool) -> str:
    better = "greater" if GREATER_IS_BETTER[metric] else "smaller"
    head = "".join(f"<th>{escape(d)}</th>" for d in summary.datasets)
    rows = "".join(
        f"<tr><th>{escape(method)}</th>"
        + "".join(_cell(summary.entry(method, dataset, metric)) for dataset in summary.datasets)
        + "</tr>"
        for method in summary.methods
    )
    return (
        f"<details{' open' if open_ else ''}><summary>{escape(metric.replace('_', ' '))} (the {better}, the better)"
        f'</summary><div class="wide"><table><tr><th></th>{head}</tr>{rows}</table></div></details>'
    )


def _cell(entry: Entry | None) -> str:
    if entry is None:
        return '<td class="faint">–</td>'
    mark = {"better": "•", "worse": "∘"}.get(entry.mark, "")
    figure = f"{entry.mean:.3f} ± {entry.std:.3f}{mark}"
    figure = f"<b>{figure}</b>" if entry.best else figure
    if entry.gain is None or entry.printed is None:
        return f"<td>{figure}<small>–</small></td>"
    strength = min(1.0, abs(entry.gain) / (2 * NEAR)) * 0.55
    tone = "good" if entry.gain >= 0 else "bad"
    shade = f"background: hsl(var(--{tone}) / {strength:.2f})"
    return f'<td style="{shade}">{figure}<small>{entry.printed.mean:.3f}</small></td>'


def _ranks(summary: Summary) -> str:
    test = summary.ranking
    assert test is not None
    at = dict(zip(test.methods, test.ranks))
    control = min((m for m in test.methods if is_proposed(m)), key=at.__getitem__, default=test.methods[0])
    text = (
        f"Friedman test over {test.n} (data set, metric) pairs: F = {test.statistic:.2f}, p = {test.p_value:.2g}; "
        f"critical difference (Bonferroni-Dunn, 0.05) {test.critical_difference:.2f}. The bar reaches as far from "
        f"{control} as cannot be told apart from it. Metrics of one data set are not independent: read p with care."
    )
    rows = [(m, f"{r:.3f}") for m, r in sorted(at.items(), key=lambda item: item[1])]
    drawing = critical_difference(test, control, "average ranks and critical difference")
    return (
        f'<details><summary>average ranks</summary><p>{escape(text)}</p><div class="wide">{drawing}</div>'
        f"{numbers(('method', 'average rank'), rows)}</details>"
    )


def _curves(summary: Summary, results: Sequence[Result]) -> str:
    """Learning curves on clean validation labels, mean over repeats, at the learning rates chosen."""
    methods = [m for m in summary.methods if any(r.cell.method == m and r.outcome.get("curves") for r in results)]
    if not methods:
        return ""
    colours = {method: i for i, method in enumerate(methods)}
    drawings = []
    for dataset in summary.datasets:
        for metric in summary.metrics:
            series = {m: _mean_curve(results, m, dataset, metric) for m in methods}
            series = {m: points for m, points in series.items() if points}
            if series:
                title = f"{dataset}, {metric.replace('_', ' ')}"
                drawings.append(lines(series, title, f"learning curves: {title}", colours))
    return (
        f"<details><summary>learning curves (clean validation labels)</summary>{colour_key(colours)}"
        f'<div class="curves">{"".join(drawings)}</div></details>'
    )


def _mean_curve(results: Sequence[Result], method: str, dataset: str, metric: str) -> Points:
    runs = [
        r.outcome["curves"].get(metric, [])
        for r in results
        if (r.cell.method, r.cell.dataset) == (method, dataset) and not r.failed
    ]
    if not runs or not all(runs) or len({len(run) for run in runs}) > 1:
        return []
    epochs = [point[0] for point in runs[0]]
    values = np.mean([[point[1] for point in run] for run in runs], axis=0)
    return [(epoch, float(value)) for epoch, value in zip(epochs, values) if np.isfinite(value)]
