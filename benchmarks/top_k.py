"""Top-k metrics: time and memory for many rows and labels, and accuracy of estimates from noisy labels.

    python benchmarks/top_k.py           1,000,000 rows x 100,000 labels with 100 scores per row; yeast, scene, enron,
                                         mirflickr with five random draws of the noise (needs CCMN_DATA)
    python benchmarks/top_k.py --quick   100,000 rows; yeast and scene with two draws

The baseline of the timing sorts all stored scores of a twentieth of the rows. For the accuracy, ridge models are
trained on noisy labels as in benchmarks/corrected_metrics.py. The test labels have noise of three kinds: rates of the
moderate protocol (missing and added labels), 30 % missing labels and 70 % missing labels. The script prints the mean
absolute difference of the uncorrected precision and of its estimate from the precision on the true labels, for k = 3.
"""

from __future__ import annotations

import resource
import time
from collections import defaultdict

import numpy as np
import scipy.sparse
from corrected_metrics import dense, scores_on_test_set
from harness import Result, compare, parser, report

from ccmn import metrics
from ccmn.data import load_dataset
from ccmn.noise import MissingNoise, propensity_noise
from ccmn.paper.protocols import MODERATE, make_repeat

N_LABELS, SCORES_PER_ROW, LABELS_PER_ROW, K = 100_000, 100, 5, 5
ACCURACY_K = 3
NAMES = ("precision_at_k", "recall_at_k", "ndcg_at_k", "psp_at_k")
WITH_NOISE = ("precision_at_k", "psp_at_k")


def random_rows(n: int, per_row: int, rng: np.random.Generator) -> scipy.sparse.csr_array:
    """Return a CSR matrix of ones with distinct random labels, the same number in each row."""
    step = N_LABELS // per_row
    labels = np.arange(per_row, dtype=np.int32) * step + rng.integers(0, step, (n, per_row), dtype=np.int32)
    indptr = np.arange(0, n * per_row + 1, per_row, dtype=np.int32)
    return scipy.sparse.csr_array((np.ones(labels.size, np.float32), labels.ravel(), indptr), shape=(n, N_LABELS))


def sorted_precision(Y: scipy.sparse.csr_array, S: scipy.sparse.csr_array) -> float:
    """Return the precision by sorting all stored scores."""
    n = S.shape[0]
    row = np.repeat(np.arange(n), np.diff(S.indptr))
    top = S.indices[np.lexsort((-S.data, row))].reshape(n, -1)[:, :K]
    return float(Y[np.repeat(np.arange(n), K), top.ravel()].mean())


def speed(n: int) -> tuple[list[Result], dict[str, object]]:
    """Time one call of each metric on all rows, and precision against the baseline on a twentieth of the rows."""
    rng = np.random.default_rng(0)
    Y, S = random_rows(n, LABELS_PER_ROW, rng), random_rows(n, SCORES_PER_ROW, rng)
    S.data[:] = rng.random(S.data.size, dtype=np.float32)
    noise = propensity_noise(Y.sum(0), n_samples=n)
    notes: dict[str, object] = {}
    for name in NAMES:
        start = time.perf_counter()
        getattr(metrics, name)(Y, S, K, **({"noise": noise} if name in WITH_NOISE else {}))
        notes[f"{name}, {n} x {N_LABELS}, {SCORES_PER_ROW} scores per row: seconds"] = round(
            time.perf_counter() - start, 2
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    notes["peak memory of the process with its data, GB"] = round(peak, 2)
    part = slice(0, n // 20)
    Y, S = Y[part], S[part]
    result = compare(
        f"precision_at_k, {Y.shape[0]} x {N_LABELS}",
        lambda: metrics.precision_at_k(Y, S, K),
        "sorting all stored scores",
        lambda: sorted_precision(Y, S),
        4.0,
    )
    return [result], notes


def accuracy(names: tuple[str, ...], n_repeats: int) -> dict[str, object]:
    """Compare uncorrected values and estimates with the values on the true labels."""
    errors = defaultdict(list)
    for name in names:
        data = load_dataset(name)
        for number in range(n_repeats):
            repeat = make_repeat(data, MODERATE, number)
            scores, Y = scores_on_test_set(data, repeat), dense(data.Y[repeat.test])
            noises = {
                "moderate": repeat.noise,
                **{f"missing {r}": MissingNoise(r, n_labels=data.q) for r in (0.3, 0.7)},
            }
            for kind, noise in noises.items():
                noisy = noise.corrupt(Y, random_state=number)
                true, uncorrected = (metrics.precision_at_k(labels, scores, ACCURACY_K) for labels in (Y, noisy))
                found = metrics.precision_at_k(noisy, scores, ACCURACY_K, noise=noise)
                difference = found.value - true
                errors[f"{name}, {kind}, precision_at_k"].append(
                    (abs(uncorrected - true), abs(difference), difference / found.se, found.status)
                )
    notes: dict[str, object] = {}
    for title, values in errors.items():
        uncorrected, corrected, score = (np.array([v[i] for v in values]) for i in range(3))
        notes[title] = (
            f"{uncorrected.mean():.3f} -> {corrected.mean():.3f}, {np.sqrt((score**2).mean()):.2f} se, "
            f"{'/'.join(sorted({v[3] for v in values}))}"
        )
    return notes


def main() -> None:
    options = parser(__doc__.splitlines()[0]).parse_args()
    results, notes = speed(100_000 if options.quick else 1_000_000)
    if options.quick:
        notes.update(accuracy(("yeast", "scene"), 2))
    else:
        notes.update(accuracy(("yeast", "scene", "enron", "mirflickr"), 5))
    report(results, notes, options.json)


if __name__ == "__main__":
    main()
