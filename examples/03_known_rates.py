"""With known noise rates, does the unbiased loss beat the plain one on the paper's data sets?

Expected: yes, on all three metrics, for hamming-square, hamming-hinge, ranking-hinge and ranking-sigmoid
(ranking-square is an indefinite form and may diverge). Every method is trained at three learning rates in five repeats
of the paper's literal protocol, 200 epochs each, all at once; the values are on clean test labels, at the epoch and
learning rate with the best clean validation value of each metric.

    python examples/03_known_rates.py --data-dir DIR               (half an hour on two cores, a minute on a large GPU)
    python examples/03_known_rates.py --data-dir DIR --quick       yeast, two repeats, 20 epochs (about 20 s)
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path

import numpy as np
import torch

from ccmn.data import DATASETS, load_dataset
from ccmn.experiments.fleet import TABLE_METRICS, make_repeats, run_fleet
from ccmn.experiments.methods import METHODS

WITHOUT_DOUBT = ("hamming-square", "hamming-hinge", "ranking-hinge", "ranking-sigmoid")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", default=None, help="folder of the data sets (default: CCMN_DATA)")
    parser.add_argument("--datasets", nargs="*", default=["yeast", "scene", "enron", "tmc"])
    parser.add_argument("--protocol", choices=("literal", "moderate"), default="literal")
    parser.add_argument("--model", choices=("linear", "mlp"), default="linear")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=None, help="CSV of every value")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    datasets = ["yeast"] if options.quick else options.datasets
    repeats, epochs = (2, 20) if options.quick else (5, 200)
    written = [("dataset", "method", "metric", "repeat", "value")]
    wins = cells = 0
    for name in datasets:
        data = load_dataset(name, data_dir=options.data_dir)
        start = time.perf_counter()
        rows = run_fleet(
            data,
            make_repeats(data, options.protocol, repeats),
            model=options.model,
            epochs=epochs,
            batch_size=DATASETS[name].paper.batch_size,
            device=options.device,
        )
        print(f"{name}: {len(METHODS) * 3 * repeats} runs of {epochs} epochs in {time.perf_counter() - start:.1f} s")
        written += [(name, r.method, r.metric, r.repeat, r.value) for r in rows]
        means = {
            (method, metric): np.mean([r.value for r in rows if (r.method, r.metric) == (method, metric)])
            for method in METHODS
            for metric in TABLE_METRICS
        }
        print(f"  {'':<18}" + "".join(f"{metric + ' unbiased/plain':>34}" for metric in TABLE_METRICS))
        for kind in dict.fromkeys(m.split("-", 1)[1] for m in METHODS):
            pairs = [(means[f"unbiased-{kind}", metric], means[f"plain-{kind}", metric]) for metric in TABLE_METRICS]
            print(f"  {kind:<18}" + "".join(f"{a:>22.3f} / {b:<9.3f}" for a, b in pairs))
            if kind in WITHOUT_DOUBT:
                better = [(a > b) == greater for (a, b), greater in zip(pairs, TABLE_METRICS.values())]
                wins, cells = wins + sum(better), cells + len(better)
    print(f"unbiased ahead of plain in {wins} of {cells} cells ({', '.join(WITHOUT_DOUBT)})")
    if options.out is not None:
        with options.out.open("w", newline="") as file:
            csv.writer(file).writerows(written)


if __name__ == "__main__":
    main()
