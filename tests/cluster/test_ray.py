"""Ray's joblib backend, as the recipe with_ray.py configures it: lost workers and machines do not change results."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import joblib
import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV

import ccmn
from ccmn import CCMNClassifier, PartialNoise
from ccmn.paper.result_store import ResultStore, rows
from ccmn.paper.runner import prepare, run_columns
from test_recipes import RECIPES, documented_output

pytestmark = pytest.mark.slow

METHODS = ["unbiased-hamming-square", "unbiased-ranking-sigmoid", "ridge"]


@pytest.fixture
def connected(cluster, node):
    """Register the backend of the recipe, and connect to a cluster of two nodes."""
    import ray

    spec = importlib.util.spec_from_file_location("with_ray", RECIPES / "with_ray.py")
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    ray.init(address=cluster.address, log_to_driver=False)
    yield
    ray.shutdown()


def run(path, **options):
    with ResultStore(path) as store:
        run_columns(prepare(["table1"], small=True).columns, store, methods=METHODS, **options)
        return list(rows(store.results()))


def test_lost_node_loses_no_results(cluster, node, connected, tmp_path):
    """Kill a node after the first result, while it runs another group."""
    finished, again = [], []

    def kill(done):
        finished.append(done)
        if len(finished) == 1:
            cluster.remove_node(node, allow_graceful=False)

    with joblib.parallel_config("ray", n_jobs=2):
        found = run(tmp_path / "ray.db", on_progress=kill)
    run(tmp_path / "ray.db", on_progress=again.append)
    assert found == run(tmp_path / "local.db")
    assert finished[-1].cost == pytest.approx(finished[-1].total)
    assert not again  # stored results are not computed again


def test_fit_of_a_worker_that_dies_is_run_again(connected, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    Y = (X[:, :3] > 0.3).astype(int)
    classifier = CCMNClassifier(PartialNoise(0.1, n_labels=3), loss="ranking", epochs=2, random_state=0)
    died = tmp_path / "died"

    def score(classifier, X, Y):
        if not died.exists():
            died.touch()
            os._exit(1)
        return classifier.score(X, Y)

    def search(scoring):
        grid = GridSearchCV(classifier, {"lr": [0.1, 0.01, 0.001]}, scoring=scoring, cv=3, refit=False)
        return grid.fit(X, Y).cv_results_["mean_test_score"]

    with joblib.parallel_config("ray", n_jobs=2):
        found = search(score)
    assert died.exists()
    np.testing.assert_allclose(found, search(lambda c, X, Y: c.score(X, Y)))


def test_recipe(cluster, node):
    source = str(Path(ccmn.__file__).parents[1])
    environment = {
        **os.environ,
        "RAY_ADDRESS": cluster.address,
        "PYTHONPATH": source + os.pathsep + os.environ.get("PYTHONPATH", ""),
    }
    command = [sys.executable, str(RECIPES / "with_ray.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    # Ray writes its own messages to the same stream.
    printed = [line for line in done.stdout.splitlines() if line.startswith("Hamming loss")]
    assert printed == documented_output("with_ray").splitlines()
