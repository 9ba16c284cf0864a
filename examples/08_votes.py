"""How many votes per row are enough?
=====================================

Eight annotators of different quality, one of whom votes nearly at random, label three labels of 600 rows; a random part
of their votes is used. The figure shows the share of wrong labels of the majority vote, of the labels that
``infer_labels`` infers from the votes alone, and of those that it infers from votes and features, for one to five votes
per row. Ties of the majority vote count as 0. Bars are standard errors over five draws.

Result: two votes per row with features have fewer errors than the majority of three, three fewer than that of five.

Run time: a minute; ten seconds with --quick. Writes docs/figures/votes.png.
"""

# sphinx_gallery_thumbnail_path = "figures/votes.png"

from __future__ import annotations

import numpy as np
from drawing import BLUE, GRAY, ORANGE, arguments, save

from ccmn import ClassConditionalNoise, infer_labels
from ccmn.data import make_noisy_multilabel

ANNOTATORS = [(0.1, 0.02), (0.1, 0.05), (0.2, 0.05), (0.2, 0.1), (0.3, 0.05), (0.3, 0.1), (0.4, 0.05), (0.5, 0.45)]
"""Shares of missed and of added labels."""
STYLES = {"majority vote": GRAY, "votes": ORANGE, "votes and features": BLUE}


def wrong_labels(n_votes: int, draw: int) -> dict[str, float]:
    """Return the share of wrong labels of every method."""
    task, rng = make_noisy_multilabel(600, 8, 3, strength=6, random_state=draw), np.random.default_rng(draw)
    votes = np.stack(
        [
            np.asarray(ClassConditionalNoise(*rates, n_labels=3).corrupt(task.Y, random_state=rng), dtype=float)
            for rates in ANNOTATORS
        ],
        axis=1,
    )
    votes[rng.random(votes.shape[:2]).argsort(1) >= n_votes] = np.nan
    found = {
        "majority vote": np.nanmean(votes, axis=1) > 0.5,
        "votes": infer_labels(votes).labels,
        "votes and features": infer_labels(votes, task.X).labels,
    }
    return {method: float((labels != task.Y).mean()) for method, labels in found.items()}


def measure(draws: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for n_votes in range(1, 6):
        found = [wrong_labels(n_votes, draw) for draw in range(draws)]
        for method in STYLES:
            values = np.array([shares[method] for shares in found])
            error = values.std(ddof=1) / np.sqrt(draws)
            rows.append({"votes": n_votes, "method": method, "wrong": round(values.mean(), 4), "se": round(error, 4)})
    return rows


def draw_figure(plt, rows: list[dict[str, object]]):
    figure, axis = plt.subplots(figsize=(8.6, 3.4), layout="constrained")
    for method, color in STYLES.items():
        part = [row for row in rows if row["method"] == method]
        x, y, errors = ([row[key] for row in part] for key in ("votes", "wrong", "se"))
        axis.errorbar(x, y, yerr=errors, fmt="o-", color=color, markersize=5, label=method)
    axis.set(xlabel="votes per row", ylabel="share of wrong labels", ylim=(0, None), xticks=range(1, 6))
    axis.legend()
    return figure


def main() -> None:
    options = arguments(__doc__)
    rows = measure(2 if options.quick else 5)
    save(lambda plt: draw_figure(plt, rows), rows, options.out, "votes")


if __name__ == "__main__":
    main()
