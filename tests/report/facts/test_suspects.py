from __future__ import annotations

import numpy as np

from ccmn.audit import find_label_issues
from ccmn.noise import ClassConditionalNoise
from ccmn.report.facts.instances import Snippet
from ccmn.report.facts.suspects import suspect_facts


def facts(**more):
    rng = np.random.default_rng(0)
    Y = rng.integers(0, 2, (20, 3)).astype(np.float64)
    issues = find_label_issues(Y, rng.uniform(0.2, 0.8, (20, 3)), ClassConditionalNoise(0.2, 0.2, n_labels=3), 0.0)
    found = suspect_facts(issues, Y, ["0", "1", "2"], lambda row, j: Snippet(f"{row} {j}"), "", most=5, **more)
    return Y, issues, found


def test_suspects_are_the_first_issues():
    Y, issues, found = facts()
    assert found.found == 60
    assert len(found.suspects) == 5
    for suspect, (_, issue) in zip(found.suspects, issues.iterrows()):
        row, label = int(issue.row), int(issue.label)
        assert (suspect.row, suspect.label, suspect.given) == (row, str(label), Y[row, label])
        assert suspect.p_wrong == issue.p_wrong
        assert suspect.others == tuple(str(k) for k in range(3) if Y[row, k] == 1)
        assert suspect.instance == Snippet(f"{row} {label}")
    assert found.wrong is None


def test_where_the_truth_is_known():
    Y_true = np.zeros((20, 3))
    found = facts(Y_true=Y_true)[2]
    assert [suspect.is_wrong for suspect in found.suspects] == [suspect.given == 1 for suspect in found.suspects]
    assert found.wrong == sum(suspect.given for suspect in found.suspects)
