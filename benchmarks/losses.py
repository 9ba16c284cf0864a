"""Ranking loss, forward and backward: time compared with the broadcast double sum and with BCE, and peak memory.

    python benchmarks/losses.py            q from 8 to 65,536, all four surrogates (about four minutes)
    python benchmarks/losses.py --quick    three sizes (under 50 s)
    python benchmarks/losses.py --device cuda

The double sum is the obvious implementation: f[..., :, None] - f[..., None, :], phi, weights, mask, sum, backward. It
needs (batch, q, q) memory. "wide" scores have a standard deviation of 8 instead of 1.
"""

from __future__ import annotations

import torch
from harness import Result, compare, cost_of, parser, report

from ccmn.losses import SURROGATES, ranking_loss

FULL = [(8, 64), (14, 100), (32, 64), (64, 64), (128, 64), (256, 64), (1024, 16), (4096, 4)]
QUICK = [(14, 100), (128, 32), (4096, 1)]
COST = [(14, 100), (100, 100), (1000, 100), (10_000, 100), (65_536, 4)]


def double_sum(scores: torch.Tensor, targets: torch.Tensor, surrogate: str) -> torch.Tensor:
    difference = scores[..., :, None] - scores[..., None, :]
    weights = targets[..., :, None] * (1 - targets[..., None, :])
    same = torch.eye(scores.shape[-1], dtype=torch.bool, device=scores.device)
    return (weights * SURROGATES[surrogate].phi(difference)).masked_fill(same, 0).sum((-1, -2))


def bce(scores: torch.Tensor, targets: torch.Tensor, surrogate: str) -> torch.Tensor:
    return torch.nn.functional.binary_cross_entropy_with_logits(scores, targets, reduction="none").sum(-1)


def case(
    name: str, size: tuple[int, int], baseline, labels: str, options, budget: float, deviation: float = 1
) -> Result:
    """Compare forward and backward of one surrogate at one size with a baseline."""
    q, batch = size
    generator = torch.Generator().manual_seed(q)
    scores = (deviation * torch.randn(batch, q, generator=generator)).to(options.device)
    targets = (torch.rand(batch, q, generator=generator) < 0.1).float().to(options.device)
    debiased = targets * 1.6 - 0.3  # outside [0, 1]

    def step(loss, y: torch.Tensor):
        leaf = scores.detach().requires_grad_()
        return lambda: torch.autograd.grad(loss(leaf, y, name).sum(), leaf)

    title = f"{name} q={q} batch={batch}" + (" wide" if deviation > 1 else "")
    own_targets = debiased if baseline is double_sum else targets
    return compare(title, step(ranking_loss, debiased), labels, step(baseline, own_targets), budget)


MEMORY = """
import torch
from ccmn.losses import ranking_loss
def step(q, batch):
    scores = torch.randn(batch, q, requires_grad=True)
    ranking_loss(scores, torch.rand(batch, q), "{surrogate}").sum().backward()
step(1000, 2)  # load and cache before the measurement
begin()
step(200_000, 8)
"""


def main() -> None:
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    options = arguments.parse_args()
    budget = 0.8 if options.quick else 2.0
    names = ("square", "sigmoid") if options.quick else tuple(SURROGATES)
    results = [
        case(name, size, double_sum, "broadcast double sum", options, budget)
        for size in (QUICK if options.quick else FULL)
        for name in names
    ]
    cost = [
        case(name, size, bce, "BCE with logits", options, budget, deviation)
        for size in (COST[:3] if options.quick else COST)
        for name in names
        for deviation in ((1, 8) if name == "sigmoid" else (1,))
    ]
    notes: dict[str, object] = {"time relative to BCE": {r.name: round(1 / r.ratio, 1) for r in cost}}
    if options.device == "cpu":
        notes["peak memory, q = 200,000, batch 8, MB (scores: 6)"] = {
            name: round(cost_of(MEMORY.format(surrogate=name))[1]) for name in names
        }
    report(results, notes, options.json)


if __name__ == "__main__":
    main()
