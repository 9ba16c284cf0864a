"""Features as users hand them in, into what is computed on."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from ccmn._containers import is_dataframe


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
