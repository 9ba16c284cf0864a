from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from ccmn.data import MultiLabelData, load_dataset
from ccmn.data.catalog import DATASETS
from ccmn.data.dataset import describe

# cardinality, candidates' mean size, feature density, rows without features, duplicate rows, positives min/median/max
MEASURED = {
    "enron": (3.378, None, 0.084, 8, 141, (1, 26, 913)),
    "scene": (1.074, None, 0.989, 0, 9, (364, 429, 533)),
    "yeast": (4.237, None, 1.0, 0, 0, (34, 659.5, 1816)),
    "slashdot": (1.181, None, 0.0075, 33, 42, (0, 179.5, 584)),
    "tmc": (2.226, None, 0.045, 11, 347, (304, 1123, 12876)),
    "tmc_full": (2.158, None, 0.045, 11, 1826, (441, 1473, 16173)),
    "mirflickr": (1.771, 3.353, 1.0, 0, 0, (177, 648, 3766)),
}


@pytest.mark.parametrize("name", MEASURED)
def test_real_data(real_data, name):
    cardinality, candidates, density, empty, duplicates, positives = MEASURED[name]
    data = load_dataset(name, data_dir=real_data)
    found = describe(data)
    assert found.cardinality == pytest.approx(cardinality, abs=5e-4)
    assert found.label_density == pytest.approx(found.cardinality / data.q)
    assert found.candidate_size == (candidates and pytest.approx(candidates, abs=5e-4))
    assert found.feature_density == pytest.approx(density, abs=5e-4)
    assert (found.rows_without_features, found.duplicate_rows) == (empty, duplicates)
    assert (found.positives_min, found.positives_median, found.positives_max) == positives
    assert found.domain == DATASETS[name].domain


@pytest.mark.parametrize("name", ["music_emotion", "music_style", "mirflickr"])
def test_labels_only(real_data, name):
    found = describe(load_dataset(real_data / f"{name}_labels.npz"))
    assert (found.n, found.q) == (DATASETS[name].paper.n, DATASETS[name].paper.q)
    assert found.d == found.duplicate_rows == found.rows_without_features == 0
    assert int(found.cardinality * 100) / 100 == DATASETS[name].paper.cardinality  # truncated, as in the paper
    assert found.candidate_size > found.cardinality


def test_sparse_and_dense_agree():
    X = np.array([[0, 1], [0, 0], [-0.0, 1], [2, 0], [0, 0]], dtype=np.float32)
    Y = [[1, 0], [0, 0], [1, 1], [0, 0], [1, 0]]
    stored_zero = scipy.sparse.csr_array(([1.0, 0, 1, 2, 0], [1, 0, 1, 0, 1], [0, 1, 2, 3, 4, 5]), shape=(5, 2))
    dense, sparse = describe(MultiLabelData(X, Y)), describe(MultiLabelData(stored_zero, scipy.sparse.csr_array(Y)))
    assert dense == sparse
    assert (dense.rows_without_features, dense.duplicate_rows) == (2, 2)
    assert (dense.positives_min, dense.positives_median, dense.positives_max) == (1, 2.0, 3)
