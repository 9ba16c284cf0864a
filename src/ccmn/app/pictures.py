"""Pictures of rows: features that are pixels, and picture files in one folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccmn._pictures import to_pixels


def feature_pixels(X: Any, shape: tuple[int, ...]) -> Callable[[int], NDArray[np.uint8]]:
    """Return a function of a row that returns its features as pixels; the minimum of X is black, the maximum white.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (n, d)
        Features.
    shape : tuple of int
        ``(height, width)`` of gray pictures or ``(height, width, 3)`` of color pictures.
    """
    if X.shape[1] != np.prod(shape):
        size = "x".join(map(str, shape))
        raise ValueError(f"Expected {np.prod(shape)} features for pictures of {size} pixels; got {X.shape[1]} features")
    low, high = float(X.min()), float(X.max())

    def pixels(row: int) -> NDArray[np.uint8]:
        values = X[[row]]
        return to_pixels((values if isinstance(values, np.ndarray) else values.toarray()).reshape(shape), low, high)

    return pixels


def picture_file(folder: Path, name: str) -> Path | None:
    """Return a file in a folder; None if there is no such file. Files outside the folder are never returned."""
    try:
        path = (folder / name.strip()).resolve()
        return path if path.is_relative_to(folder.resolve()) and path.is_file() else None
    except (OSError, ValueError, RuntimeError):  # name too long, NUL in the name, loop of symbolic links
        return None
