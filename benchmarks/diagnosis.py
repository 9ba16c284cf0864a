"""Measure false alarms and power of the tests of the noise model that need no trusted rows.

    python benchmarks/diagnosis.py            eight draws of nine kinds of noise on seven datasets (needs CCMN_DATA)
    python benchmarks/diagnosis.py --quick    two draws on two datasets
    python benchmarks/diagnosis.py --csv results/diagnosis.csv    resumes from this file and writes every fit to it

Each draw takes 70 % of the rows of a dataset at random (at most 15,000) and injects one kind of noise of
``harness.py``. The flag "confused_labels" under confusions counts as power; any flag on clean labels and under
class-conditional noise counts as a false alarm. The limits were selected on other draws of yeast, enron and tmc. On
"synthetic", labels are independent given the features.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from harness import CLASS_CONDITIONAL, KINDS, VIOLATIONS, inject, parser

from ccmn import diagnose_noise
from ccmn._containers import to_dense_array
from ccmn.data import load_dataset, make_noisy_multilabel

DATASETS = ("yeast", "enron", "tmc", "slashdot", "mirflickr", "synthetic", "scene")
LARGE = 20_000
"""Rows x labels from which on power is claimed; scene is below."""
MAX_ROWS = 15_000
FIRST_DRAW = 20
"""First seed of the reported draws; the limits of the tests were selected on draws 0 to 14."""


def make_data(name: str, draw: int) -> tuple[object, np.ndarray, np.random.Generator]:
    """Return features and true labels of a random subset of the rows, and the generator of the noise."""
    rng = np.random.default_rng([draw, sum(map(ord, name))])
    if name == "synthetic":
        task = make_noisy_multilabel(3000, 20, 10, strength=4.0, random_state=draw)
        return task.X, np.asarray(task.Y).astype(int), rng
    data = load_dataset(name)
    Y = to_dense_array(data.Y).astype(int)
    rows = np.sort(rng.permutation(len(Y))[: min(int(0.7 * len(Y)), MAX_ROWS)])
    return data.X[rows], Y[rows], rng


def evaluate(name: str, kind: str, draw: int) -> dict[str, object]:
    """Return the flags of one fit, and whether each declared noise type is contradicted."""
    X, Y, rng = make_data(name, draw)
    noisy = inject(kind, X, Y, rng).astype(np.float64)
    n, q = noisy.shape
    flags = sorted({flag.code for flag in diagnose_noise(X, noisy, random_state=draw).flags})
    return {"dataset": name, "n": n, "q": q, "kind": kind, "draw": draw, "flags": " ".join(flags)}


def share(values: pd.Series) -> str:
    """Return a mean with its binomial standard error."""
    mean = float(values.mean())
    return f"{mean:.2f} +- {np.sqrt(max(mean * (1 - mean), 1e-9) / len(values)):.2f} (n={len(values)})"


def summarize(table: pd.DataFrame) -> dict[str, object]:
    """Return power and false alarms for every dataset and for the large ones together."""
    table = table.assign(any=table["flags"] != "")
    result: dict[str, object] = {}
    large = table[table.n * table.q >= LARGE]
    parts = {"all large": large, **dict(tuple(table.groupby("dataset", sort=False)))}
    for name, part in parts.items():
        null = part[part.kind.isin(CLASS_CONDITIONAL)]
        row = {"false alarms": share(null["any"])}
        row |= {kind: share(part[part.kind == kind]["any"]) for kind in VIOLATIONS}
        result[name] = row
    for kind in CLASS_CONDITIONAL:
        result[f"false alarms, {kind}"] = share(large[large.kind == kind]["any"])
    return result


def main() -> None:
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--csv", type=Path, metavar="FILE", help="resume from this file and write every fit to it")
    arguments.add_argument("--draws", type=int, default=8, help="draws per dataset and kind of noise")
    options = arguments.parse_args()
    torch.set_num_threads(1)
    names, n_draws = (("yeast", "synthetic"), 2) if options.quick else (DATASETS, options.draws)
    rows: list[dict[str, object]] = []
    if options.csv is not None and options.csv.exists():
        rows = pd.read_csv(options.csv).fillna({"flags": ""}).to_dict("records")
    done = {(row["dataset"], row["kind"], row["draw"]) for row in rows}
    for draw in range(FIRST_DRAW, FIRST_DRAW + n_draws):
        for name in names:
            rows += [evaluate(name, kind, draw) for kind in KINDS if (name, kind, draw) not in done]
            if options.csv is not None:
                pd.DataFrame(rows).to_csv(options.csv, index=False)
    result = summarize(pd.DataFrame(rows))
    if options.json:
        print(json.dumps(result))
        return
    for name, row in result.items():
        print(name, *([f"\n    {key:<14}{value}" for key, value in row.items()] if isinstance(row, dict) else [row]))


if __name__ == "__main__":
    main()
