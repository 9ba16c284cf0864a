"""Tests of checks that have no public entry point of their own, and of messages."""

from __future__ import annotations

import numpy as np
import pytest

from ccmn._validation import check_candidates, check_feature_names, check_label_names, check_real, name_some


@pytest.mark.parametrize(("check", "what"), [(check_label_names, "label"), (check_feature_names, "feature")])
def test_names_are_unique_and_complete(check, what):
    assert check(["sea", 7], 2) == ("sea", "7")
    assert check(None, 2) is None
    with pytest.raises(ValueError, match=rf"{what}_names must give one name per {what} \(3\); got 2 names"):
        check(["sea", "sky"], 3)
    with pytest.raises(ValueError, match=f"one name per {what}.*got 'ab'"):
        check("ab", 2)
    with pytest.raises(ValueError, match=f"one name per {what}.*got 5"):
        check(5, 2)
    with pytest.raises(ValueError, match=f"{what}_names must be unique; '1' occurs more than once"):
        check([1, "1"], 2)


def test_messages_name_at_most_five_labels():
    assert name_some(range(7), None, 9) == "labels 0, 1, 2, 3, 4 and 2 more (of 9)"
    assert name_some([1], ["sea", "sky"], 2) == "label 'sky' (of 2)"


@pytest.mark.parametrize(
    ("value", "message"), [("much", "must be a number; got 'much'"), (0, "above 0; got 0"), (np.nan, "got nan")]
)
def test_numbers_outside_an_open_interval(value, message):
    with pytest.raises(ValueError, match=f"C .*{message}"):
        check_real(value, "C", 0, float("inf"))


def test_candidates_that_are_not_numbers():
    with pytest.raises(ValueError, match=r"candidates must be numbers 0 or 1 .* got dtype object"):
        check_candidates(np.array([["a", None]], dtype=object))
