import json

import numpy as np
from numpy.testing import assert_array_equal

from ccmn.data import read_file


def test_list(run, printed, offline):
    table = run("data", "list").stdout
    rows = printed("data", "list")
    names = [row["name"] for row in rows]
    assert {"yeast", "scene", "tmc_full"} < set(names)
    assert {row["here"] for row in rows} == {""}
    assert all(name in table for name in names)
    assert "21519" in table
    sizes = {row["name"]: (row["n"], row["paper"]["n"]) for row in rows}
    assert sizes["tmc_full"] == (28596, 21519)
    assert sizes["yeast"] == (2417, 2417)
    assert "28596" in table


def test_info_of_a_file(run, printed, files):
    found = printed("data", "info", "task.csv", "--labels", "sea,sky,sun")
    assert (found["n"], found["d"], found["q"], found["paper"]) == (300, 4, 3, None)
    assert "labels per row" in run("data", "info", "task.npz").stdout
    np.savez("gaps.npz", X=np.array([[np.nan], [1.0]]))
    assert (printed("data", "info", "gaps.npz")["d"], printed("data", "info", "gaps.npz")["q"]) == (1, 0)


def test_info_of_all_local_datasets(printed, real_data, tmp_path, rejected, offline):
    (tmp_path / "yeast.npz").symlink_to(real_data / "yeast.npz")
    assert [row["name"] for row in printed("data", "info", "--data-dir", tmp_path)] == ["yeast"]
    assert "no dataset is on this machine" in rejected("data", "info")


def test_fetch(run, printed, rejected, real_data, offline):
    assert "2417 rows" in run("data", "fetch", "yeast", "--data-dir", real_data).stdout
    found = printed("data", "fetch", "scene", "--data-dir", real_data)
    assert found == {"name": "scene", "here": "folder", "n": 2407, "d": 294, "q": 6}
    assert "music_style.npz was not found" in rejected("data", "fetch", "music_style")
    assert "could not download" in rejected("data", "fetch", "yeast")
    assert "--out requires the name ecg" in rejected("data", "fetch", "yeast", "--out", "yeast.npz")


def test_convert(run, task, files):
    run("data", "convert", "task.csv", "--labels", -3, "--out", "copy.npz")
    copy = read_file("copy.npz")
    assert_array_equal(copy.X, task.X)
    assert_array_equal(copy.Y, task.Y)
    assert copy.label_names == task.label_names
    out = run("data", "convert", "copy.npz", "--out", "again.csv", "--json").stdout
    assert json.loads(out) == {"out": "again.csv", "n": 300, "d": 4, "q": 3}
    assert_array_equal(read_file("again.csv", labels=["sea", "sky", "sun"]).X, task.X)


def test_convert_errors(rejected, files):
    assert "already exists; use --force" in rejected("data", "convert", "task.npz", "--out", "task.csv")
    assert "Known: .npz, .csv" in rejected("data", "convert", "task.npz", "--out", "task.xlsx")
    assert "folder nowhere does not exist" in rejected("data", "convert", "task.npz", "--out", "nowhere/task.csv")
    (files / "bad.csv").write_text("x,sea\n1,0\n2,red\n")
    assert "bad.csv, line 3: 'red'" in rejected("data", "convert", "bad.csv", "--labels", "sea", "--out", "new.npz")
    assert not (files / "new.npz").exists()
