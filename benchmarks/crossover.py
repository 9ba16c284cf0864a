"""Number of labels from which a fast pair sum beats the tiled double sum; sets the two constants of pair_sum.py.

    python benchmarks/crossover.py           (--quick: fewer sizes)

The baselines are the double sums of ccmn with hand-written gradients. The right constants are the sizes
at which the ratio crosses 1.
"""

from __future__ import annotations

import torch
from harness import Result, compare, parser, report

from ccmn.losses._fast.chebyshev import chebyshev_pair_sum, expansion_for, order_for
from ccmn.losses._fast.direct import Needs, hinge_indicator_sum
from ccmn.losses._fast.pair_sum import double_sum, hinge_pair_sum

NEEDS = Needs(by_scores=True, by_weights=False)


def hinge(q: int, batch: int, budget: float) -> Result:
    """Time the sorted hinge sum."""
    f, p, n = torch.randn(3, batch, q)
    return compare(
        f"hinge sorted q={q} batch={batch}",
        lambda: hinge_pair_sum(f, p, n, NEEDS),
        "tiles",
        lambda: hinge_indicator_sum(f, p, n, NEEDS),
        budget,
    )


def sigmoid(labels_per_term: float, half_width: float, batch: int, budget: float) -> Result:
    """Time the Chebyshev series of the sigmoid for scores in [-half_width, half_width]."""
    order = order_for(half_width, torch.float32)
    q = round(labels_per_term * order)
    f = (2 * torch.rand(batch, q) - 1) * half_width
    p, n = torch.randn(2, batch, q)
    series = expansion_for("sigmoid", half_width, order, torch.device("cpu"))
    return compare(
        f"sigmoid series {labels_per_term:g} labels/term (q={q}, w={half_width:g}) batch={batch}",
        lambda: chebyshev_pair_sum(f, p, n, 0.5, series, NEEDS),
        "tiles",
        lambda: double_sum(f, p, n, "sigmoid", NEEDS),
        budget,
    )


def main() -> None:
    options = parser(__doc__.splitlines()[0]).parse_args()
    budget = 0.2 if options.quick else 1.0
    batches = (100,) if options.quick else (4, 64, 1000)
    results = [hinge(q, batch, budget) for batch in batches for q in (32, 64, 96, 128, 192)]
    for batch in batches:
        for width in (2.0, 8.0, 32.0):
            results += [sigmoid(x, width, batch, budget) for x in (1.5, 2.5, 4.0, 6.0)]
    report(results, {}, options.json)


if __name__ == "__main__":
    main()
