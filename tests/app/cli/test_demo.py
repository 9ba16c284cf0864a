from app.report.checks import check_page


def test_demo_prints_a_table_and_writes_a_report(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("demo", "--quick")
    assert "noisy labels, true rates" in result.stdout
    assert result.stdout.count("0.") >= 18
    assert "report written to ccmn-demo/report.html" in result.stdout
    assert "ccmn review --demo" in result.stdout
    page = (tmp_path / "ccmn-demo" / "report.html").read_text()
    reader = check_page(page)
    assert reader.counts["h2"] == 5
    assert reader.counts["img"] == 24
    assert "http:" not in page
    assert len(page) < 500_000


def test_demo_json(printed, tmp_path):
    folder = tmp_path / "some" / "folder"
    folder.mkdir(parents=True)
    (folder / "report.html").write_text("old report")
    found = printed("demo", "--quick", "--random-state", 2, "--out", folder)
    assert list(found) == ["n_train", "n_test", "wrong_labels", "noise", "results", "report"]
    assert found["n_train"] == 1000
    assert len(found["results"]) == 8
    assert 0.2 < found["wrong_labels"] < 0.4
    assert found["report"] == str(folder / "report.html")
    assert (folder / "report.html").read_text().startswith("<!DOCTYPE html>")
