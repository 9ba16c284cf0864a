"""Which noise a function takes."""

from __future__ import annotations


def check_noise(noise: object, kind: type) -> None:
    """A noise model or None; the words that other parts of the package accept are none."""
    if noise is None or isinstance(noise, kind):
        return
    given = repr(noise) if isinstance(noise, str) else type(noise).__name__
    raise TypeError(
        f"noise must be a noise model such as ClassConditionalNoise(rho_pos, rho_neg), or None; got {given}"
    )


def check_noise_or_rates(noise: object, kinds: tuple[type, ...]) -> None:
    """A noise model, or rates that were estimated."""
    if isinstance(noise, kinds) and not isinstance(noise, type):
        return
    given = repr(noise) if isinstance(noise, (str, type)) else type(noise).__name__
    raise TypeError(
        "noise must be a noise model such as ClassConditionalNoise(rho_pos, rho_neg), or the rates that "
        f"ccmn.estimate_noise(...) returns; got {given}"
    )


def check_rates_known(noise: object, kind: type) -> None:
    """A noise model of a kind that has the rates which stand in a formula."""
    if not isinstance(noise, kind):
        given = f"the class {noise.__name__}" if isinstance(noise, type) else type(noise).__name__
        raise TypeError(f"noise must be a {kind.__name__}, whose rates this formula is made of; got {given}")


def check_several_labels(n_labels: int) -> None:
    """At least two labels, where a formula runs over pairs."""
    if n_labels < 2:
        raise ValueError(f"a ranking loss needs at least two labels to make a pair; the noise model has {n_labels}")
