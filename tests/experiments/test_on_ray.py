"""The Ray engine: two nodes, one of them lost on the way, and the same summary as on one machine."""

from __future__ import annotations

import numpy as np
import pytest

from ccmn import CCMNClassifier, PartialNoise
from ccmn.experiments.reproduce import prepare, reproduce
from ccmn.experiments.store import ResultStore
from ccmn.experiments.summary import summarise

ray = pytest.importorskip("ray", reason="needs Ray: pip install 'ccmn[ray]'")
pytestmark = pytest.mark.slow

METHODS = ["unbiased-hamming-square", "plain-hamming-square", "unbiased-ranking-sigmoid", "ridge", "logistic"]


@pytest.fixture(scope="module")
def cluster():
    """A head and a worker node, of one processor each, on this machine."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_AUTH_MODE", "disabled")  # no token file is written
        patch.setenv("OMP_NUM_THREADS", "1")
        node = {"num_cpus": 1, "object_store_memory": 100_000_000}
        cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
        cluster.worker = cluster.add_node(**node)
        ray.init(address=cluster.address, log_to_driver=False)
        yield cluster
        ray.shutdown()
        cluster.shutdown()


def columns():
    return prepare(["table1"], small=True).columns


def test_a_parameter_search_runs_there_too(cluster):
    joblib = pytest.importorskip("joblib")
    from ray.util.joblib import register_ray
    from sklearn.model_selection import GridSearchCV

    register_ray()
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    Y = (X[:, :3] > 0.3).astype(int)
    search = GridSearchCV(CCMNClassifier(PartialNoise(0.1, n_labels=3), epochs=2, random_state=0), {"lr": [0.1, 0.001]})
    with joblib.parallel_backend("ray"):
        there = search.fit(X, Y).cv_results_["mean_test_score"]
    here = search.set_params(n_jobs=1).fit(X, Y).cv_results_["mean_test_score"]
    np.testing.assert_allclose(there, here)


def test_a_lost_node_loses_nothing(cluster, tmp_path):
    """The worker node is killed after the first result, while it runs another unit."""
    told = []

    def tell(done):
        told.append(done)
        if len(told) == 1:
            cluster.remove_node(cluster.worker, allow_graceful=False)

    with ResultStore(tmp_path / "ray.db") as there, ResultStore(tmp_path / "local.db") as here:
        reproduce(columns(), there, methods=METHODS, engine="ray", tell=tell)
        reproduce(columns(), here, methods=METHODS)
        assert _figures(there) == _figures(here)
        assert told[-1].weight == pytest.approx(told[-1].total)
        again = []
        reproduce(columns(), there, methods=METHODS, engine="ray", tell=again.append)
        assert not again  # what is stored is not run again


def _figures(store):
    """Summaries without what no two runs share: the time taken."""
    summaries = summarise(store.results())
    assert summaries
    return [
        (s.table.name, s.protocol, s.selection, list(s.failures), [(e, e.mean, e.std) for e in s.entries])
        for s in summaries
    ]


def test_an_address_where_there_is_no_cluster(tmp_path):
    """Last: the connection of the tests above is let go of."""
    ray.shutdown()
    with ResultStore(tmp_path / "r.db") as store, pytest.raises(OSError, match="no Ray cluster at"):
        reproduce(columns(), store, methods=METHODS[:1], engine="ray", address="127.0.0.1:1")
