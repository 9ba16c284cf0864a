"""The reading errors in electrocardiograms that the guide reports."""

import re

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from ccmn import find_label_issues
from pages import DOCS


@pytest.fixture(scope="module")
def ecg(real_data):
    path = real_data / "real" / "ecg.npz"
    if not path.exists():
        pytest.skip("requires real/ecg.npz in the folder CCMN_DATA")
    return np.load(path)


def test_students_errors_are_at_the_top_of_the_list(ecg):
    students, truth, network = ecg["Y_medical_students"], ecg["Y_true"], ecg["scores"][:, 0]
    issues = find_label_issues(students, network)
    assert len(issues) == students.size
    wrong = (students != truth)[issues.row, issues.label]
    counts = [int(wrong[:k].sum()) for k in (10, 25, 50)]
    expected = [f"{k * wrong.mean():.1f}" for k in (10, 25, 50)]
    text = (DOCS / "guides" / "labels.md").read_text()
    rows = [re.findall(r"[\d.]+", line) for line in text.splitlines() if line.startswith("| wrong labels in ")]
    assert rows == [[str(count) for count in counts], expected]
    precision = average_precision_score(wrong, -np.arange(len(wrong)))
    assert f"The average precision of the ranking is {precision:.2f}".replace("0.", ".") in text
    assert f"{wrong.sum()} of {wrong.size:,} labels, a share of {wrong.mean():.3f}".replace(" 0.", " .") in text
