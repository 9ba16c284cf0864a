from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from ccmn import CCMNClassifier, PartialNoise
from ccmn.data import ShardedData
from ccmn.models import load_model
from ccmn.models.row_sketch import SKETCH_SIZE, RowSketch, SeenRows, SketchedSource, hash_rows

pyarrow = pytest.importorskip("pyarrow")


def rows(n, d=6, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


class TestHashes:
    @given(st.integers(0, 2**32 - 1), st.integers(1, 12))
    def test_container_and_type_do_not_matter(self, seed, d):
        rng = np.random.default_rng(seed)
        X = (rng.normal(size=(20, d)) * rng.integers(-1, 2, size=(20, d))).astype(np.float32)
        expected = hash_rows(X)
        stored = scipy.sparse.csr_matrix(np.where(X == 0, 7, X))
        stored.data[stored.data == 7] = 0  # explicit zeros
        sums = scipy.sparse.coo_matrix(X)
        twice = scipy.sparse.csr_matrix(
            (np.tile(sums.data / 2, 2), (np.tile(sums.row, 2), np.tile(sums.col, 2))), X.shape
        )
        for same in (
            X.astype(np.float64),
            np.asfortranarray(X),
            X[::-1][::-1],
            scipy.sparse.csr_matrix(X),
            stored,
            twice,
        ):
            np.testing.assert_array_equal(hash_rows(same), expected)

    @pytest.mark.parametrize(
        "X",
        [rows(50_000), (rows(50_000, 40) > 0).astype(float), np.eye(500), np.arange(50_000.0)[:, None]],
        ids=["normal", "binary", "one-hot", "counts"],
    )
    def test_distinct_rows_have_distinct_hashes(self, X):
        assert len(np.unique(hash_rows(X))) == len(np.unique(X, axis=0))

    def test_order_of_columns_matters(self):
        X = rows(10)
        assert not np.isin(hash_rows(X[:, ::-1]), hash_rows(X)).any()

    def test_values_are_stable(self):
        """Model files depend on them."""
        found = hash_rows(np.array([[0.0, 0.0], [1.0, 0.5], [0.5, 1.0]]))
        assert found.tolist() == [0, 14307482770646212006, 2855957434120679908]


class TestSketch:
    def test_small_sets_are_exact(self):
        X = rows(1000)
        found = RowSketch.of(X[:812]).compare(X)
        assert found == (0.812, 1000, True)
        assert RowSketch.of(X).compare(rows(500, seed=1)).share == 0

    @pytest.mark.parametrize("share", [0.0, 0.1, 0.8, 1.0])
    def test_share_of_large_sets_is_estimated(self, share):
        X = rows(60_000)
        given = np.concatenate((X[: int(20_000 * share)], rows(20_000 - int(20_000 * share), seed=1)))
        found = RowSketch.of(X).compare(given)
        assert not found.exact
        assert found.compared == pytest.approx(20_000 * SKETCH_SIZE / 60_000, rel=0.1)
        assert found.share == pytest.approx(share, abs=0.05)
        assert share not in (0, 1) or found.share == share

    @pytest.mark.parametrize("X", [rows(30_000), (rows(30_000, 20) > 0).astype(float)], ids=["normal", "binary"])
    def test_holds_the_smallest_hashes(self, X):
        np.testing.assert_array_equal(RowSketch.of(X).hashes, np.unique(hash_rows(X))[:SKETCH_SIZE])

    def test_equal_rows_and_constant_first_columns(self):
        X = np.concatenate((np.zeros((50_000, 6)), rows(5000)))
        assert len(RowSketch.of(X).hashes) == SKETCH_SIZE
        X = rows(20_000)
        X[:, :5] = 1.0
        assert RowSketch.of(X).compare(X).share == 1

    def test_extend_by_blocks_equals_the_sketch_of_all_rows(self):
        X = np.random.default_rng(2).normal(size=(20_000, 6)).round(1)
        sketch = RowSketch(np.empty(0, dtype=np.uint64))
        for start in range(0, len(X), 3000):
            sketch = sketch.extend(X[start : start + 3000])
        np.testing.assert_array_equal(sketch.hashes, RowSketch.of(X).hashes)
        np.testing.assert_array_equal(sketch.extend(X[:100]).hashes, sketch.hashes)

    def test_merge(self):
        X = rows(20_000)
        merged = RowSketch.of(X[:9000]).merge(RowSketch.of(X[8000:]))
        np.testing.assert_array_equal(merged.hashes, RowSketch.of(X).hashes)

    def test_no_row_in_range(self):
        sketch = RowSketch(np.arange(SKETCH_SIZE, dtype=np.uint64))
        assert np.isnan(sketch.compare(rows(10)).share)


def fitted(X):
    noise = PartialNoise(0.2, n_labels=2)
    return CCMNClassifier(noise, loss="hamming", surrogate="square", random_state=0).fit(X, (X[:, :2] > 0).astype(int))


class TestModels:
    def test_saved_and_loaded(self, tmp_path):
        X = rows(300)
        clf = fitted(X)
        clf.save(tmp_path / "m.ccmn")
        loaded = load_model(tmp_path / "m.ccmn")
        for model in (clf, loaded):
            assert model.training_rows_.compare(scipy.sparse.csr_matrix(X)).share == 1
        np.testing.assert_array_equal(loaded.decision_function(X), clf.decision_function(X))
        loaded.save(tmp_path / "again.ccmn")
        assert (tmp_path / "again.ccmn").read_bytes() == (tmp_path / "m.ccmn").read_bytes()

    @pytest.mark.parametrize(
        "wrong", [np.arange(3.0), np.arange(5000), np.array([3, 1, 2]), np.zeros((2, 2), dtype=int)]
    )
    def test_damaged_sketch_is_rejected(self, tmp_path, wrong):
        from ccmn.models.persistence import read_model, write_model

        fitted(rows(300)).save(tmp_path / "m.ccmn")
        description, arrays = read_model(tmp_path / "m.ccmn")
        write_model(tmp_path / "wrong.ccmn", description, {**arrays, "training_row_hashes": wrong})
        with pytest.raises(ValueError, match="training_row_hashes"):
            load_model(tmp_path / "wrong.ccmn")

    def test_streamed_rows(self, tmp_path):
        from pyarrow import parquet

        X = rows(3000).astype(np.float32)
        columns = {f"x{j}": X[:, j] for j in range(6)} | {f"y{j}": (X[:, j] > 0).astype(np.int8) for j in range(2)}
        parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet", row_group_size=500)
        noise = PartialNoise(0.2, n_labels=2)
        clf = CCMNClassifier(noise, epochs=1, lr=0.01, random_state=0)
        clf.fit_stream(ShardedData(tmp_path, ["y0", "y1"]))
        np.testing.assert_array_equal(clf.training_rows_.hashes, RowSketch.of(X).hashes)
        assert SketchedSource(ShardedData(tmp_path, ["y0", "y1"])).gather() is None


@pytest.mark.parametrize(
    ("seen", "compared", "exact", "expected"),
    [
        (1, 4, False, False),  # one duplicate among few compared rows is no evidence
        (4, 4, False, True),
        (1, 1, False, True),
        (1, 4, True, True),
        (1, 20, True, False),
        (40, 400, False, True),
        (20, 400, False, False),
    ],
)
def test_large_share_of_training_rows(seen, compared, exact, expected):
    assert SeenRows(seen / compared, compared, exact).is_large is expected


def test_no_compared_row_is_no_large_share():
    assert not SeenRows(float("nan"), 0, exact=False).is_large
