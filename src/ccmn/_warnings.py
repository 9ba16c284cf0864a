"""NoiseWarning, the category of all warnings, and the function that issues them at the line of the user."""

from __future__ import annotations

import sys
import warnings

_NOT_THE_USER = ("ccmn", "joblib", "sklearn")
_warned: set[tuple[str, int, str, int]] = set()


class NoiseWarning(UserWarning):
    """Category of the warnings of ccmn.

    Examples
    --------
    >>> import warnings
    >>> import ccmn
    >>> warnings.simplefilter("ignore", ccmn.NoiseWarning)
    """


def warn(message: str, category: type[Warning] = NoiseWarning) -> None:
    """Issue a warning at the first line of the call stack outside of ccmn and scikit-learn.

    In a grid search or a cross-validation, each caller in ccmn warns once per line of the user.
    """
    caller = frame = sys._getframe(1)
    searched = False
    while (
        frame.f_back is not None and (module := frame.f_globals.get("__name__", "")).partition(".")[0] in _NOT_THE_USER
    ):
        searched |= module.startswith("sklearn.model_selection")
        frame = frame.f_back
    if searched:
        place = (caller.f_code.co_filename, caller.f_lineno, frame.f_code.co_filename, frame.f_lineno)
        if place in _warned:
            return
        _warned.add(place)
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    module = frame.f_globals.get("__name__", "<unknown>")
    warnings.warn_explicit(message, category, frame.f_code.co_filename, frame.f_lineno, module, registry)
