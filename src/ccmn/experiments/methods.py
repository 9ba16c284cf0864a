"""The methods of the tables by name: unbiased or plain, a loss and a surrogate, known or estimated rates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ccmn._registry import Catalogue
from ccmn.losses import LOSSES, MultiLabelLoss


@dataclass(frozen=True)
class Method:
    """A row of tables 1 and 2: "unbiased-ranking-sigmoid" and the like."""

    name: str
    loss: str
    surrogate: str
    rates: Literal["none", "known", "estimated"]
    """The rates that the loss is corrected with; none: the noisy labels are taken at their word."""

    @property
    def unbiased(self) -> bool:
        """Is the loss corrected?"""
        return self.rates != "none"

    def make_loss(self) -> MultiLabelLoss:
        """The loss on targets that are debiased already, or taken as they are."""
        make: Callable[[str], MultiLabelLoss] = LOSSES[self.loss]
        return make(self.surrogate)


_LOSSES = (
    ("hamming", "square"),
    ("hamming", "hinge"),
    ("ranking", "square"),
    ("ranking", "hinge"),
    ("ranking", "sigmoid"),
)


def _methods() -> list[Method]:
    unbiased = [Method(f"unbiased-{loss}-{phi}", loss, phi, "known") for loss, phi in _LOSSES]
    plain = [Method(f"plain-{loss}-{phi}", loss, phi, "none") for loss, phi in _LOSSES]
    estimated = [Method(f"{m.name}-estimated", m.loss, m.surrogate, "estimated") for m in unbiased]
    return [*unbiased, *plain, *estimated]


METHODS: Catalogue[Method] = Catalogue("method", {method.name: method for method in _methods()})
"""What a fleet trains: the paper's ten, and the unbiased ones with estimated rates."""

TEN = tuple(name for name in METHODS if not name.endswith("-estimated"))
"""The rows of tables 1 and 2, in their order."""
