"""Ray cluster on this machine for `make test-all`; otherwise these tests are skipped.

Ray always listens on every network interface. Therefore `make test-all` runs in its own network namespace if
possible, and nodes require a random token.
"""

import os
import secrets
import tempfile

import pytest

NODE = {"num_cpus": 1, "object_store_memory": 100_000_000}


@pytest.fixture(scope="session")
def cluster():
    """Start a head node with one processor, without connecting to it."""
    if not os.environ.get("CCMN_CLUSTER"):
        pytest.skip("starts a Ray cluster; run make test-all")
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="r") as folder:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("RAY_TMPDIR", folder)  # Ray writes its address to RAY_TMPDIR/ray and does not create that folder.
        os.mkdir(os.path.join(folder, "ray"))
        from ray.cluster_utils import Cluster

        head = {**NODE, "include_dashboard": False, "temp_dir": folder}  # short, because it contains sockets
        cluster = Cluster(initialize_head=True, head_node_args=head)
        yield cluster
        cluster.shutdown()


@pytest.fixture
def node(cluster):
    """Add a second node, which a test may kill."""
    node = cluster.add_node(**NODE)
    yield node
    if node in cluster.list_all_nodes():
        cluster.remove_node(node, allow_graceful=False)
