"""Conversion of ``random_state`` arguments to generators; numpy's global random state is never read or changed."""

import numpy as np

RandomState = int | np.integer | np.random.Generator | np.random.SeedSequence | np.random.RandomState | None


def as_generator(random_state: RandomState) -> np.random.Generator:
    """Return a numpy ``Generator`` for a ``random_state`` argument.

    A ``Generator`` is returned unchanged, so that its stream continues. A legacy ``RandomState`` seeds a new one.
    ``None`` takes fresh entropy from the operating system.

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
