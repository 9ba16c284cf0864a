"""Features as users hand them in, into what is computed on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from ccmn._containers import is_dataframe, is_sparse

# Micro-F1 of linear ranking / sigmoid models, 200 epochs of Adam, on raw and on standardized features:
#   age, income and height (means 40, 50,000, 1.7)   .00 and .86      standard normal plus 10          .00 and .92
#   age and height                                   .33 and .72      one column of mean 10.5, std .6  .88 and .94
#   mean 30, std 10                                  .79 and .93      standard normal plus 3           .91 and .92
#   pixels in 0..255                                 .60 and .68      pixels in 0..16                  .68 and .68
#   normal, std 1000 (60 epochs)                     .90 and .93      normal, std 100                  .92 and .92
#   one column of mean 2015, std 5                   .00 and .93      one column of std 1000           .92 and .93
#   normal, std .01                                  .15 and .93      normal, std .03                  .90 and .94
# Unit-norm rows (yeast), [0, 1] features (scene, pixels), counts, 0/1 words and TF-IDF train as well as standardized.
MAX_COLUMN_MEAN = 20.0
"""A column whose mean is farther from 0 is badly scaled; 0..16 pixels have means up to 12 and train well."""
MAX_OFFSET = 5.0
"""A column whose mean is farther from 0 than this number and than this many standard deviations is badly scaled."""
MAX_COLUMN_RMS = 1000.0
"""A column with a larger root mean square is badly scaled."""
MIN_ROW_RMS = 0.05
"""Features whose rows have a smaller root mean square norm are badly scaled: Adam's steps are too short for them."""
MAX_ROWS_FOR_SCALE = 10_000
"""The scale is measured on at most this many rows, evenly spread."""


def read_features(estimator: BaseEstimator, X: Any, *, reset: bool) -> Any:
    """A float array or CSR (n, d), checked by scikit-learn against what the estimator was fitted on.

    With ``reset`` the estimator is about to be fitted, and its ``n_features_in_`` and ``feature_names_in_`` are set.
    """
    if isinstance(X, torch.Tensor):
        X = X.detach().cpu().numpy()
    if is_dataframe(X):
        _check_columns(X)
    return validate_data(estimator, X, reset=reset, accept_sparse="csr", dtype=(np.float64, np.float32))


def _check_columns(X: Any) -> None:
    wrong = [str(c) for c, dtype in X.dtypes.items() if dtype.kind not in "biuf"]
    if wrong:
        raise ValueError(
            f"columns {', '.join(wrong[:5])} of X are not numeric; turn categories into numbers first, for "
            "instance with sklearn.compose.make_column_transformer((OneHotEncoder(), [...]), "
            'remainder="passthrough") in a Pipeline'
        )


def scale_warning(X: Any, names: Sequence[str] | None = None) -> str | None:
    """Return a warning if Adam trains poorly on features of this scale, dense or CSR (n, d); None otherwise."""
    rows = X[:: -(-X.shape[0] // MAX_ROWS_FOR_SCALE)]
    with np.errstate(over="ignore", invalid="ignore"):
        if is_sparse(rows):
            squares = np.asarray(rows.multiply(rows).sum(0, dtype=np.float64)).ravel() / rows.shape[0]
            mean = np.asarray(rows.sum(0, dtype=np.float64)).ravel() / rows.shape[0]
        else:
            squares = np.einsum("ij,ij->j", rows, rows, dtype=np.float64) / rows.shape[0]
            mean = rows.mean(0, dtype=np.float64)
        rms, offset, std = np.sqrt(squares), np.abs(mean), np.sqrt(np.maximum(squares - mean**2, 0))
        row_rms = float(np.sqrt(squares.sum()))
    far = (offset > MAX_COLUMN_MEAN) | (offset > MAX_OFFSET * np.maximum(std, 1)) | (rms > MAX_COLUMN_RMS)
    if far.any():
        worst = int(np.where(far, rms, 0).argmax())
        column = repr(names[worst]) if names is not None else str(worst)
        what = f"{int(far.sum())} of {len(rms)} columns are far from zero (column {column}: mean {mean[worst]:.3g}, "
        what += f"standard deviation {std[worst]:.3g})"
    elif 0 < row_rms < MIN_ROW_RMS:
        what = f"the values are close to zero (root mean square norm of a row {row_rms:.2g})"
    else:
        return None
    remedy = "MaxAbsScaler" if is_sparse(X) else "StandardScaler"
    return (
        f"Features are badly scaled: {what}. Training with Adam converges slowly or fails on such features. Scale "
        f"them, for example with make_pipeline({remedy}(), CCMNClassifier())."
    )
