"""Names of labels and features."""

from __future__ import annotations

import pytest

from ccmn._validation import check_feature_names, check_label_names


@pytest.mark.parametrize(("check", "what"), [(check_label_names, "label"), (check_feature_names, "feature")])
def test_one_name_each_and_none_twice(check, what):
    assert check(["sea", 7], 2) == ("sea", "7")
    assert check(None, 2) is None
    with pytest.raises(ValueError, match=rf"{what}_names must give one name per {what} \(3\); got 2 names"):
        check(["sea", "sky"], 3)
    with pytest.raises(ValueError, match=f"one name per {what}.*got 'ab'"):
        check("ab", 2)
    with pytest.raises(ValueError, match=f"one name per {what}.*got 5"):
        check(5, 2)
    with pytest.raises(ValueError, match=f"{what}_names must differ; '1' stands there more than once"):
        check([1, "1"], 2)
