"""random_state -> a random generator of our own; the global random state is never read or changed."""

from __future__ import annotations

import numpy as np

RandomState = int | np.integer | np.random.Generator | np.random.SeedSequence | np.random.RandomState | None


def as_generator(random_state: RandomState) -> np.random.Generator:
    """A numpy Generator from whatever users call a random state.

    A ``Generator`` is used as it is, so that draws go on where it stands; a legacy ``RandomState`` seeds one;
    ``None`` takes fresh entropy from the operating system, not from numpy's global state.

    >>> bool(as_generator(0).integers(100) == as_generator(0).integers(100))
    True
    """
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(0, 2**31 - 1, size=4))
    if isinstance(random_state, bool) or not (
        random_state is None or isinstance(random_state, (int, np.integer, np.random.SeedSequence))
    ):
        raise TypeError(
            f"random_state must be None, an integer or a numpy Generator; got {type(random_state).__name__}"
        )
    if isinstance(random_state, (int, np.integer)) and random_state < 0:
        raise ValueError(f"random_state must not be negative; got {random_state}")
    return np.random.default_rng(random_state)
