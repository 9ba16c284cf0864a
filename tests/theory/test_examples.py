"""The examples of the theory, in small: they run, and their numbers say what they promise."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="the examples draw with matplotlib, the extra ccmn[plots]")

EXAMPLES = Path(__file__).parents[2] / "examples"


def run_quick(script: str, out: Path) -> list[dict[str, str]]:
    """Run an example into a folder and read the numbers it wrote."""
    command = [sys.executable, str(EXAMPLES / f"{script}.py"), "--quick", "--out", str(out)]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=300)
    (figure,) = out.glob("*.png")
    assert 10_000 < figure.stat().st_size < 150_000
    return list(csv.DictReader(figure.with_suffix(".csv").open(encoding="utf-8")))


def test_excess_risk_falls_with_the_unbiased_loss_alone(tmp_path):
    rows = run_quick("01_excess_risk", tmp_path)
    for loss in ("hamming", "ranking"):
        curve = {
            m: [float(r["mean"]) for r in rows if (r["loss"], r["method"]) == (loss, m)] for m in ("unbiased", "plain")
        }
        assert curve["unbiased"][-1] < curve["unbiased"][0] / 10
        assert curve["plain"][-1] > curve["plain"][0] / 4
        assert curve["unbiased"][-1] < curve["plain"][-1] / 10


def test_higher_rates_cost_more_and_a_wider_difference_does_not(tmp_path):
    rows = run_quick("02_noise_rates", tmp_path)
    for loss in ("hamming", "ranking"):
        at = {s: [r for r in rows if (r["loss"], r["sweep"]) == (loss, s)] for s in ("rate", "difference")}
        excess = [float(r["excess"]) for r in at["rate"]]
        assert 2 * excess[0] < excess[1] < excess[2] / 2
        wide, equal, _ = at["difference"]
        assert float(wide["excess"]) < float(equal["excess"])
        assert float(wide["mu"]) > float(equal["mu"])
