"""Rows that repeat others: they break splits, and intervals that count rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ccmn.data.dataset import MultiLabelData, duplicate_rows

MIN_OVERLAP = 0.8
"""Texts with at least this share of common words and pairs of words are near duplicates."""
N_BANDS, BAND_WIDTH = 8, 4
"""Texts are compared if all hashes of one band agree: with an overlap of 0.8, with a probability of 0.98."""


class Duplicates(NamedTuple):
    """Numbers of rows that repeat an earlier row."""

    exact: int
    """Rows with the same features."""
    near: int
    """Further rows whose text differs in a few words; 0 without texts."""

    def note(self, n: int) -> str:
        """Return a sentence about the repeated rows; empty if there are none."""
        if not self.exact + self.near:
            return ""
        near = f", and {self.near:,} nearly repeat{'s' if self.near == 1 else ''} one" if self.near else ""
        return (
            f"{self.exact:,} of {n:,} rows repeat{'s' if self.exact == 1 else ''} an earlier row{near}. "
            "Repeated rows in training and test sets make models look better than they are, and intervals too narrow."
        )


def count_duplicates(data: MultiLabelData) -> Duplicates:
    """Count the rows that repeat an earlier row."""
    exact = duplicate_rows(data.X) if data.d else 0
    if data.texts is None:
        return Duplicates(exact, 0)
    return Duplicates(exact, max(0, int(near_duplicates(data.texts).sum()) - exact))


def near_duplicates(texts: Sequence[str]) -> NDArray[np.bool_]:
    """Return which texts share most of their words and pairs of words with an earlier text.

    The texts that are compared are found by the minima of hashes.

    >>> near_duplicates(["the sea is blue and calm", "the sky", "The sea is blue, and calm!"])
    array([False, False,  True])
    """
    from sklearn.feature_extraction.text import HashingVectorizer

    shingles = HashingVectorizer(ngram_range=(1, 2), binary=True, norm=None, alternate_sign=False).transform(texts)
    size = np.diff(shingles.indptr)
    filled = np.flatnonzero(size)
    repeated = np.zeros(len(texts), dtype=bool)
    if not filled.size:
        return repeated
    hashes = np.random.default_rng(0).integers(0, 2**62, size=(N_BANDS * BAND_WIDTH, 2)) | 1
    columns, starts = shingles.indices.astype(np.int64), shingles.indptr[:-1][filled]
    for band in hashes.reshape(N_BANDS, BAND_WIDTH, 2):
        # Products wrap around.
        minima = np.stack([np.minimum.reduceat((columns * a + b) * a >> 7, starts) for a, b in band])
        _, first, bucket = np.unique(minima, axis=1, return_index=True, return_inverse=True)
        firsts = filled[first[bucket.ravel()]]
        rows, firsts = filled[filled != firsts], firsts[filled != firsts]
        common = np.asarray(shingles[rows].multiply(shingles[firsts]).sum(1)).ravel()
        overlap = common / (size[rows] + size[firsts] - common)
        repeated[rows[overlap >= MIN_OVERLAP]] = True
    return repeated
