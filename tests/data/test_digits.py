from __future__ import annotations

from ccmn.data import load_digit_scenes


def test_labels_are_the_digits_shown():
    data = load_digit_scenes(400, max_digits=3, random_state=0)
    assert data.X.shape == (400, 384)
    assert 0 <= data.X.min() <= data.X.max() <= 1
    filled = data.X.reshape(400, 2, 8, 3, 8).sum((2, 4)) > 0
    # A digit may occur twice, so there are at most as many labels as filled cells.
    assert (data.Y.sum(1) >= 1).all()
    assert (data.Y.sum(1) <= filled.sum((1, 2))).all()
    assert filled.sum((1, 2)).max() == 3


def test_halves_use_different_images():
    data = load_digit_scenes(600, random_state=0)
    tiles = data.X.reshape(600, 2, 8, 3, 8).transpose(0, 1, 3, 2, 4).reshape(600, 6, 64)
    seen = [{t.tobytes() for t in half.reshape(-1, 64) if t.any()} for half in (tiles[:300], tiles[300:])]
    assert not seen[0] & seen[1]
