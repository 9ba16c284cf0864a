"""Parameter searches on a Ray cluster: nodes that are lost or join late do not change the scores."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV

from ccmn import CCMNClassifier, PartialNoise
from ccmn.paper.ray_engine import connected, search_on_ray

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 4))
Y = (X[:, :3] > 0.3).astype(int)
NODE = {"num_cpus": 1, "object_store_memory": 100_000_000}
TIMEOUT = 100.0


def search(scoring):
    classifier = CCMNClassifier(PartialNoise(0.1, n_labels=3), loss="ranking", epochs=2, random_state=0)
    return GridSearchCV(classifier, {"lr": [0.1, 0.01, 0.001]}, scoring=scoring, cv=3, refit=False)


def score(classifier, X, Y):
    return classifier.score(X, Y)


@pytest.fixture(scope="module")
def local():
    return search(score).fit(X, Y).cv_results_["mean_test_score"]


def wait_for(condition):
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("timeout")
        time.sleep(0.05)


def note(folder):
    """Record that this node has run a fit, and return its name."""
    import ray

    name = ray.get_runtime_context().get_node_id()
    (folder / name).touch()
    return name


def search_beside(cluster, scoring, action):
    """Return the scores of a search that runs while an action changes the cluster.

    Ray requires that nodes are started from the main thread, so the search runs in another thread.
    """
    with connected(cluster.address), ThreadPoolExecutor(1) as pool:

        def run():
            with search_on_ray():
                return search(scoring).fit(X, Y).cv_results_["mean_test_score"]

        remote = pool.submit(run)
        action()
        return remote.result(TIMEOUT)


def test_fits_of_a_lost_node_are_run_again(cluster, node, local, tmp_path):
    """A fit on the second node does not end before the node is killed."""
    lost = node.node_id

    def score(classifier, X, Y):
        if note(tmp_path) == lost:
            time.sleep(TIMEOUT)
        return classifier.score(X, Y)

    def kill():
        wait_for((tmp_path / lost).exists)
        cluster.remove_node(node, allow_graceful=False)

    np.testing.assert_allclose(search_beside(cluster, score, kill), local)


def test_node_that_joins_late_gets_work(cluster, local, tmp_path):
    """A fit on the head waits until another node has run one."""

    def score(classifier, X, Y):
        note(tmp_path)
        wait_for(lambda: len(list(tmp_path.iterdir())) > 1)
        return classifier.score(X, Y)

    joined = []

    def join():
        wait_for(lambda: any(tmp_path.iterdir()))
        joined.append(cluster.add_node(**NODE))

    np.testing.assert_allclose(search_beside(cluster, score, join), local)
    cluster.remove_node(joined[0], allow_graceful=False)


def test_error_in_a_fit_is_raised(cluster):
    def score(classifier, X, Y):
        raise ValueError("no such score")

    with search_on_ray(cluster.address), pytest.raises(ValueError, match="no such score"):
        search(score).set_params(error_score="raise").fit(X, Y)
