"""A true multi-label task out of real images that come with scikit-learn: which digits are in the picture?"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccmn._random import RandomState, as_generator
from ccmn._validation import check_count
from ccmn.data.multilabel import MultiLabelData

PICTURE = (16, 24)
_SLOTS = [(row, column) for row in (0, 8) for column in (0, 8, 16)]


def load_digit_scenes(n: int = 6000, *, most: int = 4, random_state: RandomState = 0) -> MultiLabelData:
    """Pictures of 16 x 24 pixels with one to ``most`` handwritten digits in them; the label set is the digits.

    Every picture is a grid of 2 x 3 places; the digits, scikit-learn's 1797 images of 8 x 8, are put into different
    places at random, and a digit may be there twice. X is (n, 384) in [0, 1], Y is (n, 10).

    The pictures of the first half of the rows and of the second are made of different handwritten images, so that
    a model trained on the one can be tested on the other.

    >>> data = load_digit_scenes(100)
    >>> data.X.shape, data.Y.shape, data.label_names[:3]
    ((100, 384), (100, 10), ('0', '1', '2'))
    """
    from sklearn.datasets import load_digits

    n, most = check_count(n, "n"), check_count(most, "most")
    rng = as_generator(random_state)
    images, classes = load_digits(return_X_y=True)
    order = rng.permutation(len(images))
    halves = np.array_split(order, 2)
    sizes = (n - n // 2, n // 2)
    parts = [_compose(images[half], classes[half], size, most, rng) for half, size in zip(halves, sizes)]
    X, Y = (np.concatenate(blocks) for blocks in zip(*parts))
    return MultiLabelData(X=X, Y=Y, label_names=tuple(str(digit) for digit in range(10)), name="digit scenes")


def _compose(
    images: NDArray[Any], classes: NDArray[Any], n: int, most: int, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """n pictures of these images, and their label sets."""
    X = np.zeros((n, *PICTURE), dtype=np.float32)
    Y = np.zeros((n, 10), dtype=np.uint8)
    for i, count in enumerate(rng.integers(1, min(most, len(_SLOTS)) + 1, size=n)):
        chosen = rng.integers(len(images), size=count)
        for slot, image in zip(rng.permutation(len(_SLOTS)), chosen):
            row, column = _SLOTS[slot]
            X[i, row : row + 8, column : column + 8] = images[image].reshape(8, 8) / 16
        Y[i, classes[chosen]] = 1
    return X.reshape(n, -1), Y
