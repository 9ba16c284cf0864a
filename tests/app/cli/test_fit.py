from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose

from ccmn.data import write_file
from ccmn.models import load_model

QUICK = ("--method", "ranking", "--epochs", 3, "--lr", 0.05)


def test_options_reach_the_estimator(run, files):
    options = ("--epochs", 4, "--lr", 0.01, "--lr", 0.1, "--device", "cpu", "--random-state", 7)
    run("fit", "task.npz", "--noise", "none", "--method", "ranking", *options, "--out", "model.ccmn")
    parameters = load_model("model.ccmn").get_params()
    assert list(parameters["lr"]) == [0.01, 0.1]
    expected = {"loss": "ranking", "epochs": 4, "device": "cpu", "random_state": 7}
    assert {name: parameters[name] for name in expected} == expected


def test_validation_file(run, task, files):
    """Columns of the validation file are matched by name."""
    order = [2, 0, 3, 1]
    names = [task.feature_names[j] for j in order]
    write_file(replace(task, X=task.X[:, order], feature_names=names), files / "validation.csv")
    arguments = ("fit", "task.npz", "--noise", "none", *QUICK)
    history = {}
    for name in ("validation.csv", "task.npz"):
        run(*arguments, "--validation", name, "--out", f"{name}.ccmn")
        history[name] = load_model(f"{name}.ccmn").history_
    assert_allclose(history["validation.csv"], history["task.npz"])


def test_sparse_labels_stay_sparse_and_keep_their_names(run, files, monkeypatch):
    rng = np.random.default_rng(0)
    rows = [f"{k % 2}{',2' if k % 3 else ''} 1:{rng.random():.3f} 2:{k % 2}" for k in range(60)]
    (files / "rows.svm").write_text("\n".join(rows) + "\n")
    (files / "names.txt").write_text("sea\nsky\nsun\n")
    monkeypatch.setattr("scipy.sparse.csr_array.toarray", _reject)
    monkeypatch.setattr("ccmn.models.targets.MIN_SPARSE_ENTRIES", 10)
    command = ("fit", "rows.svm", "--labels", "names.txt", "--noise", "none", *QUICK, "--out", "m.ccmn")
    run(*command, "--validation", "rows.svm")
    monkeypatch.undo()
    assert load_model(files / "m.ccmn").label_names_ == ("sea", "sky", "sun")


def _reject(self, *_, **__):
    if self.shape == (60, 3):
        raise AssertionError("labels were made dense")
    return scipy.sparse.csr_matrix(self).toarray()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["task.npz", "--noise", "rates.json"], "rates of 2 labels"),
        (["task.npz", "--method", "ranking", "--validation", "none.npz"], "there is no file none.npz"),
        (["task.npz", "--method", "ranking", "--validation", "other.npz"], "fitted on 4 features; got 2"),
        (["task.npz", "--text", "review"], "--text, --image, --id and --ignore require a table"),
        (["bare.npz"], "there are no features in these data"),
    ],
)
def test_errors(rejected, files, task, arguments, message):
    (files / "rates.json").write_text('{"kind": "partial", "rho_neg": [0.1, 0.2]}')
    write_file(type(task)(task.X[:, :2], task.Y), files / "other.npz")
    write_file(type(task)(task.X[:, :0], task.Y), files / "bare.npz")
    assert message in rejected("fit", *arguments, "--out", "model.ccmn")
    assert not (files / "model.ccmn").exists()


@pytest.fixture
def shards(files, task):
    """Task as a folder of three Parquet files."""
    pa = pytest.importorskip("pyarrow", reason="reading Parquet needs pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = dict(zip((*task.feature_names, *task.label_names), (*task.X.T, *task.Y.T)))
    folder = files / "shards"
    folder.mkdir()
    for i in range(3):
        parquet.write_table(pa.table(columns).slice(100 * i, 100), folder / f"{i}.parquet", row_group_size=25)
    return folder


def test_shards(shards, printed, rejected, run):
    labels = "sea,sky,sun"
    result = printed("fit", shards, "--labels", labels, "--noise", "none", *QUICK, "--out", "m.ccmn")
    assert (result["n"], result["d"], result["q"]) == (300, 4, 3)
    predicted = run("predict", "m.ccmn", "task.csv")
    assert predicted.stdout.startswith("row,sea,sky,sun,p(sea)")
    assert predicted.stderr == ""
    command = ("fit", shards, "--labels", "sea", "--out", "m.ccmn")
    assert "require a file" in rejected(*command, "--text", "sky", "--method", "ranking", code=2)
    assert "A folder of Parquet files requires --method" in rejected(*command, code=2)
    again = ("fit", shards, "--labels", labels, "--noise", "none", *QUICK, "--out", "m.ccmn", "--force")
    assert printed(*again, "--validation", "task.csv")["model"] == "m.ccmn"
