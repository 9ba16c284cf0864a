"""Runs of a table: interrupted, resumed, in several processes, with failures. The results are always the same."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccmn.data import MultiLabelData, load_digit_scenes, make_noisy_multilabel, write_file
from ccmn.paper import runner
from ccmn.paper.protocols import INJECTED, MODERATE, REAL, make_repeat, split
from ccmn.paper.result_store import ResultStore, rows
from ccmn.paper.runner import prepare, run_columns
from ccmn.paper.tables import TABLES

METHODS = ["unbiased-hamming-square", "plain-hamming-square", "unbiased-ranking-sigmoid"]


def small(**options):
    return prepare(["table1"], small=True, **options)


def values(path):
    with ResultStore(path) as store:
        return list(rows(store.results()))


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    """Return the values of an uninterrupted run."""
    path = tmp_path_factory.mktemp("complete") / "r.db"
    with ResultStore(path) as store:
        run_columns(small().columns, store, methods=METHODS)
    return values(path)


def test_second_run_has_nothing_to_do(tmp_path, complete, monkeypatch):
    with ResultStore(tmp_path / "r.db") as store:
        run_columns(small().columns, store, methods=METHODS)
        monkeypatch.setattr(runner, "run_group", lambda *_: pytest.fail("run twice"))
        run_columns(small().columns, store, methods=METHODS)
    assert values(tmp_path / "r.db") == complete


def test_run_interrupted_after_each_group(tmp_path, complete):
    class StopError(Exception):
        pass

    def stop(done):
        raise StopError

    path, ended = tmp_path / "r.db", False
    for _ in range(20):
        with ResultStore(path) as store:
            try:
                run_columns(small().columns, store, methods=METHODS, on_progress=stop)
                ended = True
                break
            except StopError:
                continue
    assert ended
    assert values(path) == complete


@pytest.mark.slow
def test_several_processes(tmp_path, complete):
    finished = []
    with ResultStore(tmp_path / "r.db") as store:
        run_columns(small().columns, store, methods=METHODS, jobs=2, on_progress=finished.append)
    found = values(tmp_path / "r.db")
    np.testing.assert_allclose([float(r[-1]) for r in found], [float(r[-1]) for r in complete], atol=1e-6)
    assert finished[-1].cost == pytest.approx(finished[-1].total)


def test_failure_is_stored_and_retried_on_request(tmp_path, monkeypatch):
    columns = small(protocols=["literal"]).columns
    broken = lambda *_, **__: (_ for _ in ()).throw(MemoryError("too much"))  # noqa: E731
    with ResultStore(tmp_path / "r.db") as store:
        with monkeypatch.context() as patch:
            patch.setattr(runner, "Fleet", broken)
            run_columns(columns, store, methods=METHODS[:1])
        assert [r.error for r in store.results()] == ["MemoryError: too much"] * 2
        run_columns(columns, store, methods=METHODS[:1])
        assert all(r.failed for r in store.results())
        run_columns(columns, store, methods=METHODS[:1], retry_failed=True)
        assert not any(r.failed for r in store.results())


def test_data_file_as_column(tmp_path):
    path = tmp_path / "mine.npz"
    write_file(load_digit_scenes(200), path)
    (column,) = small(datasets=[str(path)], protocols=["moderate"]).columns
    assert column.dataset == "mine"
    assert column.protocol.batch_size("mine") == 100


def test_unavailable_data_sets_are_listed(tmp_path, monkeypatch):
    def reject(name, data_dir=None):
        raise FileNotFoundError(f"{name} was not found\nPut it there.")

    monkeypatch.setattr("ccmn.paper.runner.load_dataset", reject)
    with pytest.raises(ValueError, match=r"nothing to run: .*yeast: yeast was not found; enron"):
        prepare(["table1"], data_dir=tmp_path)
    with pytest.raises(FileNotFoundError, match="yeast was not found"):
        prepare(["table1"], datasets=["yeast"], data_dir=tmp_path)


def test_unknown_names(tmp_path):
    with pytest.raises(ValueError, match="unknown table"):
        prepare(["table9"])
    with (
        ResultStore(tmp_path / "r.db") as store,
        pytest.raises(ValueError, match="did you mean 'unbiased-hamming-square'"),
    ):
        run_columns(small().columns, store, methods=["unbiased-hamming-sqare"])
    with pytest.raises(ValueError, match="has no protocol mild; expected one of literal, moderate"):
        small(protocols=["literal", "mild"])


def test_configuration_has_not_changed():
    """The keys of stored results are hashes of this text."""
    assert "refit" not in small().columns[0].configuration
    column = prepare(["journal1"], small=True, random_state=3).columns[0]
    stored = json.loads(column.configuration)
    assert len(stored.pop("data")) == 16
    assert stored == {
        "batch_size": 100,
        "choices": [0.1, 0.2, 0.3, 0.4, 0.5],
        "draw": "both_ways",
        "epochs": 10,
        "estimator": "posterior",
        "fractions": [0.48, 0.12, 0.4],
        "learning_rates": [0.01, 0.001],
        "max_sum": None,
        "metrics": ["hamming_loss", "ranking_loss", "average_precision", "coverage"],
        "model": "linear",
        "name": "literal",
        "procedure": 2,
        "refit": True,
        "seed": 3,
        "weight_decay": 0.0001,
    }


def test_tables_match_the_printed_values():
    from ccmn.paper.tables import printed_values

    for name, table in TABLES.items():
        printed = [key for key in printed_values() if key[0] == name]
        methods, datasets, metrics = ({key[i] for key in printed} for i in (2, 1, 3))
        assert methods <= set(table.methods)
        assert metrics == set(table.metrics)
        assert set(table.datasets) <= datasets


# -- Protocols: splits, noisy labels and stored settings


@pytest.fixture(scope="module")
def data():
    task = make_noisy_multilabel(300, 8, 5, random_state=0)
    candidates = np.maximum(task.Y, np.random.default_rng(1).random(task.Y.shape) < 0.3)
    return MultiLabelData(X=task.X, Y=task.Y, candidates=candidates)


def test_repeats_are_reproducible_and_differ(data):
    a, b = ([make_repeat(data, MODERATE, k, random_state=4) for k in range(3)] for _ in range(2))
    assert all(np.array_equal(x.train, y.train) and np.array_equal(x.noisy, y.noisy) for x, y in zip(a, b))
    assert not np.array_equal(a[0].train, a[1].train)
    assert max((r.noise.rho_pos + r.noise.rho_neg).max() for r in a) <= 0.6 + 1e-9
    assert len(a[0].train) + len(a[0].validation) + len(a[0].test) == 300


def test_injected_noise_adds_labels_with_one_rate(data):
    repeats = [make_repeat(data, INJECTED, k) for k in range(8)]
    for repeat in repeats:
        assert (repeat.noisy >= data.Y).all()
        assert len(set(repeat.noise.rho_neg)) == 1
        assert not repeat.noise.rho_pos.any()
    assert len({r.noise.rho_neg[0] for r in repeats}) > 1


def test_rates_of_real_candidate_sets_are_those_of_the_training_rows(data):
    repeat = make_repeat(data, REAL, 0)
    Y, C = np.asarray(data.Y)[repeat.train], np.asarray(data.candidates)[repeat.train]
    expected = [(C[:, j] & (1 - Y[:, j])).sum() / (1 - Y[:, j]).sum() for j in range(5)]
    np.testing.assert_allclose(repeat.noise.rho_neg, expected)
    assert repeat.noisy is data.candidates


@given(st.integers(10, 5000), st.integers(0, 2**32))
def test_parts_of_a_split_are_disjoint_and_complete(n, seed):
    parts = split(n, (0.5, 0.2, 0.3), random_state=seed)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(n))
    assert np.abs(np.array([len(part) for part in parts]) - np.array([0.5, 0.2, 0.3]) * n).max() <= 1


def test_splits_of_the_paper():
    assert [len(part) for part in split(2417, (0.5, 0.2, 0.3), random_state=0)] == [1208, 484, 725]
    with pytest.raises(ValueError, match="n=2 rows are too few"):
        split(2, (0.5, 0.2, 0.3))
    with pytest.raises(ValueError, match="fractions must be positive numbers with sum 1"):
        split(10, (0.5, 0.6))
