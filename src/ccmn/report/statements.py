"""What a table of results says, in sentences: where it agrees with the printed one, where not, and why."""

from __future__ import annotations

from collections import Counter

from ccmn.experiments.summary import NEAR, WITHOUT_DOUBT, Summary

REASONS = {
    "slashdot": "slashdot: the public file cannot be the authors'; even a linear model trained on its clean labels "
    "stays far from the printed values.",
    "mirflickr": "mirflickr: 5000 of the 10433 rows are to be had. Where its candidate sets are the real ones, the "
    "labels added depend on the picture, not on the class alone, which no rate per label can correct.",
    "tmc": "tmc: the paper pairs the size of the training file with the cardinality of training and test together; "
    "tables 1 to 3 use the training file, the journal's tables both.",
    "ranking-square": "ranking-square: with weights that may be negative the square of a difference is an indefinite "
    "form, unbounded below; it has to be stopped early, and on some data too early.",
    "literal": "literal: rates drawn as the text says are harsher than those the printed values can come from (the "
    "moderate protocol is at their level), and their spread over repeats is ten times the printed one.",
    "PML": "PML-LRS and fPML are implemented from descriptions, since no program of their authors is public.",
}
"""What is known to set our numbers apart from the printed ones."""

SELECTIONS = {
    "clean": "epoch and learning rate chosen on clean validation labels, as printed",
    "noisy": "epoch and learning rate chosen on noisy validation labels with corrected metrics, as a user could",
}


def headline(summary: Summary) -> str:
    """Which table, protocol and selection this is."""
    return f"{summary.table.title} ({summary.protocol}; {SELECTIONS[summary.selection]})"


def in_words(summary: Summary) -> list[str]:
    """Sentences: agreement with the printed cells, unbiased against plain, what fell short and why."""
    found = []
    near, judged = summary.near_printed()
    if judged:
        found.append(f"{near} of the {judged} proposed cells with a printed value are within {NEAR} of it or better.")
    wins, ties, losses = summary.wins()
    if wins + ties + losses:
        significant = sum(d.significant and d.outcome == "win" for d in summary.duels if d.loss in WITHOUT_DOUBT)
        found.append(
            f"Unbiased against plain ({', '.join(WITHOUT_DOUBT)}): {wins} wins ({significant} significant), {ties} "
            f"ties, {losses} losses."
        )
        wins, ties, losses = summary.wins(("ranking-square",))
        if wins + ties + losses:
            found.append(f"Ranking-square, counted apart: {wins} wins, {ties} ties, {losses} losses.")
    found += _short_of(summary)
    found += [f"{len(summary.failures)} cells failed, the first: {summary.failures[0]}"] if summary.failures else []
    return found


def _short_of(summary: Summary) -> list[str]:
    """Where cells fall short of the printed ones, and the reason known for it."""
    short = [e for e in summary.entries if e.at_level is False]
    if not short:
        return []
    places = Counter(_cause(summary, e.method, e.dataset) for e in short)
    counted = ", ".join(f"{cause or 'elsewhere'} {count}" for cause, count in places.most_common())
    return [
        f"Short of the printed value by more than {NEAR}, all rows: {counted}.",
        *(REASONS[cause] for cause in places if cause in REASONS),
    ]


def _cause(summary: Summary, method: str, dataset: str) -> str:
    if dataset == "slashdot":
        return dataset
    if method.endswith("ranking-square"):
        return "ranking-square"
    if method in ("PMLLRS", "fPML"):
        return "PML"
    if summary.protocol == "literal" and not summary.table.name.startswith("journal"):
        return "literal"
    return dataset if dataset in REASONS else ""
