"""Cost of the losses: compared with the broadcast double sum and with BCE, eager and compiled, and in a training step.

    python benchmarks/device.py            (one CUDA device; about five minutes, most of it in torch.compile)
    python benchmarks/device.py --quick    two sizes, without torch.compile
    python benchmarks/device.py --device cpu    cost relative to BCE on two cores, eager and compiled

The baseline of the training step, eager and compiled, is the same step with BCE. torch.compile starts from an empty
cache in every case. Also printed: how close the kernels of the loss are to the
limits of the device, with bytes and float32 operations per second measured in the same run; and the peak memory of the
loss and of the step, in score-sized tensors.
"""

from __future__ import annotations

import json
import statistics

import torch
from harness import Result, compare, machine, parser, report, seconds_of

from ccmn import ClassConditionalNoise, HammingLoss, RankingLoss
from ccmn.losses import SURROGATES
from ccmn.losses._fast.chebyshev import expansion_table

BATCH = 64
COST_BATCH = 128
COST_SIZES = (20, 300, 10_000)


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


def loss_costs(
    device: str, sizes: tuple[int, ...] = COST_SIZES, compiled: bool = True, budget: float = 1.0
) -> list[dict[str, object]]:
    """Return the milliseconds of forward and backward of every loss, eager and compiled, with the ratios to BCE.

    BCE is measured again with every loss, in turn, because the speed of the host changes within seconds.
    """
    rows = []
    bce = torch.nn.BCEWithLogitsLoss()
    for q in sizes:
        noise = ClassConditionalNoise(0.2, 0.1, n_labels=q)
        losses = {
            "BCE": bce,
            **{f"Hamming {phi}": HammingLoss(phi, noise).to(device) for phi in SURROGATES},
            **{f"ranking {phi}": RankingLoss(phi, noise).to(device) for phi in SURROGATES},
        }
        Y = (torch.rand(COST_BATCH, q, device=device) < 0.1).float()
        for name, loss in losses.items():
            row: dict[str, object] = {"q": q, "loss": name}
            outputs = q + name.startswith("ranking")
            seconds, baseline = in_turn(step_of(loss, outputs, Y), step_of(bce, q, Y), budget)
            row |= {"eager_ms": 1e3 * seconds, "eager_ratio": seconds / baseline}
            if compiled:
                torch._dynamo.reset()
                steps = [step_of(torch.compile(f, fullgraph=True), n, Y) for f, n in ((loss, outputs), (bce, q))]
                seconds, baseline = in_turn(*steps, budget)
                row |= {"compiled_ms": 1e3 * seconds, "compiled_ratio": seconds / baseline}
            rows.append(row)
    return rows


def step_of(loss, outputs: int, Y: torch.Tensor):
    """Return a function that computes a loss and its gradient, always for the same scores.

    The number of terms of a series depends on the widest row.
    """
    f = torch.randn(len(Y), outputs, generator=torch.Generator().manual_seed(0)).to(Y.device).requires_grad_()
    return lambda: torch.autograd.grad(loss(f, Y), f)


def in_turn(ours, theirs, budget: float) -> tuple[float, float]:
    """Return the median times of two calls, measured in turn in ten rounds."""
    rounds = [[seconds_of(call, budget / 20, 1000) for call in (ours, theirs)] for _ in range(10)]
    return tuple(statistics.median(times) for times in zip(*rounds))


def print_costs(rows: list[dict[str, object]]) -> None:
    """Print the table of ``loss_costs``."""
    print(f"{'q':>6} {'loss':<18}{'eager ms':>10}{'/ BCE':>7}{'compiled ms':>13}{'/ BCE':>7}{'compiled / eager':>18}")
    for row in rows:
        print(f"{row['q']:>6} {row['loss']:<18}{row['eager_ms']:>10.3f}{row['eager_ratio']:>7.2f}", end="")
        if "compiled_ms" in row:
            print(f"{row['compiled_ms']:>13.3f}{row['compiled_ratio']:>7.2f}", end="")
            print(f"{row['compiled_ms'] / row['eager_ms']:>18.2f}", end="")
        print(flush=True)


def whole_step(q: int, d: int, budget: float, compiled: bool) -> tuple[list[Result], dict[str, object]]:
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
    ours, bce = step(ranking, q + 1), torch.nn.BCEWithLogitsLoss()
    results = [compare(name, ours, "BCE with logits", step(bce, q), budget)]
    if compiled:
        torch._dynamo.reset()
        both = step(torch.compile(ranking), q + 1), step(torch.compile(bce), q)
        results.append(compare(f"{name}, compiled", both[0], "BCE with logits, compiled", both[1], budget))
    scores = torch.randn(BATCH, q + 1, device="cuda", requires_grad=True)
    peaks = {
        "peak memory of the loss without its outputs, in score-sized tensors": peak(
            lambda: ranking(scores, Y).backward()
        ),
        "peak memory of the step without parameters, gradient and optimizer state, in score-sized tensors": peak(ours),
    }
    notes = {what: round(extra / scores.nbytes, 2) for what, extra in peaks.items()}
    return results, {**notes, **limits(ranking, scores.detach(), Y)}


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
    order = int(table.orders[torch.searchsorted(table.widths, (scores.amax(-1) - scores.amin(-1)).max() / 2)])
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
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    options = arguments.parse_args()
    if options.device == "cpu":
        torch.set_num_threads(2)
        costs = loss_costs("cpu", COST_SIZES[:1] if options.quick else COST_SIZES)
        print(json.dumps({"machine": machine(), "costs": costs})) if options.json else print_costs(costs)
        return
    if not torch.cuda.is_available():
        raise SystemExit("No CUDA device found; --device cpu measures two cores.")
    costs = loss_costs("cuda", COST_SIZES[:2] if options.quick else COST_SIZES, compiled=not options.quick)
    if not options.json:
        print_costs(costs)
    budget = 1.0 if options.quick else 4.0
    results = [r for q in ((1024,) if options.quick else (256, 1024, 4096)) for r in loss_alone(q, budget)]
    steps, notes = whole_step(131_072, 768, budget, compiled=not options.quick)
    report([*results, *steps], {**notes, "costs": costs} if options.json else notes, options.json)


if __name__ == "__main__":
    main()
