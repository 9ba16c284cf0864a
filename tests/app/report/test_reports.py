"""Reports of audits and of results: escaped, self-contained, and one set of numbers in charts, tables and cards."""

import json
import math
import os
import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from app.report.checks import check_page
from ccmn.app.report.instances import informative_features
from ccmn.noise import ClassConditionalNoise
from ccmn.paper.result_store import Cell, Result, ResultStore

HOSTILE = ["<script>alert(1)</script>", 'a"b', "c'd", "x & y", "</section>", "</style><img src=x>"]
NOISE = ClassConditionalNoise(0.1, 0.1, n_labels=6, label_names=HOSTILE)


@pytest.fixture
def table(tmp_path, monkeypatch):
    """Write a table whose names are hostile, and its rates; return the table."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 6))
    table = pd.DataFrame(X, columns=[f"<i>{j}" for j in range(6)])
    table.insert(0, "id", [f"T<{i}>" for i in range(60)])
    Y = (rng.normal(size=(6, 6)) @ X.T > 0).T.astype(int)
    table[HOSTILE] = NOISE.corrupt(Y, random_state=0)
    monkeypatch.chdir(tmp_path)
    table.to_csv("a<b>.csv", index=False)
    (tmp_path / "rates.json").write_text(json.dumps(NOISE.to_dict()))
    return table


@pytest.fixture
def audit(run, table, tmp_path):
    """Return a function that audits the table and returns the page."""

    def audit(*options, source="a<b>.csv"):
        run("audit", source, "--labels", -6, "--id", "id", *options, "--top", 24, "--report", "r.html", "--force")
        return (tmp_path / "r.html").read_text()

    return audit


def test_page_is_escaped_and_linked_and_makes_no_requests(audit, table):
    page = audit("--noise", "rates.json", "--min-p-wrong", 0)
    assert set(HOSTILE) <= {text.strip() for text in check_page(page).text}
    rows = re.findall(r">Review row (\d+)<", page)
    assert set(re.findall(r"https?:[^\"<]*", page)) == {f"http://127.0.0.1:8765/go/{row}" for row in rows}
    assert len(set(rows)) == len(rows) == 24
    assert "url(" not in page
    assert re.search("<code>ccmn review &#39;a&lt;b&gt;.csv&#39; .*--port 8765</code>", page)
    assert f"row {rows[0]} (T&lt;{rows[0]}&gt;)" in page
    anchors = re.findall(r'<a href="#(\w+)"', page)
    assert anchors == re.findall(r'<h2 id="(\w+)"', page) == ["issues", "rates", "metrics", "average_precision", "data"]
    for part in re.findall(r"<section>.*?</section>", page, flags=re.DOTALL):
        assert ("<svg" in part) <= ("<summary>numbers" in part)
    ranked = audit()
    assert re.findall(r"rank (\d+), row", ranked) == [str(i) for i in range(1, 25)]
    assert "rho_pos" not in ranked


def test_the_most_important_warning_is_on_the_first_screen(audit, printed, table, tmp_path):
    content = printed("noise", "estimate", "a<b>.csv", "--labels", -6, "--id", "id")
    content["estimate"]["flags"] = [["wide_interval", "poorly identified", 1], ["few_rows", "few rows", None]]
    (tmp_path / "rates.json").write_text(json.dumps(content))
    page = audit("--noise", "rates.json")
    assert page.index("<b>Note.</b> a&#34;b: poorly identified") < page.index("<h2")
    assert '<a href="#rates">1 more</a>' in page
    assert "<summary>2 warnings about these rates" in page


def test_texts_are_escaped_and_cut(audit, table):
    table["words"] = ["<script>x</script> & more" if i % 2 else "two \n lines" * 60 for i in range(60)]
    table[["id", "words", *HOSTILE]].to_csv("texts.csv", index=False)
    texts = check_page(audit("--text", "words", source="texts.csv")).text
    assert "<script>x</script> & more" in texts
    assert ("two lines" * 60)[:279] + "…" in texts


def test_only_pictures_inside_the_folder_are_shown(audit, table, tmp_path, monkeypatch):
    image = pytest.importorskip("PIL.Image", reason="pillow is not installed: pip install pillow")
    folder = tmp_path / "pictures"
    folder.mkdir()
    image.new("RGB", (4, 3)).save(folder / "good.png")
    image.new("RGB", (4, 3)).save(tmp_path / "outside.png")
    image.new("RGB", (50, 50)).save(folder / "huge.png")
    (folder / "link.png").symlink_to(tmp_path / "outside.png")
    (folder / "loop.png").symlink_to(folder / "loop.png")
    (folder / "cut.png").write_bytes((folder / "good.png").read_bytes()[:40])
    os.mkfifo(folder / "pipe.png")
    monkeypatch.setattr(image, "MAX_IMAGE_PIXELS", 100)  # a picture of a few bytes can declare any number of pixels
    wrong = ["../outside.png", str(tmp_path / "outside.png"), "link.png", "loop.png", "cut.png", "pipe.png", "huge.png"]
    names = ["good.png", *wrong, "x" * 5000, "absent.png"]
    table.insert(1, "file", [names[i % len(names)] for i in range(60)])
    table.to_csv(folder / "files.csv", index=False)
    reader = check_page(audit("--image", "file", source=folder / "files.csv"))
    shown = [names[int(row) % len(names)] for row in re.findall(r"rank \d+, row (\d+)", " ".join(reader.text))]
    assert reader.counts["img"] == shown.count("good.png") > 0
    assert set(wrong) <= {text.strip() for text in reader.text} | (set(wrong) - set(shown))


@pytest.mark.parametrize("container", [np.asarray, scipy.sparse.csr_array])
def test_informative_features_match_correlations(container):
    rng = np.random.default_rng(0)
    X = rng.poisson(1.0, size=(60, 8)).astype(np.float64)
    X[:, 7] = 3.0  # constant, no evidence
    Y = (X[:, :2] + rng.normal(size=(60, 2)) > 1).astype(np.float64)
    shown = informative_features(container(X), Y, [f"x{j}" for j in range(8)])(5, 1).features
    z = [(X[5, j] - X[:, j].mean()) / X[:, j].std() for j in range(7)]
    expected = {f"x{j}": z[j] * np.corrcoef(X[:, j], Y[:, 1])[0, 1] for j in range(7)}
    most = sorted(expected, key=lambda name: -abs(expected[name]))[:5]
    assert [name for name, _, _ in shown] == most
    assert [evidence for *_, evidence in shown] == pytest.approx([expected[name] for name in most])
    assert [float(value) for _, value, _ in shown] == [X[5, int(name[1:])] for name in most]
    cells = pd.DataFrame({"city": ["Rome", "Oslo"] * 30, "age": [31.0, np.nan] * 30})
    X = rng.normal(size=(60, 3))
    single = {name: evidence for name, _, evidence in informative_features(X, Y, ["a", "b", "c"])(3, 0).features}
    of_cells = informative_features(X, Y, ["age", "city", "city"], cells)(3, 0).features
    found = {name: (value, evidence) for name, value, evidence in of_cells}
    assert found["age"] == ("–", pytest.approx(single["a"]))
    assert found["city"] == ("Oslo", pytest.approx(single["b"] + single["c"]))


# -- Tables of stored results: the terminal, the page and the file have the same values

VALUES = {
    "unbiased-hamming-square": [0.20, 0.21, 0.22],
    "plain-hamming-square": [0.30, 0.31, 0.33],
    "PARTICLE": [0.10, 0.11, 0.13],
    "fPML": [math.nan] * 3,
}


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    with ResultStore(tmp_path / "results.db") as results:
        results.append(
            Result(
                Cell("table1", "literal", "yeast", method, repeat, 100, "{}"),
                {"values": {"clean": {"hamming_loss": value}}},
                seconds=1.0,
                machine={},
            )
            for method, runs in VALUES.items()
            for repeat, value in enumerate(runs)
        )
    return tmp_path


def test_all_outputs_have_the_same_values_marks_and_gaps(run, printed, store):
    table = run("report", "results.db", "--out", "page.html").stdout
    page = (store / "page.html").read_text()
    texts = check_page(page).text
    summary = next(found for found in printed("report", "results.db") if found["selection"] == "clean")
    entries = {entry["method"]: entry for entry in summary["entries"]}
    for method, mark, sign, best in (("plain-hamming-square", "better", "•", ""), ("PARTICLE", "worse", "∘", "*")):
        entry = entries[method]
        assert (entry["mark"], entry["best"]) == (mark, bool(best))
        assert f"{entry['mean']:.3f}"[1:] + sign + best in table
        assert f"{entry['mean']:.3f} ± {entry['std']:.3f}{sign}" in texts
    assert "<b>0.113 ± 0.015∘</b>" in page
    assert '<th scope="row">fPML</th><td class="faint">–</td>' in page
    assert '<a href="#table1-literal">table1</a>' in page
    assert '<h2 id="table1-literal">' in page
