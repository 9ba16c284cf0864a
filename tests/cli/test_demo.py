from __future__ import annotations


def test_demo_prints_a_table(run):
    result = run("demo", "--quick")
    assert "noisy, unbiased" in result.stdout
    assert result.stdout.count("0.") >= 18


def test_demo_json(printed):
    found = printed("demo", "--quick", "--seed", 2)
    assert found["n_train"] == 1000
    assert len(found["results"]) == 8
    assert 0.2 < found["wrong_labels"] < 0.4
