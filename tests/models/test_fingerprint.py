"""A checkpoint belongs to one fit: to its parameters and to every value of its data."""

from __future__ import annotations

import errno
import os
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse
import torch

from ccmn import CCMNClassifier, _files
from ccmn.data.shards import ShardedData
from ccmn.models.streaming import StreamPlan, draw_holdout
from ccmn.models.training_data import Sample
from ccmn.noise import ClassConditionalNoise
from ccmn.training.batches import SparseLabels
from ccmn.training.checkpoint import fit_fingerprint

N, D, Q = 40, 3, 2
NOISE = ClassConditionalNoise([0.1, 0.2], [0.2, 0.1])


def classifier(noise=NOISE, **parameters):
    return CCMNClassifier(noise, random_state=0, **parameters)


def sample(weights=None):
    rng = np.random.default_rng(0)
    return Sample(rng.normal(size=(N, D)), rng.random((N, Q)).astype(np.float32), weights)


def changed(array, at=(-1, -1)):
    array = array.copy()
    array[at] += 1e-6
    return array


def of(clf=None, training=None, held_out=None):
    clf = clf or classifier()
    parts = (*(training or sample()).parts, *(held_out or sample()).parts)
    return fit_fingerprint(clf.get_params(), clf.noise.to_dict(), *parts)


def test_same_fit_has_the_same_fingerprint():
    assert of() == of()
    assert of() == of(classifier(verbose=1))


@pytest.mark.parametrize(
    "other",
    [
        lambda: of(classifier(epochs=7)),
        lambda: of(training=replace(sample(), X=changed(sample().X))),
        lambda: of(training=replace(sample(), p=changed(sample().p, (0, 0)))),
        lambda: of(training=sample(np.ones(N))),
        lambda: of(held_out=replace(sample(), X=changed(sample().X, (0, 0)))),
        lambda: of(training=replace(sample(), X=scipy.sparse.csr_array(sample().X))),
        # The repr of a noise model is rounded and shortened.
        lambda: of(classifier(ClassConditionalNoise([0.1, 0.2], [0.2, 0.10001]))),
    ],
)
def test_different_fit_has_a_different_fingerprint(other):
    assert other() != of()


def test_every_value_counts_for_any_block_size(monkeypatch):
    whole = of()
    monkeypatch.setattr(_files, "_HASH_BLOCK_BYTES", 100)
    assert of() == whole
    seen = {of(training=replace(sample(), X=changed(sample().X, (i, j)))) for i in range(N) for j in range(D)}
    assert len(seen) == N * D


def test_memory_layout_does_not_matter():
    X = sample().X
    assert of(training=replace(sample(), X=np.asfortranarray(X))) == of()


def test_sparse_labels():
    first, second = scipy.sparse.csr_array(np.eye(4, 3)), scipy.sparse.csr_array(np.eye(4, 3, 1))
    found = {
        of(training=replace(sample(), p=labels))
        for labels in (SparseLabels(first), SparseLabels(second), SparseLabels(first, trusted=np.eye(4, dtype=bool)[0]))
    }
    assert len(found) == 3


def test_custom_networks_count_by_name():
    def make(d, q):
        return torch.nn.Linear(d, q)

    again = SimpleNamespace(make=lambda d, q: torch.nn.Linear(d, q))
    again.make.__qualname__ = make.__qualname__
    assert make is not again.make
    assert of(classifier(model=make)) == of(classifier(model=again.make)) != of(classifier(model=torch.nn.Linear))


def test_checkpoint_of_different_data_is_rejected(tmp_path):
    X, Y = np.random.default_rng(0).normal(size=(60, 2)), np.tile([[0, 1], [1, 0]], (30, 1))
    path = tmp_path / "state"

    def fit(X, **settings):
        return CCMNClassifier(None, loss="ranking", epochs=6, random_state=0).fit(X, Y, checkpoint=path, **settings)

    fit(X)
    assert path.exists()
    for other in (lambda: fit(X[::-1]), lambda: fit(X, validation=(X, Y))):
        with pytest.raises(ValueError, match="belongs to a different fit"):
            other()
    fit(X).save(tmp_path / "m.ccmn")
    assert not path.exists()


class TestCompletedFit:
    """The checkpoint of a completed fit is deleted only after the model has been written."""

    X = np.random.default_rng(0).normal(size=(60, 2))
    Y = np.tile([[0, 1], [1, 0]], (30, 1))

    def fit(self, path=None, **parameters):
        settings = {"loss": "ranking", "epochs": 7, "random_state": 0, **parameters}
        return CCMNClassifier(None, **settings).fit(self.X, self.Y, checkpoint=path)

    @pytest.mark.parametrize("parameters", [{}, {"model": torch.nn.Linear}])
    def test_full_disk_keeps_the_checkpoint(self, tmp_path, parameters):
        clf, expected = self.fit(tmp_path / "state", **parameters), self.fit(**parameters)
        written = sorted(file.name for file in tmp_path.iterdir())
        assert written
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("os.fsync", disk_full)
            with pytest.raises(OSError, match="No space left"):
                clf.save(tmp_path / "m.ccmn")
        assert sorted(file.name for file in tmp_path.iterdir()) == written
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                "ccmn.training.selection.ValidationCriterion.__call__", lambda *_: pytest.fail("trained an epoch")
            )
            again = self.fit(tmp_path / "state", **parameters)
        assert np.array_equal(again.decision_function(self.X), expected.decision_function(self.X))
        assert again.history_.equals(expected.history_)
        assert again.selected_ == expected.selected_
        again.save(tmp_path / "m.ccmn")
        assert [file.name for file in tmp_path.iterdir()] == ["m.ccmn"]

    def test_interrupted_fit_keeps_its_checkpoint_after_save(self, tmp_path, monkeypatch):
        def interrupt(progress):
            if progress.epoch == 5:
                raise KeyboardInterrupt

        monkeypatch.setattr("ccmn.models.ccmn_classifier.show_progress", lambda *_: nullcontext(interrupt))
        with pytest.warns(UserWarning, match="interrupted"):
            clf = self.fit(tmp_path / "state", verbose=1)
        clf.save(tmp_path / "m.ccmn")
        assert (tmp_path / "state").exists()


def disk_full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class TestShards:
    @pytest.fixture
    def write(self, tmp_path):
        pq, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")

        def write(x, statistics=True):
            columns = pa.table({"x": x.astype(np.float32), "y": (np.arange(len(x)) % 2).astype(np.int8)})
            settings = {"compression": "none", "use_dictionary": False, "write_statistics": statistics}
            pq.write_table(columns, tmp_path / "0.parquet", row_group_size=50, **settings)

        return write

    def fingerprint(self, folder, fraction):
        data = ShardedData(folder, "y")
        holdout = draw_holdout(data, fraction, StreamPlan.of(data, 2**24, 16, 0))
        return fit_fingerprint(classifier().get_params(), NOISE.to_dict(), *data.footers(), holdout.X, holdout.Y)

    def test_values_of_the_held_out_sample_count(self, write, tmp_path):
        x = np.arange(200.0)
        write(x, statistics=False)
        before = self.fingerprint(tmp_path, 1.0)
        assert self.fingerprint(tmp_path, 1.0) == before
        write(changed(x, -1) + 1, statistics=False)
        assert self.fingerprint(tmp_path, 1.0) != before

    def test_footers_differ_for_different_rows(self, write, tmp_path):
        x = np.arange(200.0)
        write(x)
        before = list(ShardedData(tmp_path, "y").footers())
        x[123] = 1000
        write(x)
        after = list(ShardedData(tmp_path, "y").footers())
        assert len(before) == len(after) == 1
        assert before != after


def test_clean_and_noisy_sparse_validation_labels_differ():
    labels = scipy.sparse.csr_matrix(np.eye(N, Q, dtype=np.float32))
    clean, noisy = (Sample(np.ones((N, D)), SparseLabels(labels, debias)) for debias in (None, NOISE.debiasing()))
    params = classifier().get_params(deep=False)
    first, second = (fit_fingerprint(params, NOISE.to_dict(), *rows.parts) for rows in (clean, noisy))
    assert first != second
