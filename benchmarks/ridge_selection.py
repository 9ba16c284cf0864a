"""Selection of l2 on a ridge path: per label or for all labels, by Hamming loss or square risk, true or noisy labels.

    python benchmarks/ridge_selection.py           five repeats on yeast, scene and enron (needs CCMN_DATA)
    python benchmarks/ridge_selection.py --quick   yeast only

Prints the mean Hamming and ranking loss of the selected solutions on the test set. The timing compares one
decomposition for the whole path with one decomposition per l2.
"""

from __future__ import annotations

import numpy as np
from harness import compare, parser, report

from ccmn._containers import to_dense_floats
from ccmn.data import load_dataset
from ccmn.metrics import hamming_loss, ranking_loss
from ccmn.paper.protocols import LITERAL, make_repeat
from ccmn.training.ridge import l2_path, ridge_path


def select_l2(path, X, p) -> dict[str, np.ndarray]:
    """Return the index of the selected l2 of every label under four rules."""
    scores = np.stack(list(path.scores(X)))
    hamming = (p + (1 - 2 * p) * (scores >= 0)).mean(1)
    square = (scores**2 - 2 * scores * (2 * p - 1)).mean(1)
    q = p.shape[1]
    return {
        "one l2, Hamming": np.full(q, hamming.mean(1).argmin()),
        "one l2, square risk": np.full(q, square.mean(1).argmin()),
        "l2 per label, Hamming": hamming.argmin(0),
        "l2 per label, square risk": square.argmin(0),
    }


def main() -> None:
    options = parser(__doc__.splitlines()[0]).parse_args()
    found: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    results = []
    for name in ("yeast",) if options.quick else ("yeast", "scene", "enron"):
        data = load_dataset(name)
        Y = np.asarray(data.Y)
        for repeat in (make_repeat(data, LITERAL, k) for k in range(2 if options.quick else 5)):
            X, X_val, X_test = (
                to_dense_floats(data.X[rows]) for rows in (repeat.train, repeat.validation, repeat.test)
            )
            p = np.asarray(repeat.noise.debias(repeat.noisy), dtype=np.float64)
            l2 = l2_path(1e-4, 2 * float((X**2).sum(1).mean()), per_decade=4)
            path = ridge_path(X, p[repeat.train], l2)
            for labels, target in (("clean", Y.astype(float)), ("noisy", p)):
                for rule, choice in select_l2(path, X_val, target[repeat.validation]).items():
                    W, b = path.solution(choice)
                    scores = X_test @ W + b
                    values = (
                        hamming_loss(Y[repeat.test], (scores >= 0).astype(int)),
                        ranking_loss(Y[repeat.test], scores),
                    )
                    found.setdefault((name, labels, rule), []).append((float(values[0]), float(values[1])))
        results.append(
            compare(
                f"path of {len(l2)} l2: {name}",
                lambda X=X, t=p[repeat.train], l2=l2: ridge_path(X, t, l2),
                "one decomposition per l2",
                lambda X=X, t=p[repeat.train], l2=l2: [ridge_path(X, t, l2[i : i + 1]) for i in range(len(l2))],
                1.0,
            )
        )
    notes = {
        f"{name}, {labels} validation, {rule}": "Hamming {:.4f}, ranking {:.4f}".format(*np.mean(values, 0))
        for (name, labels, rule), values in found.items()
    }
    report(results, notes, options.json)


if __name__ == "__main__":
    main()
