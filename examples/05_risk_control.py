"""Which recall do thresholds reach that were calibrated on noisy labels?
======================================================================

A threshold is selected so that the recall on the true labels is at least 0.9 with a confidence of 0.9. The calibration
labels have missing labels: 10 % of those that the model predicts best, up to 60 % of those that it predicts worst. The
figure shows the recall on the true labels and the mean number of predicted labels, over many calibration samples.

Result: with debiased labels, more than 90 % of the samples reach the target for every number of rows, and the label
sets are slightly larger than with clean labels. Without noise correction, the threshold converges to a recall below the
target: the labels with the lowest recall are missing most often, so that they count too little.

Run time: about a minute; about five seconds with --quick. Writes docs/figures/risk_control.png.
"""

# sphinx_gallery_thumbnail_path = "figures/risk_control.png"

from __future__ import annotations

import warnings

import numpy as np
from drawing import BLUE, GRAY, ORANGE, arguments, save

from ccmn import CorrectedClassifier, MissingNoise, control_risk
from ccmn.data import load_digit_scenes

TARGET = 0.9
N_TRAIN = 2000
STYLES = {
    "corrected": {"label": "noisy labels, corrected", "color": BLUE, "marker": "o"},
    "uncorrected": {"label": "noisy labels, uncorrected", "color": ORANGE, "marker": "s"},
    "clean": {"label": "clean labels", "color": GRAY, "marker": "", "linestyle": "--"},
}


def make_population(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return true labels and scores of rows that the model was not trained on."""
    data = load_digit_scenes(n + N_TRAIN)
    clf = CorrectedClassifier(noise=None, random_state=0)
    clf.fit(data.X[:N_TRAIN], data.Y[:N_TRAIN])
    return np.asarray(data.Y[N_TRAIN:], dtype=float), clf.predict_proba(data.X[N_TRAIN:])


def make_noise(Y: np.ndarray, scores: np.ndarray) -> MissingNoise:
    """Return rates from 0.1 for the label with the highest recall to 0.6 for that with the lowest."""
    recall = (Y * (scores >= 0.3)).sum(0) / Y.sum(0)
    rates = np.empty(Y.shape[1])
    rates[np.argsort(-recall)] = np.linspace(0.1, 0.6, Y.shape[1])
    return MissingNoise(rates)


def measure(Y: np.ndarray, scores: np.ndarray, sizes: list[int], draws: int) -> list[dict[str, object]]:
    """Return one row per calibration and number of rows."""
    noise, result = make_noise(Y, scores), []
    print(f"{'calibration':<12} {'n':>6} {'median recall':>14} {'missed target':>14} {'labels per row':>15}")
    for n in sizes:
        recalls, counts = ({name: [] for name in STYLES} for _ in range(2))
        for draw in range(draws):
            rng = np.random.default_rng((n, draw))
            rows = rng.integers(len(Y), size=n)
            noisy = noise.corrupt(Y[rows], random_state=rng)
            for name, (labels, model) in {
                "corrected": (noisy, noise),
                "uncorrected": (noisy, None),
                "clean": (Y[rows], None),
            }.items():
                predicted = control_risk(labels, scores[rows], model, "recall", TARGET, 0.9).predict(scores)
                recalls[name].append((Y * predicted).sum() / Y.sum())
                counts[name].append(predicted.sum(1).mean())
        for name in STYLES:
            low, median, high = np.quantile(recalls[name], (0.1, 0.5, 0.9))
            missed, labels = np.mean(np.array(recalls[name]) < TARGET), np.mean(counts[name])
            print(f"{name:<12} {n:6d} {median:14.3f} {missed:14.3f} {labels:15.2f}", flush=True)
            numbers = {"low": low, "median": median, "high": high, "missed": missed, "labels": labels}
            result.append({"calibration": name, "n": n, **{key: round(float(v), 4) for key, v in numbers.items()}})
    return result


def draw_figure(plt, rows: list[dict[str, object]]):
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.6), layout="constrained")
    figure.suptitle("With uncorrected labels, the threshold converges to a recall below the target")
    for name, style in STYLES.items():
        curve = [row for row in rows if row["calibration"] == name]
        n = [row["n"] for row in curve]
        left.plot(n, [row["median"] for row in curve], markersize=4, **style)
        if name != "clean":
            low, high = ([row[end] for row in curve] for end in ("low", "high"))
            left.fill_between(n, low, high, color=style["color"], alpha=0.18, linewidth=0)
        right.plot(n, [row["labels"] for row in curve], markersize=4, **style)
    left.axhline(TARGET, color=GRAY, linewidth=0.8)
    left.set(ylabel="recall on true labels\n(median, 10 % to 90 %)")
    right.set(ylabel="predicted labels per row")
    for axis in (left, right):
        axis.set(xscale="log", xlabel="calibration rows")
        axis.minorticks_off()
        axis.set_xticks(n, labels=map(str, n))
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=len(STYLES))
    return figure


def main() -> None:
    options = arguments(__doc__)
    warnings.simplefilter("ignore")  # small samples cannot guarantee the target; all labels are predicted then
    sizes = [300, 3000] if options.quick else [200, 400, 800, 1600, 3200, 6400]
    rows = measure(*make_population(2000 if options.quick else 6000), sizes, 20 if options.quick else 200)
    save(lambda plt: draw_figure(plt, rows), rows, options.out, "risk_control")


if __name__ == "__main__":
    main()
