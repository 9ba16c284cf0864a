"""A parameter search on the cluster: what it comes to here, with a node lost on the way, with one that joins late."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV

from ccmn import CCMNClassifier, PartialNoise
from ccmn.experiments.ray_engine import connected, search_on_ray

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 4))
Y = (X[:, :3] > 0.3).astype(int)
NODE = {"num_cpus": 1, "object_store_memory": 100_000_000}
PATIENCE = 100.0


def search(scoring):
    classifier = CCMNClassifier(PartialNoise(0.1, n_labels=3), epochs=2, random_state=0)
    return GridSearchCV(classifier, {"lr": [0.1, 0.01, 0.001]}, scoring=scoring, cv=3, refit=False)


def plain(classifier, X, Y):
    return classifier.score(X, Y)


@pytest.fixture(scope="module")
def here():
    return search(plain).fit(X, Y).cv_results_["mean_test_score"]


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("waited in vain")
        time.sleep(0.05)


def note(folder):
    """Leave a mark that this node has run something; its name."""
    import ray

    name = ray.get_runtime_context().get_node_id()
    (folder / name).touch()
    return name


def search_beside(cluster, scoring, action):
    """What a search comes to that goes on while something happens to the cluster.

    Nodes are started from the main thread, as Ray wants it; so the search has another.
    """
    with connected(cluster.address), ThreadPoolExecutor(1) as pool:

        def run():
            with search_on_ray():
                return search(scoring).fit(X, Y).cv_results_["mean_test_score"]

        there = pool.submit(run)
        action()
        return there.result(PATIENCE)


def test_a_lost_node_costs_what_it_was_running(cluster, node, here, tmp_path):
    """A fit on the second node does not end before that is killed."""
    doomed = node.node_id

    def score(classifier, X, Y):
        if note(tmp_path) == doomed:
            time.sleep(PATIENCE)
        return classifier.score(X, Y)

    def kill():
        wait_for((tmp_path / doomed).exists)
        cluster.remove_node(node, allow_graceful=False)

    np.testing.assert_allclose(search_beside(cluster, score, kill), here)


def test_a_node_that_joins_late_gets_work(cluster, here, tmp_path):
    """A fit on the head waits until another node has run one."""

    def score(classifier, X, Y):
        note(tmp_path)
        wait_for(lambda: len(list(tmp_path.iterdir())) > 1)
        return classifier.score(X, Y)

    joined = []

    def join():
        wait_for(lambda: any(tmp_path.iterdir()))
        joined.append(cluster.add_node(**NODE))

    np.testing.assert_allclose(search_beside(cluster, score, join), here)
    cluster.remove_node(joined[0], allow_graceful=False)


def test_an_error_in_a_fit_is_told(cluster):
    def score(classifier, X, Y):
        raise ValueError("no such score")

    with search_on_ray(cluster.address), pytest.raises(ValueError, match="no such score"):
        search(score).set_params(error_score="raise").fit(X, Y)
