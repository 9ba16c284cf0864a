"""The labels that are most probably wrong, with the rows they were given to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from ccmn._validation import FloatArray
from ccmn.report.facts.instances import Instance, Show

MOST_SHOWN = 24


@dataclass(frozen=True)
class Suspect:
    """A label that is probably wrong."""

    row: int
    label: str
    given: int
    p_wrong: float
    others: tuple[str, ...]
    """All labels given to the row, this one included."""
    instance: Instance
    is_wrong: bool | None
    """Where the true labels are known."""


@dataclass(frozen=True)
class SuspectFacts:
    """The most suspicious of all that were found, the worst first."""

    suspects: tuple[Suspect, ...]
    found: int
    note: str

    @property
    def wrong(self) -> int | None:
        """How many of those shown are wrong, where that is known."""
        verdicts = [suspect.is_wrong for suspect in self.suspects]
        return None if None in verdicts else sum(map(bool, verdicts))


def suspect_facts(
    issues: pd.DataFrame,
    Y: FloatArray,
    names: Sequence[str],
    show: Show,
    note: str,
    *,
    most: int = MOST_SHOWN,
    Y_true: FloatArray | None = None,
) -> SuspectFacts:
    """From what :func:`ccmn.find_label_issues` lists, and what to show of each row."""
    place = {name: j for j, name in enumerate(names)}
    suspects = []
    for line in issues.head(most).to_dict("records"):
        row, label = int(line["row"]), str(line["label"])
        j = place[label]
        others = tuple(name for name, given in zip(names, Y[row]) if given == 1)
        wrong = None if Y_true is None else bool(Y_true[row, j] != line["given"])
        suspects.append(Suspect(row, label, int(line["given"]), float(line["p_wrong"]), others, show(row, j), wrong))
    return SuspectFacts(tuple(suspects), len(issues), note)
