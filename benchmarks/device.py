"""Ranking loss on a CUDA device, compared with the broadcast double sum; a training step with 131,072 labels.

    python benchmarks/device.py            (one CUDA device; about a minute)
    python benchmarks/device.py --quick

The baseline of the training step is the same step with BCE. Also printed: how close the kernels of the loss are to the
limits of the device, with bytes and float32 operations per second measured in the same run; and the peak memory of the
loss and of the step, in score-sized tensors. Without a CUDA device the script exits with a message.
"""

from __future__ import annotations

import torch
from harness import Result, compare, parser, report, seconds_of

from ccmn import ClassConditionalNoise, RankingLoss
from ccmn.losses import SURROGATES
from ccmn.losses.pairs.chebyshev import expansion_table, max_half_width

BATCH = 64


def broadcast(f: torch.Tensor, p: torch.Tensor, surrogate: str) -> torch.Tensor:
    """Return the double sum, written in the obvious way with (batch, q, q) memory."""
    pairs = p.unsqueeze(-1) * (1 - p).unsqueeze(-2) * SURROGATES[surrogate].phi(f.unsqueeze(-1) - f.unsqueeze(-2))
    return pairs.sum((-1, -2)) - torch.diagonal(pairs, dim1=-2, dim2=-1).sum(-1)


def loss_alone(q: int, budget: float) -> list[Result]:
    """Time forward and backward of every surrogate, called from Python and replayed as a CUDA graph.

    Training replays a graph, because launching the kernels takes longer than running them.
    """
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
        replayed = device_seconds(loss, f.detach(), Y)
        name = f"{surrogate}, q = {q}, batch {BATCH}, replayed"
        results.append(Result(name, replayed, ours.baseline, ours.baseline_seconds, ours.baseline_seconds / replayed))
    return results


def whole_step(q: int, d: int, budget: float) -> tuple[Result, dict[str, object]]:
    """Time forward, backward and Adam of a linear model with the unbiased sigmoid ranking loss and with BCE."""
    X = torch.randn(BATCH, d, device="cuda")
    Y = (torch.rand(BATCH, q, device="cuda") < 0.001).float()
    ranking = RankingLoss("sigmoid", ClassConditionalNoise(0.2, 0.001, n_labels=q)).cuda()

    def step(loss, outputs):
        model = torch.nn.Linear(d, outputs, device="cuda")
        optimizer = torch.optim.Adam(model.parameters(), fused=True)

        def run():
            optimizer.zero_grad()
            loss(model(X), Y).backward()
            optimizer.step()

        return run

    name = f"step: ranking / sigmoid, q = {q}, batch {BATCH}, d = {d}"
    ours = step(ranking, q + 1)
    result = compare(name, ours, "BCE with logits", step(torch.nn.BCEWithLogitsLoss(), q), budget)
    scores = torch.randn(BATCH, q + 1, device="cuda", requires_grad=True)
    peaks = {
        "peak memory of the loss without its outputs, in score-sized tensors": peak(
            lambda: ranking(scores, Y).backward()
        ),
        "peak memory of the step without parameters, gradient and optimizer state, in score-sized tensors": peak(ours),
    }
    notes = {what: round(extra / scores.nbytes, 2) for what, extra in peaks.items()}
    return result, {**notes, **limits(ranking, scores.detach(), Y)}


def peak(call) -> int:
    """Return the peak memory of the second of two calls in bytes, beyond what was allocated before it."""
    call()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    return torch.cuda.max_memory_allocated() - before


def limits(loss: RankingLoss, scores: torch.Tensor, Y: torch.Tensor) -> dict[str, object]:
    """Compare the bytes and operations per second of the loss kernels with the limits of this device."""
    big = torch.empty(1 << 28, device="cuda")
    bandwidth = 2 * big.nbytes / seconds_of(lambda: big.add_(1), 0.2)
    a = torch.randn(8192, 8192, device="cuda")
    flops = 2 * 8192**3 / seconds_of(lambda: a @ a, 0.3)
    table = expansion_table(loss.surrogate.name, scores.device)
    order = int(table.orders[torch.searchsorted(table.widths, max_half_width(scores))])
    # Scores and labels are read three times and the gradient is written once. Each term of the series costs one step
    # of the recurrence and two sums, in two passes.
    moved, computed = 4 * scores.nbytes + 3 * Y.nbytes, scores.numel() * order * 2 * 6
    seconds = device_seconds(loss, scores, Y)
    return {
        "kernels of the loss, forward and backward, ms": round(1e3 * seconds, 3),
        "terms of the series": order,
        "float32 operations per second: loss / limit (matrix product)": f"{computed / seconds:.2e} / {flops:.2e}",
        "bytes per second: loss / limit": f"{moved / seconds:.2e} / {bandwidth:.2e}",
        "minimum ms by operations / by bytes": f"{1e3 * computed / flops:.3f} / {1e3 * moved / bandwidth:.3f}",
    }


def device_seconds(loss: RankingLoss, scores: torch.Tensor, Y: torch.Tensor) -> float:
    """Return the time of forward and backward, replayed as a CUDA graph without work on the host."""
    scores = scores.clone().requires_grad_()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.autograd.grad(loss(scores, Y), scores)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.autograd.grad(loss(scores, Y), scores)

    def replays():
        for _ in range(20):
            graph.replay()

    return seconds_of(replays, 0.3) / 20


def main() -> None:
    options = parser(__doc__.splitlines()[0]).parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("No CUDA device found; benchmarks/losses.py measures the CPU.")
    budget = 1.0 if options.quick else 4.0
    results = [r for q in ((1024,) if options.quick else (256, 1024, 4096)) for r in loss_alone(q, budget)]
    step, notes = whole_step(131_072, 768, budget)
    report([*results, step], notes, options.json)


if __name__ == "__main__":
    main()
