"""How do missing labels change metrics of the top five labels?
============================================================

A tagging model shows the five tags with the highest scores. Some true tags are missing in the test labels, with the
same rate for all tags. The figure shows precision, recall and nDCG at k = 5 over this rate: the value on the true
labels, the value on the noisy labels, and the estimate from the noisy labels with known rates.

Result: without correction, all three metrics decrease with the rate although the model does not change. The estimates
agree with the values on the true labels within two standard errors. Precision is unbiased for all rates, recall up to a
rate of 0.5. nDCG is consistent for small rates. Other estimates are approximate.

Run time: about ten seconds. Writes docs/figures/top_k.png.
"""

# sphinx_gallery_thumbnail_path = "figures/top_k.png"

from __future__ import annotations

import numpy as np
from drawing import BLUE, GRAY, ORANGE, arguments, save

from ccmn import CCMNClassifier, metrics
from ccmn.data import make_noisy_multilabel
from ccmn.noise import MissingNoise

N_LABELS, K = 40, 5
METRICS = {"precision_at_k": "precision at 5", "recall_at_k": "recall at 5", "ndcg_at_k": "nDCG at 5"}
COLUMNS = ("rate", "true", "uncorrected", "estimate", "se")


def measure(n_train: int, n_test: int, rates: list[float]) -> list[dict[str, object]]:
    """Return one row per metric and missing rate; the model is trained on labels of which 30 % are missing."""
    prevalence = np.geomspace(0.4, 0.02, N_LABELS)
    noise = MissingNoise(0.3, n_labels=N_LABELS)
    task = make_noisy_multilabel(
        n_train + n_test, 20, N_LABELS, prevalence=prevalence, correlation=0.2, noise=noise, random_state=0
    )
    clf = CCMNClassifier(noise, loss="hamming", surrogate="square", random_state=0)
    clf.fit(task.X[:n_train], task.Y_noisy[:n_train])
    scores, Y = clf.decision_function(task.X[n_train:]), task.Y[n_train:]
    rows = []
    for name in METRICS:
        metric = getattr(metrics, name)
        for rate in rates:
            noise = MissingNoise(rate, n_labels=N_LABELS)
            noisy = noise.corrupt(Y, random_state=1)
            found = metric(noisy, scores, K, noise=noise)
            rows.append(
                {
                    "metric": name,
                    "rate": rate,
                    "true": round(metric(Y, scores, K), 4),
                    "uncorrected": round(metric(noisy, scores, K), 4),
                    "estimate": round(found.value, 4),
                    "se": round(found.se, 4),
                    "status": found.status,
                }
            )
            print("{metric:<16}{rate:>5}{true:>9}{uncorrected:>9}{estimate:>9} +- {se} {status}".format(**rows[-1]))
    return rows


def draw_figure(plt, rows: list[dict[str, object]]):
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), sharey=True, layout="constrained")
    for axis, (name, title) in zip(axes, METRICS.items()):
        points = [row for row in rows if row["metric"] == name]
        column = {key: np.array([float(row[key]) for row in points]) for key in COLUMNS}
        axis.axhline(column["true"][0], color=GRAY, linestyle="--", label="true labels")
        axis.plot(column["rate"], column["uncorrected"], color=ORANGE, marker="s", label="noisy labels")
        error = {"yerr": 2 * column["se"], "capsize": 2}
        axis.errorbar(
            column["rate"], column["estimate"], **error, color=BLUE, marker="o", label="estimate, ± 2 standard errors"
        )
        axis.set(title=title, xlabel="rate of missing labels", ylim=(0, 1))
    axes[0].legend(loc="lower left")
    return figure


def main() -> None:
    options = arguments(__doc__)
    rates = [0.0, 0.4, 0.8] if options.quick else [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
    rows = measure(*((500, 500) if options.quick else (4000, 4000)), rates)
    save(lambda plt: draw_figure(plt, rows), rows, options.out, "top_k")


if __name__ == "__main__":
    main()
