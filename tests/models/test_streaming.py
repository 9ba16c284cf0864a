"""Fits to shards within a memory limit."""

from contextlib import nullcontext

import numpy as np
import pytest

from ccmn import CCMNClassifier, ClassConditionalNoise, PartialNoise
from ccmn.data import ShardedData, make_noisy_multilabel
from ccmn.metrics import ranking_loss
from helpers import run_measured

pa = pytest.importorskip("pyarrow", reason="reading Parquet needs pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

Q = 4
NOISE = ClassConditionalNoise(0.2, 0.2, n_labels=Q)
SETTINGS = {"loss": "ranking", "lr": 5e-2, "epochs": 5, "batch_size": 100, "random_state": 0}


@pytest.fixture(scope="module")
def task():
    return make_noisy_multilabel(4000, 6, Q, strength=6, noise=NOISE, random_state=0)


@pytest.fixture(scope="module")
def folder(task, tmp_path_factory):
    """Write five files of eight row groups with numeric columns."""
    path = tmp_path_factory.mktemp("shards")
    columns = {f"f{j}": task.X[:, j].astype(np.float32) for j in range(6)}
    columns |= {f"label_{j}": task.Y_noisy[:, j].astype(np.uint8) for j in range(Q)}
    whole = pa.table(columns)
    for i in range(5):
        pq.write_table(whole.slice(i * 800, 800), path / f"{i}.parquet", row_group_size=100)
    return path


def test_stream_is_as_good_as_fit(task, folder, monkeypatch):
    monkeypatch.setattr("ccmn.models.streaming.MEMORY", 4 * 2**20)
    stream = CCMNClassifier(NOISE, **SETTINGS).fit(ShardedData(folder, "label_*"))
    memory = CCMNClassifier(NOISE, **SETTINGS).fit(task.X, task.Y_noisy)
    losses = [ranking_loss(task.Y, clf.decision_function(task.X)) for clf in (stream, memory)]
    assert losses[0] < losses[1] + 0.01
    assert stream.label_names_ == tuple(f"label_{j}" for j in range(Q))
    assert list(stream.feature_names_in_) == [f"f{j}" for j in range(6)]
    assert len(stream.history_) == 5
    assert stream.history_["loss"].iloc[-1] < stream.history_["loss"].iloc[0]


def test_rates_are_estimated_from_the_held_out_sample(tmp_path):
    noise = PartialNoise(0.4, n_labels=2)
    task = make_noisy_multilabel(6000, 5, 2, strength=8, noise=noise, random_state=0)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(task.X.astype(np.float32).ravel()), 5)
    lists = pa.array([np.flatnonzero(row).tolist() for row in task.Y_noisy])
    pq.write_table(pa.table({"x": vectors, "y": lists}), tmp_path / "0.parquet", row_group_size=500)
    data = ShardedData(tmp_path, ["y"], n_labels=2)
    clf = CCMNClassifier("partial", validation_fraction=0.5, **SETTINGS).fit(data)
    assert np.abs(clf.noise_.rho_neg - 0.4).max() < 0.1
    assert clf.rates_ is not None
    assert clf.predict(task.X).format == "csr"


def test_stopped_fit_resumes(folder, tmp_path, monkeypatch):
    whole = CCMNClassifier(NOISE, **SETTINGS).fit(ShardedData(folder, "label_*"))

    def stop(phase, *_):
        if phase == "epoch 3":
            raise RuntimeError("stopped")

    with monkeypatch.context() as patch:
        patch.setattr("ccmn.models.ccmn_classifier.show_phases", lambda *_: nullcontext(stop))
        stopped = CCMNClassifier(NOISE, verbose=1, **SETTINGS)
        with pytest.raises(RuntimeError, match="stopped"):
            stopped.fit(ShardedData(folder, "label_*"), checkpoint=tmp_path / "state")
    assert (tmp_path / "state").exists()
    clf = CCMNClassifier(NOISE, **SETTINGS).fit(ShardedData(folder, "label_*"), checkpoint=tmp_path / "state")
    assert np.array_equal(clf.coef_, whole.coef_)
    clf.save(tmp_path / "m.ccmn")
    assert not (tmp_path / "state").exists()


def test_too_little_memory(folder, monkeypatch):
    monkeypatch.setattr("ccmn.models.streaming.MEMORY", 10_000)
    with pytest.raises(ValueError, match="use a smaller batch_size"):
        CCMNClassifier(NOISE).fit(ShardedData(folder, -Q))


@pytest.mark.parametrize("name", ["sample_weight", "trusted", "groups"])
def test_shards_contain_the_labels(folder, name):
    with pytest.raises(ValueError, match=f"{name} must be None"):
        CCMNClassifier(NOISE).fit(ShardedData(folder, -Q), **{name: np.ones(4000)})


@pytest.mark.parametrize("n", [1, 30])
def test_few_rows(tmp_path, n):
    """Few rows are not split, as in fit."""
    pq.write_table(pa.table({"f": np.arange(n) / 10, "y": np.arange(n) % 2}), tmp_path / "0.parquet")
    clf = CCMNClassifier(None, **SETTINGS).fit(ShardedData(tmp_path, ["y"]))
    assert clf.coef_.shape == (1, 1)


MEMORY = """
import sys
from pathlib import Path
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
from ccmn import CCMNClassifier, ClassConditionalNoise
from ccmn.data import ShardedData
from ccmn.models import streaming
streaming.MEMORY = 50 * 2**20
folder, d, q = Path(sys.argv[1]), 100, 20
def write(folder, files, rows):
    folder.mkdir()
    rng = np.random.default_rng(0)
    for i in range(files):
        x = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(rows * d, dtype=np.float32)), d)
        y = pa.FixedSizeListArray.from_arrays(pa.array((rng.random(rows * q) < 0.2).astype(np.uint8)), q)
        pq.write_table(pa.table({"x": x, "y": y}), folder / f"{i:03}.parquet", row_group_size=8192)
def fit(folder):
    noise = ClassConditionalNoise(0.1, 0.1, n_labels=q)
    clf = CCMNClassifier(noise, loss="hamming", surrogate="logistic", lr=1e-3, epochs=1, random_state=0)
    return clf.fit(ShardedData(folder, ["y"]))
write(folder / "small", 1, 3000)
fit(folder / "small")  # loads modules
write(folder / "large", 16, 32768)
growth = peak(lambda: fit(folder / "large"))
print(sum(file.stat().st_size for file in (folder / "large").iterdir()) / 2**20, growth)
"""


@pytest.mark.slow
def test_memory_stays_below_the_limit(tmp_path):
    """200 MB of shards are read with a limit of 50 MB."""
    size, growth = map(float, run_measured(MEMORY, str(tmp_path)).split())
    assert size > 180
    assert growth < 50
