"""Tables of results as LaTeX (booktabs), in the form of the paper's."""

from __future__ import annotations

from collections.abc import Sequence

from ccmn.experiments.criteria import GREATER_IS_BETTER
from ccmn.experiments.summary import Entry, Summary
from ccmn.report.statements import headline


def latex_tables(summaries: Sequence[Summary]) -> str:
    """All tables, one ``table*`` each."""
    return "\n".join(_table(summary) for summary in summaries)


def _table(summary: Summary) -> str:
    columns = len(summary.datasets) + 1
    lines = [
        r"\begin{table*}[!htb]",
        r"\centering\tiny",
        rf"\caption{{{_escape(headline(summary))}. Bold: best; $\bullet$/$\circ$: the best proposed method is "
        r"significantly better/worse (paired $t$-test, 0.05).}",
        rf"\begin{{tabular}}{{l{'r' * (columns - 1)}}}",
        r"\toprule",
        " & ".join(["", *map(_escape, summary.datasets)]) + r" \\",
    ]
    for metric in summary.metrics:
        direction = "greater" if GREATER_IS_BETTER[metric] else "smaller"
        title = f"{metric.replace('_', ' ').capitalize()} (the {direction}, the better)"
        lines += [r"\midrule", rf"\multicolumn{{{columns}}}{{l}}{{{title}}} \\", r"\midrule"]
        for method in summary.methods:
            figures = (_figure(summary.entry(method, dataset, metric)) for dataset in summary.datasets)
            lines.append(" & ".join([_escape(method), *figures]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table*}", ""])


def _figure(entry: Entry | None) -> str:
    if entry is None:
        return "--"
    mean, std = (f"{value:.3f}".lstrip("0") for value in (entry.mean, entry.std))
    mark = {"better": r"\bullet", "worse": r"\circ"}.get(entry.mark, "")
    return rf"$\bm{{{mean}}} \pm \bm{{{std}}}{mark}$" if entry.best else rf"${mean} \pm {std}{mark}$"


_SPECIAL = {"\\": r"\textbackslash{}", **{c: f"\\{c}" for c in "&%$#_{}"}}


def _escape(text: str) -> str:
    r"""Text as LaTeX prints it.

    >>> print(_escape("music_style & 50 %"))
    music\_style \& 50 \%
    """
    return "".join(_SPECIAL.get(character, character) for character in text)
