"""Fused losses, compared with double sums in float64 and with the eager loss. Skipped without a CUDA device."""

import itertools

import pytest
import torch

from ccmn.losses import SURROGATES, HammingLoss, RankingLoss
from ccmn.losses._fast.cuda import can_fuse
from ccmn.noise import ClassConditionalNoise
from helpers import slope_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

DEVICE = torch.device("cuda")


def noise_of(q):
    rates = torch.Generator().manual_seed(q)
    return ClassConditionalNoise(*(0.3 * torch.rand(q, generator=rates).double().numpy() for _ in range(2)))


def batch(loss, rows, q, scale=1.0):
    outputs = torch.randn(rows, loss.n_outputs(q), device=DEVICE) * scale + 2
    return outputs, torch.rand(rows, q, device=DEVICE) < 0.2


def value_and_gradient(loss, outputs, Y, weights=None):
    """Return value and gradient as float64."""
    leaf = outputs.clone().requires_grad_()
    value = loss(leaf, Y)
    (value if weights is None else value * weights).sum().backward()
    return value.detach().double(), leaf.grad.double()


def target_weights(loss, Y):
    """Return p and n in float64, including the dummy label."""
    p = loss.debias(Y.double())
    n = 1 - p
    missing = p.isnan()
    p, n = p.masked_fill(missing, 0), n.masked_fill(missing, 0)
    if loss.dummy:
        one = p.new_ones(len(p), 1)
        p, n = torch.cat((one, p), 1), torch.cat((one, n), 1)
    return p, n


def reference(loss, outputs, Y):
    """Return the double sum over all pairs in float64: value, gradient, largest phi and slope."""
    p, n = target_weights(loss, Y)
    values, gradients, largest = [], [], [1.0, 1.0]
    for f, p_row, n_row in zip(outputs.double(), p, n):
        t = f.unsqueeze(1) - f
        weights = torch.outer(p_row, n_row).fill_diagonal_(0)
        phi, slope = loss.surrogate.phi(t), slope_of(loss.surrogate, t)
        values.append((weights * phi).sum())
        gradients.append((weights * slope).sum(1) - (weights * slope).sum(0))
        largest = [max(largest[0], float(phi.abs().max())), max(largest[1], float(slope.abs().max()))]
    return torch.stack(values), torch.stack(gradients), *largest


def assert_accurate(loss, outputs, Y, case):
    """Check errors of unreduced rows: 1e-6 for values and 1e-5 for gradients, relative to their scales."""
    value, gradient = value_and_gradient(loss, outputs, Y)
    true_value, true_gradient, phi, slope = reference(loss, outputs, Y)
    p, n = (t.abs() for t in target_weights(loss, Y))
    scale = p.sum(1) * n.sum(1) * phi
    assert ((value - true_value).abs() <= 1e-6 * scale + 1e-12).all(), (case, (value - true_value).abs() / scale)
    scale = (p * n.sum(1, True) + n * p.sum(1, True)).amax(1) * slope
    error = (gradient - true_gradient).abs().amax(1)
    assert (error <= 1e-5 * scale + 1e-12).all(), (case, error / scale)


def assert_equal_float32(actual, expected):
    """Check equality up to rounding in float32."""
    for x, y in zip(actual, expected):
        torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-6 * float(y.abs().max()))


def test_values_and_gradients_for_every_surrogate():
    torch.manual_seed(0)
    for surrogate, dummy in itertools.product(SURROGATES, (True, False)):
        for q in (1, 2, 14, 300, 2999):
            loss = RankingLoss(surrogate, noise_of(q), "none", dummy=dummy).to(DEVICE)
            for scale in (0.0, 0.1, 1.0, 5.0, 30.0):
                assert_accurate(loss, *batch(loss, 8, q, scale), (surrogate, dummy, q, scale))


def test_rows_of_different_widths():
    """Each row selects its own series; rows that are too wide for all series use the double sum."""
    torch.manual_seed(1)
    scale = torch.tensor([0.0, 1e-3, 0.2, 1.0, 3.0, 10.0, 20.0, 60.0, 1000.0, 1e6], device=DEVICE).unsqueeze(1)
    for surrogate in ("square", "sigmoid", "logistic"):
        loss = RankingLoss(surrogate, noise_of(2500), "none").to(DEVICE)
        outputs, Y = batch(loss, len(scale), 2500)
        assert_accurate(loss, outputs * scale, Y, surrogate)
        assert_accurate(loss, (outputs * scale).round(), Y, (surrogate, "ties"))
        ends = torch.where(torch.rand_like(outputs) < 0.1, 1.0, -1.0) * scale
        assert_accurate(loss, ends + 1e4, Y, (surrogate, "two values far from 0"))


def test_many_labels():
    torch.manual_seed(2)
    q = 131_072
    for surrogate in SURROGATES:
        loss = RankingLoss(surrogate, noise_of(q), "none").to(DEVICE)
        outputs, Y = batch(loss, 2, q)
        value, gradient = value_and_gradient(loss, outputs, Y)
        true_value, true_gradient = value_and_gradient(loss, outputs.double(), Y)  # the eager loss in float64
        p, n = (t.abs() for t in target_weights(loss, Y))
        width = float(outputs.max() - outputs.min()) + 1
        phi, slope = {"square": (width**2, 2 * width), "hinge": (width, 1.0)}.get(surrogate, (1.0, 1.0))
        assert ((value - true_value).abs() <= 1e-6 * p.sum(1) * n.sum(1) * phi).all()
        scale = (p * n.sum(1, True) + n * p.sum(1, True)).amax(1) * slope
        assert ((gradient - true_gradient).abs().amax(1) <= 1e-5 * scale).all()


def test_dtypes_of_labels_and_outputs():
    torch.manual_seed(3)
    for q in (20, 2500):
        loss = RankingLoss("sigmoid", noise_of(q)).to(DEVICE)
        outputs, Y = batch(loss, 8, q)
        value, gradient = value_and_gradient(loss, outputs, Y)
        for dtype in (torch.uint8, torch.int64, torch.float32, torch.float64, torch.bfloat16):
            other_value, other_gradient = value_and_gradient(loss, outputs, Y.to(dtype))
            assert other_value == value, dtype
            assert other_gradient.equal(gradient), dtype
        for dtype in (torch.bfloat16, torch.float16):
            low = outputs.to(dtype)
            assert can_fuse(low, Y)
            value, gradient = value_and_gradient(loss, low.float(), Y)
            other_value, other_gradient = value_and_gradient(loss, low, Y)
            assert other_value == value, dtype
            torch.testing.assert_close(other_gradient, gradient.to(dtype).double(), rtol=2e-2, atol=1e-6)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            assert value_and_gradient(loss, outputs, Y)[0] == value_and_gradient(loss, outputs, Y.float())[0]


def test_nan_labels_do_not_contribute():
    torch.manual_seed(5)
    for surrogate, q in (*itertools.product(SURROGATES, (30, 2500)), ("hinge", 5000)):
        loss = RankingLoss(surrogate, noise_of(q), "none").to(DEVICE)
        outputs, Y = batch(loss, 8, q)
        Y = Y.float().masked_fill(torch.rand(8, q, device=DEVICE) < 0.3, float("nan"))
        Y[3] = float("nan")
        assert_accurate(loss, outputs, Y, (surrogate, q))
        expected = value_and_gradient(loss, outputs, Y)
        for score in (1e6, float("inf")):
            extreme = outputs.clone()
            extreme[:, 1:][Y.isnan()] = score
            value, gradient = value_and_gradient(loss, extreme, Y)
            assert gradient[:, 1:][Y.isnan()].eq(0).all(), (surrogate, q)
            assert_equal_float32((value, gradient), expected)


def test_reductions_and_row_weights():
    torch.manual_seed(6)
    for surrogate, q in (("sigmoid", 30), ("sigmoid", 2500), ("hinge", 5000)):
        rows = RankingLoss(surrogate, noise_of(q), "none").to(DEVICE)
        outputs, Y = batch(rows, 8, q)
        value, gradient = value_and_gradient(rows, outputs, Y)
        for reduction, factor in (("mean", 1 / 8), ("sum", 1.0)):
            reduced = RankingLoss(surrogate, noise_of(q), reduction).to(DEVICE)
            assert_equal_float32(value_and_gradient(reduced, outputs, Y), (value.sum() * factor, gradient * factor))
        weights = torch.rand(8, device=DEVICE)
        assert_equal_float32(
            value_and_gradient(rows, outputs, Y, weights)[1:], (gradient * weights.double().unsqueeze(1),)
        )


def test_second_derivatives_equal_the_eager_ones():
    torch.manual_seed(8)
    for q, surrogate in ((30, "sigmoid"), (700, "logistic")):
        loss = RankingLoss(surrogate, noise_of(q)).to(DEVICE)
        outputs, Y = batch(loss, 4, q)
        direction = torch.randn_like(outputs)
        second = []
        for dtype in (torch.float32, torch.float64):
            leaf = outputs.to(dtype).requires_grad_()
            (gradient,) = torch.autograd.grad(loss(leaf, Y), leaf, create_graph=True)
            second.append(torch.autograd.grad((gradient * direction).sum(), leaf)[0].double())
        torch.testing.assert_close(*second, rtol=1e-3, atol=1e-4 * float(second[1].abs().max()))


def test_many_models_with_one_batch_of_labels():
    torch.manual_seed(9)
    for q in (30, 2500):
        loss = RankingLoss("sigmoid", noise_of(q), "none").to(DEVICE)
        outputs, Y = torch.randn(4, 3, q + 1, device=DEVICE), torch.rand(3, q, device=DEVICE) < 0.2
        stacked, gradient = value_and_gradient(loss, outputs, Y)
        assert stacked.shape == (4, 3)
        single, single_gradient = value_and_gradient(loss, outputs[2], Y)
        assert_equal_float32((stacked[2], gradient[2]), (single, single_gradient))
        assert_equal_float32((value_and_gradient(loss, outputs.transpose(0, 1), Y.unsqueeze(1))[0],), (stacked.t(),))
        assert_equal_float32((value_and_gradient(loss, outputs[2, 1], Y[1])[0],), (single[1],))


def test_nan_scores_give_nan_in_their_row():
    loss = RankingLoss("sigmoid", noise_of(2500), "none").to(DEVICE)
    outputs, Y = batch(loss, 8, 2500)
    outputs[2, 7] = float("nan")
    value, gradient = value_and_gradient(loss, outputs, Y)
    assert value.isnan().nonzero().flatten().tolist() == [2]
    assert gradient.isnan().any(1).nonzero().flatten().tolist() == [2]


def test_no_host_synchronization():
    for surrogate, width in itertools.product(SURROGATES, (1.0, 60.0, 500.0)):
        loss = RankingLoss(surrogate, noise_of(5000)).to(DEVICE)
        outputs = (torch.rand(8, 5001, device=DEVICE) * width).requires_grad_()
        Y = torch.rand(8, 5000, device=DEVICE) < 0.2
        loss(outputs, Y).backward()  # tables are built in the first call, which may synchronize
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            loss(outputs, Y).backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_unsupported_input_uses_the_eager_loss():
    loss = RankingLoss("sigmoid", noise_of(30)).to(DEVICE)
    outputs, Y = batch(loss, 8, 30)
    assert not can_fuse(outputs.double(), Y)
    assert not can_fuse(outputs, Y.float().requires_grad_())
    assert not can_fuse(outputs.cpu(), Y.cpu())
    custom = RankingLoss(lambda t: torch.sigmoid(-t), noise_of(30)).to(DEVICE)
    torch.testing.assert_close(custom(outputs, Y), loss(outputs, Y))
    assert value_and_gradient(loss, outputs[:0], Y[:0])[1].shape == (0, 31)


def test_cuda_graph_capture():
    torch.manual_seed(10)
    for surrogate, q in (("sigmoid", 30), ("sigmoid", 2500), ("hinge", 5000)):
        loss = RankingLoss(surrogate, noise_of(q)).to(DEVICE)
        outputs, Y = batch(loss, 8, q)
        static_input = torch.zeros_like(outputs).requires_grad_()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.autograd.grad(loss(static_input, Y), static_input)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            value = loss(static_input, Y)
            (gradient,) = torch.autograd.grad(value, static_input)
        with torch.no_grad():
            static_input.copy_(outputs)
        graph.replay()
        assert_equal_float32((value.double(), gradient.double()), value_and_gradient(loss, outputs, Y))


def test_hamming_values_and_gradients():
    torch.manual_seed(13)
    cases = itertools.product(SURROGATES, (1, 14, 300, 2999), (None, noise_of), (torch.float32, torch.bfloat16))
    for surrogate, q, make_noise, dtype in cases:
        noise = None if make_noise is None else make_noise(q)
        outputs, Y = 4 * torch.randn(8, q, device=DEVICE).to(dtype), torch.rand(8, q, device=DEVICE)
        Y[Y < 0.2] = float("nan")
        for reduction, over_labels in itertools.product(("mean", "sum", "none"), ("sum", "mean")):
            loss = HammingLoss(surrogate, noise, reduction, label_reduction=over_labels).to(DEVICE)
            assert can_fuse(outputs, Y)
            assert not can_fuse(outputs.double(), Y)
            value, gradient = value_and_gradient(loss, outputs, Y)
            true_value, true_gradient = value_and_gradient(loss, outputs.double(), Y.double())
            case = surrogate, q, dtype, reduction
            scale = 1e-6 * float(true_value.abs().max()) + 1e-6 * (1 if over_labels == "mean" else q)
            assert ((value - true_value).abs() <= scale).all(), case
            bound = (8e-3 if dtype == torch.bfloat16 else 1e-5) * float(true_gradient.abs().max()) + 1e-12
            assert ((gradient - true_gradient).abs() <= bound).all(), case
            assert gradient[Y.isnan()].eq(0).all()


def test_compiled_loss_equals_the_eager_one():
    torch.manual_seed(15)
    for surrogate, q in (("sigmoid", 30), ("hinge", 300), ("logistic", 2500), ("square", 2500), ("hinge", 5000)):
        for make in (RankingLoss, HammingLoss):
            loss = make(surrogate, noise_of(q)).to(DEVICE)
            outputs, Y = batch(loss, 8, q)
            torch._dynamo.reset()
            compiled = torch.compile(loss, fullgraph=True)
            assert_equal_float32(value_and_gradient(compiled, outputs, Y), value_and_gradient(loss, outputs, Y))
            with torch.autocast("cuda", dtype=torch.bfloat16):
                low = outputs.bfloat16()
                results = value_and_gradient(compiled, low, Y), value_and_gradient(loss, low, Y)
            torch.testing.assert_close(*results, rtol=1e-2, atol=1e-2 * float(results[1][1].abs().max()))


def test_small_gradients_of_a_compiled_loss_do_not_underflow_in_float16():
    loss = RankingLoss(label_reduction="mean")
    outputs, Y = batch(loss, 256, 1000)
    torch._dynamo.reset()
    scaled = torch.full((), 2.0**16, device=DEVICE)  # the upstream gradient of a gradient scaler
    results = [value_and_gradient(f, outputs.half(), Y, scaled)[1] for f in (torch.compile(loss), loss)]
    torch.testing.assert_close(*results, rtol=1e-2, atol=1e-2 * float(results[1].abs().max()))
