"""One accelerator: the ranking loss against the broadcast double sum, a step with 131,072 labels against plain BCE.

    python benchmarks/device.py            (one CUDA device; about a minute)
    python benchmarks/device.py --quick

Beside the ratios: how far from the limit, with bytes and float64 operations a second measured in the same run; and the
peak memory of the loss in score-sized tensors. Where there is no CUDA device it says so, and has no result.
"""

from __future__ import annotations

import torch
from harness import Result, compare, parser, report, seconds_of

from ccmn import ClassConditionalNoise, RankingLoss
from ccmn.losses import SURROGATES
from ccmn.losses.pairs.chebyshev import order_for

BATCH = 64


def broadcast(f: torch.Tensor, p: torch.Tensor, surrogate: str) -> torch.Tensor:
    """The double sum as anybody would write it: (batch, q, q) in memory."""
    pairs = p.unsqueeze(-1) * (1 - p).unsqueeze(-2) * SURROGATES[surrogate].phi(f.unsqueeze(-1) - f.unsqueeze(-2))
    return pairs.sum((-1, -2)) - torch.diagonal(pairs, dim1=-2, dim2=-1).sum(-1)


def loss_alone(q: int, budget: float) -> list[Result]:
    """Forward and backward of every surrogate, debiased labels given."""
    results = []
    f = torch.randn(BATCH, q, device="cuda", requires_grad=True)
    noise = ClassConditionalNoise(0.2, 0.1, n_labels=q)
    Y = (torch.rand(BATCH, q, device="cuda") < 0.05).float()
    p = noise.debias(Y).float()
    for surrogate in SURROGATES:
        loss = RankingLoss(surrogate, noise, dummy=False).cuda()
        ours = compare(
            f"{surrogate}, q = {q}, batch {BATCH}",
            lambda loss=loss: loss(f, Y).backward(),
            "broadcast double sum",
            lambda phi=surrogate: broadcast(f, p, phi).mean().backward(),
            budget,
        )
        results.append(ours)
    return results


def whole_step(q: int, d: int, budget: float) -> tuple[Result, dict[str, object]]:
    """Forward, backward and Adam of a linear model: the unbiased sigmoid ranking loss beside BCE with logits."""
    X = torch.randn(BATCH, d, device="cuda")
    Y = (torch.rand(BATCH, q, device="cuda") < 0.001).float()
    noise = ClassConditionalNoise(0.2, 0.001, n_labels=q)

    def step(loss, outputs):
        model = torch.nn.Linear(d, outputs, device="cuda")
        optimiser = torch.optim.Adam(model.parameters(), fused=True)

        def run():
            optimiser.zero_grad()
            loss(model(X), Y).backward()
            optimiser.step()

        return run

    ranking = RankingLoss("sigmoid", noise).cuda()
    name = f"step: ranking / sigmoid, q = {q}, batch {BATCH}, d = {d}"
    result = compare(name, step(ranking, q + 1), "BCE with logits", step(torch.nn.BCEWithLogitsLoss(), q), budget)
    scores = torch.randn(BATCH, q + 1, device="cuda", requires_grad=True)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    ranking(scores, Y).backward()
    peak = (torch.cuda.max_memory_allocated() - before) / scores.nbytes
    alone = seconds_of(lambda: ranking(scores, Y).backward(), budget / 4)
    return result, {"peak of the loss, in score-sized tensors": round(peak, 1), **limits(scores, alone)}


def limits(scores: torch.Tensor, seconds: float) -> dict[str, object]:
    """What the loss moves and computes in a second, beside what this device can."""
    big = torch.empty(1 << 28, device="cuda")
    bandwidth = 2 * big.nbytes / seconds_of(lambda: big.add_(1), 0.2)
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.float64)
    flops = 2 * 4096**3 / seconds_of(lambda: a @ a, 0.3)
    order = order_for(8.0, torch.float32)
    # Two passes; each reads scores and weights, the second writes gradients. A term: a recurrence and two sums.
    moved, computed = 8 * scores.nbytes, scores.numel() * order * 2 * 8
    return {
        "loss alone, seconds": seconds,
        "bytes a second: loss / limit": f"{moved / seconds:.2e} / {bandwidth:.2e}",
        "float64 operations a second: loss / limit (matrix product)": f"{computed / seconds:.2e} / {flops:.2e}",
    }


def main() -> None:
    options = parser(__doc__.splitlines()[0]).parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("no CUDA device here: benchmarks/losses.py measures the CPU")
    budget = 1.0 if options.quick else 4.0
    results = [r for q in ((1024,) if options.quick else (256, 1024, 4096)) for r in loss_alone(q, budget)]
    step, notes = whole_step(131_072, 768, budget)
    report([*results, step], notes, options.json)


if __name__ == "__main__":
    main()
