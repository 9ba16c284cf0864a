"""Ranking loss, forward and backward, compared with the broadcast double sum under autograd.

    python benchmarks/losses.py            q from 8 to 65,536, all four surrogates (about four minutes)
    python benchmarks/losses.py --quick    four sizes (under 50 s)
    python benchmarks/losses.py --device cuda

The baseline is the obvious implementation: f[..., :, None] - f[..., None, :], phi, weights, mask, sum, backward. It
needs (batch, q, q) memory. From q = 4096 to 16,384 the baseline is the blocked double sum with O(q) memory. Also
measured: the cost relative to binary_cross_entropy_with_logits, and peak memory.
"""

from __future__ import annotations

import torch
from harness import Result, compare, parser, peak_extra_megabytes, report

from ccmn.losses import SURROGATES, ranking_loss
from ccmn.losses._fast.direct import blocked_pair_sum

FULL = [(8, 64), (14, 100), (32, 64), (64, 64), (128, 64), (256, 64), (1024, 16), (4096, 4), (16384, 4), (65536, 4)]
QUICK = [(8, 64), (14, 100), (128, 32), (4096, 1)]
MAX_BROADCAST = 4096
"""Above this number of labels the broadcast double sum does not fit into memory."""
MAX_BLOCKED = 16384
"""Above this number of labels there is no baseline."""


def broadcast_double_sum(scores: torch.Tensor, targets: torch.Tensor, phi) -> torch.Tensor:
    difference = scores[..., :, None] - scores[..., None, :]
    weights = targets[..., :, None] * (1 - targets[..., None, :])
    same = torch.eye(scores.shape[-1], dtype=torch.bool, device=scores.device)
    return (weights * phi(difference)).masked_fill(same, 0).sum((-1, -2))


def forward_backward(loss, scores: torch.Tensor):
    def step() -> torch.Tensor:
        leaf = scores.detach().requires_grad_()
        loss(leaf).sum().backward()
        return leaf.grad

    return step


def case(name: str, q: int, batch: int, device: str, budget: float) -> list[Result]:
    """Compare one surrogate at one size with the double sum, if that is feasible."""
    torch.manual_seed(q)
    surrogate = SURROGATES[name]
    scores = torch.randn(batch, q, device=device)
    targets = (torch.rand(batch, q, device=device) < 0.1).float() * 1.6 - 0.3  # debiased: outside [0, 1]
    ours = forward_backward(lambda f: ranking_loss(f, targets, surrogate), scores)
    title = f"{name} q={q} batch={batch}"
    results = []
    if q <= MAX_BROADCAST:
        theirs = forward_backward(lambda f: broadcast_double_sum(f, targets, surrogate.phi), scores)
        results.append(compare(title, ours, "broadcast double sum", theirs, budget))
    elif q <= MAX_BLOCKED:
        theirs = forward_backward(lambda f: blocked_pair_sum(f, targets, 1 - targets, surrogate.phi), scores)
        results.append(compare(title, ours, "blocked double sum", theirs, budget))
    return results


def cost_of_ranking(name: str, q: int, batch: int, device: str, budget: float) -> Result:
    """Compare the ranking loss with BCE; the ratio is below 1."""
    scores = torch.randn(batch, q, device=device)
    targets = (torch.rand(batch, q, device=device) < 0.1).float()
    ours = forward_backward(lambda f: ranking_loss(f, targets, name), scores)
    bce = torch.nn.functional.binary_cross_entropy_with_logits
    theirs = forward_backward(lambda f: bce(f, targets, reduction="none").sum(-1), scores)
    return compare(f"{name} q={q} batch={batch}", ours, "BCE with logits", theirs, budget)


MEMORY_CODE = """
import torch
from ccmn.losses import ranking_loss
torch.manual_seed(0)
def step(q, batch):
    scores = torch.randn(batch, q, requires_grad=True)
    targets = (torch.rand(batch, q) < 0.01).float() * 1.6 - 0.3
    ranking_loss(scores, targets, "{surrogate}").sum().backward()
step(1000, 2)  # load and cache before the measurement
begin()
step({q}, {batch})
"""


def main() -> None:
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    options = arguments.parse_args()
    budget = 0.8 if options.quick else 2.0
    sizes = QUICK if options.quick else FULL
    double = [r for q, batch in sizes for name in SURROGATES for r in case(name, q, batch, options.device, budget)]
    cost_sizes = [(14, 100), (4096, 4)] + ([] if options.quick else [(65536, 4)])
    cost = [cost_of_ranking(name, q, batch, options.device, budget) for q, batch in cost_sizes for name in SURROGATES]
    notes: dict[str, object] = {
        "cost of ranking (relative to BCE)": {r.name: round(1 / r.ratio, 1) for r in cost},
    }
    if options.device == "cpu":
        for name in ("sigmoid",) if options.quick else tuple(SURROGATES):
            code = MEMORY_CODE.format(surrogate=name, q=200_000, batch=8)
            notes[f"peak extra memory, {name}, q=200000, batch=8, MB (scores alone: 6.4)"] = round(
                peak_extra_megabytes(code), 1
            )
    report(double, notes, options.json)


if __name__ == "__main__":
    main()
