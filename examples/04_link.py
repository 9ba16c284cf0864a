"""What does the equation of the default look like?
================================================

The probability of a noisy label is a logistic curve with a floor and a ceiling: the floor is the added-label rate,
the ceiling is one minus the missing-label rate. The probability of the true label is the logistic curve itself. The
dots are shares of noisy labels in simulated data.

Run time: a second. Writes docs/figures/link.png.
"""

# sphinx_gallery_thumbnail_path = "figures/link.png"

from __future__ import annotations

import numpy as np
from drawing import BLUE, GRAY, ORANGE, arguments, save

from ccmn import ClassConditionalNoise

RHO_POS, RHO_NEG = 0.3, 0.1


def main() -> None:
    options = arguments(__doc__)
    rng = np.random.default_rng(0)
    f = rng.normal(0, 2.5, 4000)
    true = (rng.random(4000) < 1 / (1 + np.exp(-f))).astype(int)
    noisy = ClassConditionalNoise(RHO_POS, RHO_NEG, n_labels=1).corrupt(true[:, None], random_state=1)[:, 0]
    order = np.argsort(f).reshape(20, -1)
    rows = [{"score": f"{f[part].mean():.3f}", "share": f"{noisy[part].mean():.3f}"} for part in order]

    def draw(plt):
        figure, axis = plt.subplots(figsize=(6.6, 3.4), layout="constrained")
        x = np.linspace(-7, 7, 200)
        p = 1 / (1 + np.exp(-x))
        axis.plot(x, p, "--", color=GRAY, label="true label")
        axis.plot(x, RHO_NEG + (1 - RHO_POS - RHO_NEG) * p, color=BLUE, label="noisy label")
        scores, shares = zip(*((float(row["score"]), float(row["share"])) for row in rows))
        axis.plot(scores, shares, "o", color=ORANGE, markersize=4, label="noisy labels, simulated")
        axis.text(-7, RHO_NEG + 0.03, "floor: added-label rate")
        axis.text(7, 1 - RHO_POS - 0.08, "ceiling: 1 - missing-label rate", ha="right")
        axis.set(xlabel="a f(x) + b", ylabel="probability", ylim=(0, 1.02))
        axis.legend(loc="upper left")
        return figure

    save(draw, rows, options.out, "link")


if __name__ == "__main__":
    main()
