"""How good is the default classifier, compared with logistic regression?
=======================================================================

The figure shows the difference between ``CorrectedClassifier()`` and one-vs-rest logistic regression (l2 by cross-
validation): without correction, with estimated rates, with the declared kind of noise, and with known rates. All learn
from the same noisy labels and are compared on true labels. Labels of public datasets are clean or get injected noise;
human labels are those of one annotator. Bars are standard errors over datasets.

Run time: seconds; reads results/default.csv, which ``python benchmarks/default.py`` writes. Writes
docs/figures/default.png.
"""

# sphinx_gallery_thumbnail_path = "figures/default.png"

from __future__ import annotations

from pathlib import Path

import pandas as pd
from drawing import BLUE, GRAY, ORANGE, arguments, save

RESULTS = Path(__file__).parents[1] / "results" / "default.csv"
KINDS = {
    "clean": "correct labels",
    "two-sided": "missing and added",
    "missing": "missing only",
    "added": "added only",
    "human": "labels of people",
}
METHODS = {
    "without correction": (GRAY, "o"),
    "default": (BLUE, "o"),
    "declared": (BLUE, "s"),
    "known rates": (ORANGE, "s"),
}
METRICS = {
    "lrap": "average precision\n(higher is better)",
    "hamming_loss": "Hamming loss\n(lower is better)",
}


def measure() -> list[dict[str, object]]:
    """Return mean differences and standard errors over datasets."""
    table = pd.read_csv(RESULTS).query("labels == 'all'")
    means = table.groupby(["kind", "dataset", "method"])[list(METRICS)].mean().unstack("method")
    rows = []
    for metric in METRICS:
        difference = means[metric].sub(means[metric]["logistic regression"], axis=0).groupby("kind")
        for method in [name for name in METHODS if name in difference.obj]:
            for kind in KINDS:
                mean, error = difference[method].mean()[kind], difference[method].sem()[kind]
                rows.append({"metric": metric, "method": method, "kind": kind, "mean": mean, "se": error})
    return [{**row, "mean": round(row["mean"], 4), "se": round(row["se"], 4)} for row in rows]


def draw_figure(plt, rows: list[dict[str, object]]):
    figure, axes = plt.subplots(1, 2, figsize=(8.6, 4.2), layout="constrained", sharey=True)
    figure.suptitle("CorrectedClassifier() minus logistic regression")
    for axis, (metric, title) in zip(axes, METRICS.items()):
        axis.axvline(0, color=GRAY, linewidth=1)
        for offset, method in enumerate(dict.fromkeys(row["method"] for row in rows)):
            color, marker = METHODS[method]
            part = [row for row in rows if (row["metric"], row["method"]) == (metric, method)]
            means, errors = ([row[key] for row in part] for key in ("mean", "se"))
            places = [place + 0.15 * (offset - 2) for place in range(len(part))]
            axis.errorbar(means, places, xerr=errors, fmt=marker, color=color, markersize=4, label=method)
        axis.set_yticks(range(len(KINDS)), labels=KINDS.values())
        axis.set(xlabel=f"difference in {title}")
        axis.locator_params(axis="x", nbins=5)
    axes[0].invert_yaxis()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(METHODS))
    return figure


def main() -> None:
    options = arguments(__doc__)
    rows = measure()
    save(lambda plt: draw_figure(plt, rows), rows, options.out, "default")


if __name__ == "__main__":
    main()
