"""Quick runs of the examples and their numbers, and computations compared with references."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from ccmn.losses import RankingLoss
from helpers import load_script

pytest.importorskip("matplotlib", reason="the examples require matplotlib: pip install matplotlib")

EXAMPLES = Path(__file__).parents[3] / "examples"


def run_quick(script: str, out: Path) -> list[dict[str, str]]:
    """Run an example and return the numbers that it wrote."""
    command = [sys.executable, str(EXAMPLES / f"{script}.py"), "--quick", "--out", str(out)]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=300)
    light, dark = sorted(out.glob("*.png"), key=lambda path: len(path.stem))
    assert dark.stem == f"{light.stem}-dark"
    assert all(10_000 < figure.stat().st_size < 150_000 for figure in (light, dark))
    return list(csv.DictReader(light.with_suffix(".csv").open(encoding="utf-8")))


@pytest.mark.slow
def test_excess_risk_decreases_only_with_the_unbiased_loss(tmp_path):
    rows = run_quick("01_excess_risk", tmp_path)
    for loss in ("hamming", "ranking"):
        curve = {
            m: [float(r["mean"]) for r in rows if (r["loss"], r["method"]) == (loss, m)] for m in ("unbiased", "plain")
        }
        assert curve["unbiased"][-1] < curve["unbiased"][0] / 10
        assert curve["plain"][-1] > curve["plain"][0] / 4
        assert curve["unbiased"][-1] < curve["plain"][-1] / 10


@pytest.mark.slow
def test_excess_risk_depends_on_the_rates_and_not_on_mu(tmp_path):
    rows = run_quick("02_noise_rates", tmp_path)
    for loss in ("hamming", "ranking"):
        at = {s: [r for r in rows if (r["loss"], r["sweep"]) == (loss, s)] for s in ("rate", "difference")}
        excess = [float(r["excess"]) for r in at["rate"]]
        assert 2 * excess[0] < excess[1] < excess[2] / 2
        wide, equal, _ = at["difference"]
        assert float(wide["excess"]) < float(equal["excess"])
        assert float(wide["mu"]) > float(equal["mu"])


@pytest.mark.slow
def test_corrected_thresholds_reach_the_target_and_uncorrected_ones_do_not(tmp_path):
    rows = run_quick("05_risk_control", tmp_path)
    most = {row["calibration"]: row for row in rows if row["n"] == "3000"}
    assert float(most["corrected"]["median"]) > 0.9 > float(most["uncorrected"]["median"])
    assert float(most["corrected"]["missed"]) <= 0.2
    assert float(most["uncorrected"]["missed"]) > 0.5


def test_hessian_of_the_ranking_loss_with_square_surrogate():
    rng = np.random.default_rng(0)
    X, p = rng.normal(size=(9, 3)), rng.normal(0.5, 1, size=(9, 4))
    form = load_script("examples/03_ranking_square.py").hessian(X, p)
    design = torch.from_numpy(np.hstack([X, np.ones((9, 1))]))
    loss = RankingLoss("square")

    def risk(flat):
        return loss.risk(design @ flat.view(4, 5), torch.from_numpy(p)).mean()

    expected = torch.autograd.functional.hessian(risk, torch.zeros(20, dtype=torch.float64))
    np.testing.assert_allclose(form @ np.eye(20), expected.numpy(), atol=1e-10)
