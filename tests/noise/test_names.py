"""Checks of label names: labels in another order are rejected, labels without names are accepted."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from ccmn import metrics
from ccmn.models import CorrectedClassifier
from ccmn.noise import ClassConditionalNoise, GroupedNoise

NOISE = ClassConditionalNoise([0.1, 0.2], [0.3, 0.0], label_names=["sea", "sky"])
Y = pd.DataFrame([[1, 0], [0, 1], [1, 1], [0, 0]], columns=["sea", "sky"])
REORDERED, UNNAMED, RENAMED = Y[["sky", "sea"]], pd.DataFrame(Y.to_numpy()), Y.rename(columns={"sky": "sun"})


def grouped(labels, method):
    noise = GroupedNoise({"a": NOISE})
    return getattr(noise, method)(labels, ["a"] * len(labels))


CALLS = {
    "corrupt": lambda labels: NOISE.corrupt(labels, random_state=0),
    "debias": NOISE.debias,
    "grouped corrupt": lambda labels: grouped(labels, "corrupt"),
    "grouped debias": lambda labels: grouped(labels, "debias"),
    "from pairs": lambda labels: ClassConditionalNoise.from_pairs(Y, labels),
    "corrected": lambda labels: CorrectedClassifier(LogisticRegression(), NOISE).fit(np.eye(4), labels),
    **{name: lambda labels, row=row: row.function(labels, _other(row)) for name, row in metrics.METRICS.items()},
    **{
        f"{name} with noise": lambda labels, row=row: row.function(labels, _other(row).to_numpy(), noise=NOISE)
        for name, row in metrics.METRICS.items()
    },
}


def _other(row):
    return Y if row.needs == "labels" else Y + np.array([0.1, 0.2])


@pytest.mark.parametrize("name", CALLS)
def test_other_names_or_order_are_rejected(name):
    with pytest.raises(ValueError, match=r"sky, sea|sea, sky"):
        CALLS[name](REORDERED)
    with pytest.raises(ValueError, match="sun"):
        CALLS[name](RENAMED)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("labels", [Y, UNNAMED, Y.to_numpy()], ids=["named", "unnamed", "array"])
def test_same_order_or_no_names_do_not_raise(name, labels):
    CALLS[name](labels)
