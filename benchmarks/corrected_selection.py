"""Compare hyperparameter selection on true, corrected noisy, and uncorrected noisy validation labels.

    python benchmarks/corrected_selection.py           five repeats on yeast, scene, enron, mirflickr (needs CCMN_DATA)
    python benchmarks/corrected_selection.py --quick   two repeats on yeast and scene
    python benchmarks/corrected_selection.py --csv results/corrected_selection.csv    also writes every value

Noise rates follow the moderate protocol (sum of the two rates of a label at most 0.6) and are known. Training labels
are always noisy. The script selects the l2 penalty of a ridge path, and the learning rate and epoch of a linear model
trained with Adam, by Hamming loss or ranking loss on the validation set (l2 also by average precision, which is
approximate on noisy labels). It prints the test value (true labels) of the selected model. The timing compares the
metric of all candidates in one call with the public metric and its standard errors, one candidate at a time.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from harness import compare, parser, report
from torch import Tensor

from ccmn.data import MultiLabelData, load_dataset
from ccmn.losses import HammingLoss
from ccmn.metrics import METRICS, average_precision, ranking_loss
from ccmn.metrics.corrected_metrics import corrected_hamming, pooled_ranking_loss
from ccmn.noise import ClassConditionalNoise
from ccmn.paper.protocols import LEARNING_RATES, MODERATE, Repeat, make_repeat
from ccmn.training import NETWORKS, KeepLast, Objective, Rows, StackedAdam, train
from ccmn.training.batches import Features
from ccmn.training.ridge import l2_path, ridge_path

EPOCHS = 40
VALIDATION = ("clean", "corrected", "noisy")


def dense(X) -> np.ndarray:
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)


def ridge_candidates(data: MultiLabelData, repeat: Repeat) -> tuple[Tensor, Tensor]:
    """Return scores (l2, n, q) of validation and test rows."""
    X = dense(data.X[repeat.train])
    p = np.asarray(repeat.noise.debias(repeat.noisy[repeat.train]), dtype=np.float64)
    path = ridge_path(X, p, l2_path(1e-4, 2 * float((X**2).sum(1).mean()), per_decade=4))
    return tuple(
        torch.from_numpy(np.stack(list(path.scores(dense(data.X[rows]))))) for rows in (repeat.validation, repeat.test)
    )


class EveryEpoch(KeepLast):
    """Selection that records the scores of some rows after every epoch."""

    def __init__(self, features: Features, parts: list[np.ndarray]) -> None:
        self.inputs = [features.gather(torch.as_tensor(rows).unsqueeze(0)) for rows in parts]
        self.scores: list[list[Tensor]] = [[] for _ in parts]

    @torch.no_grad()
    def on_epoch_end(self, epoch, network):
        for inputs, scores in zip(self.inputs, self.scores):
            scores.append(network.outputs(inputs)[0])


def adam_candidates(data: MultiLabelData, repeat: Repeat) -> tuple[Tensor, Tensor]:
    """Return scores (learning rates x epochs, n, q) of validation and test rows."""
    features = Features(data.X)
    network = NETWORKS["linear"](features.d, data.q, [[0] * len(LEARNING_RATES)])
    lr = torch.tensor([LEARNING_RATES])
    kept = EveryEpoch(features, [repeat.validation, repeat.test])
    train(
        network,
        Objective.of(HammingLoss("logistic", repeat.noise)),
        features,
        torch.as_tensor(np.asarray(repeat.noisy)).float(),
        Rows([repeat.train], 100, [0]),
        StackedAdam(network.parameters, lr, torch.full_like(lr, 1e-4)),
        kept,
        epochs=EPOCHS,
    )
    return tuple(torch.cat(scores) for scores in kept.scores)


@dataclass(frozen=True)
class ValidationLabels:
    """Validation labels and the noise that is corrected."""

    Y: np.ndarray
    noise: ClassConditionalNoise

    @property
    def p(self) -> Tensor:
        return torch.from_numpy(np.asarray(self.noise.debias(self.Y)))


def validation_labels(data: MultiLabelData, repeat: Repeat) -> dict[str, ValidationLabels]:
    clean, noisy = dense(data.Y[repeat.validation]), np.asarray(repeat.noisy[repeat.validation], dtype=np.float64)
    none = ClassConditionalNoise(0.0, 0.0, n_labels=data.q)
    return {
        "clean": ValidationLabels(clean, none),
        "corrected": ValidationLabels(noisy, repeat.noise),
        "noisy": ValidationLabels(noisy, none),
    }


CRITERIA: dict[str, Callable[[ValidationLabels, Tensor], Tensor]] = {
    "hamming_loss": lambda labels, scores: corrected_hamming(labels.p, scores >= 0),
    "ranking_loss": lambda labels, scores: pooled_ranking_loss(labels.p, scores),
    "average_precision": lambda labels, scores: torch.tensor(
        [-average_precision(labels.Y, one.double(), noise=labels.noise).value for one in scores]
    ),
}
"""Functions (validation labels, scores of candidates) -> one value per candidate; lower is better."""

SELECTIONS = (
    ("l2", ridge_candidates, ("hamming_loss", "ranking_loss", "average_precision")),
    ("lr and epoch", adam_candidates, ("hamming_loss", "ranking_loss")),
)


def value_on_test_set(metric: str, Y: np.ndarray, scores: Tensor) -> float:
    entry = METRICS[metric]
    return entry.function(Y, (scores >= 0).numpy().astype(int) if entry.needs == "labels" else scores.numpy())


def evaluate(data: MultiLabelData, repeat: Repeat, number: int) -> list[tuple]:
    """Return the test value of the selected model for each hyperparameter, metric and kind of validation labels."""
    labels, Y = validation_labels(data, repeat), dense(data.Y[repeat.test])
    rows = []
    for hyperparameter, candidates, metrics in SELECTIONS:
        validation, test = candidates(data, repeat)
        for metric in metrics:
            for kind, used in labels.items():
                best = int(CRITERIA[metric](used, validation).argmin())
                rows.append((data.name, number, hyperparameter, metric, kind, value_on_test_set(metric, Y, test[best])))
    return rows


def write(path: str, rows: list[tuple]) -> None:
    with open(path, "w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(("dataset", "repeat", "chosen", "metric", "validation", "value"))
        writer.writerows((*row[:-1], f"{row[-1]:.6f}") for row in rows)


def timing(data: MultiLabelData, repeat: Repeat):
    scores, _ = ridge_candidates(data, repeat)
    noisy, noise = repeat.noisy[repeat.validation], repeat.noise
    p = torch.from_numpy(np.asarray(noise.debias(np.asarray(noisy, dtype=np.float64))))
    return compare(
        f"pooled ranking loss of {len(scores)} candidates: {data.name}",
        lambda: pooled_ranking_loss(p, scores),
        "one candidate at a time, with standard errors",
        lambda: [ranking_loss(noisy, one, noise=noise) for one in scores],
        1.0,
    )


def main() -> None:
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--csv", metavar="FILE", help="write every value to this file")
    options = arguments.parse_args()
    rows, results = [], []
    for name in ("yeast", "scene") if options.quick else ("yeast", "scene", "enron", "mirflickr"):
        data = load_dataset(name)
        repeats = [make_repeat(data, MODERATE, k) for k in range(2 if options.quick else 5)]
        for number, repeat in enumerate(repeats):
            rows += evaluate(data, repeat, number)
        results.append(timing(data, repeats[0]))
    if options.csv:
        write(options.csv, rows)
    values_by_case = defaultdict(dict)
    for name, _, hyperparameter, metric, kind, value in rows:
        values_by_case[f"{name}, {hyperparameter}, {metric}"].setdefault(kind, []).append(value)
    notes = {
        case: ", ".join(f"{kind} {np.mean(values[kind]):.4f}" for kind in VALIDATION)
        for case, values in values_by_case.items()
    }
    gaps = [
        np.mean(v["corrected"]) - np.mean(v["clean"]) for k, v in values_by_case.items() if k.endswith("hamming_loss")
    ]
    notes["largest difference between corrected and clean validation, Hamming loss"] = f"{max(gaps):.4f}"
    report(results, notes, options.json)


if __name__ == "__main__":
    main()
