"""The methods of the paper's tables by name: unbiased or plain, a loss and a surrogate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ccmn.catalogue import Catalogue
from ccmn.losses import LOSSES, MultiLabelLoss


@dataclass(frozen=True)
class Method:
    """A row of tables 1 and 2: "unbiased-ranking-sigmoid" and the like."""

    name: str
    loss: str
    surrogate: str
    unbiased: bool

    def make_loss(self) -> MultiLabelLoss:
        """The loss on targets that are debiased already, or taken as they are."""
        make: Callable[[str], MultiLabelLoss] = LOSSES[self.loss]
        return make(self.surrogate)


METHODS: Catalogue[Method] = Catalogue(
    "method",
    {
        f"{how}-{loss}-{surrogate}": Method(f"{how}-{loss}-{surrogate}", loss, surrogate, how == "unbiased")
        for how in ("unbiased", "plain")
        for loss, surrogate in (
            ("hamming", "square"),
            ("hamming", "hinge"),
            ("ranking", "square"),
            ("ranking", "hinge"),
            ("ranking", "sigmoid"),
        )
    },
)
"""Ten methods, in the order of the tables."""
