"""Checks of HammingLoss, RankingLoss and ForwardLoss as PyTorch modules."""

import copy
import math
import pickle

import pytest
import torch

from ccmn.losses import CORRECTIONS, SURROGATES, ForwardLoss, HammingLoss, RankingLoss, hamming_loss, ranking_loss
from ccmn.noise import ClassConditionalNoise, TransitionNoise
from helpers import Largest
from reference import PHI, double_sum

BOTH = pytest.mark.parametrize("make", [HammingLoss, RankingLoss])
NOISE = ClassConditionalNoise([0.1, 0.2, 0.3], [0.3, 0.0, 0.2])


def batch(loss, rows=5, q=3, dtype=torch.float64):
    torch.manual_seed(0)
    return torch.randn(rows, loss.n_outputs(q), dtype=dtype), torch.randint(0, 2, (rows, q))


@BOTH
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_module_applies_the_function_to_debiased_labels(make, surrogate):
    loss = make(surrogate, NOISE, reduction="none")
    outputs, Y = batch(loss)
    p = NOISE.debias(Y.double())
    if make is HammingLoss:
        expected = hamming_loss(outputs, p, surrogate)
    else:
        scores = loss.decision(outputs)
        expected = ranking_loss(scores, p, surrogate) + hamming_loss(scores, p, surrogate)
    torch.testing.assert_close(loss(outputs, Y), expected)


@BOTH
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_memory_is_linear_in_the_number_of_labels(make, surrogate):
    q = 20_000
    loss = make(surrogate, ClassConditionalNoise(0.2, 0.01, n_labels=q))
    outputs, Y = batch(loss, rows=2, q=q, dtype=torch.float32)
    with Largest() as largest:
        loss(outputs.requires_grad_(), Y).backward()
    assert largest.entries < q * q / 100


@BOTH
def test_reductions(make):
    outputs, Y = batch(make())
    rows = make(reduction="none")(outputs, Y)
    torch.testing.assert_close(make()(outputs, Y), rows.mean())
    torch.testing.assert_close(make(reduction="sum")(outputs, Y), rows.sum())


@pytest.mark.parametrize(
    ("loss", "terms"),
    [
        (HammingLoss("logistic"), 3),
        (HammingLoss("logistic", correction="relu"), 3),
        (RankingLoss(), 12),
        (RankingLoss(dummy=False), 6),
        (RankingLoss("hinge", correction="abs"), 12),
        (ForwardLoss(NOISE), 3),
    ],
    ids=repr,
)
def test_mean_over_labels(loss, terms):
    """The mean divides by the number of labels, or by the number of ordered pairs of outputs."""
    outputs, Y = batch(loss)
    mean = copy.copy(loss)
    mean.label_reduction = "mean"
    torch.testing.assert_close(mean(outputs, Y), loss(outputs, Y) / terms)
    mean.reduction = loss.reduction = "sum"
    torch.testing.assert_close(mean(outputs, Y), loss(outputs, Y) / terms)
    assert "label_reduction='mean'" in repr(mean)


@BOTH
def test_nan_labels_do_not_contribute(make):
    """Value and gradient do not depend on the score of a NaN label, and its gradient is exactly 0."""
    loss = make(noise=NOISE)
    outputs, Y = batch(loss)
    Y = Y.double()
    Y[0, 1] = Y[2, 0] = Y[2, 2] = float("nan")
    shift = loss.n_outputs(3) - 3
    extreme = outputs.clone()
    extreme[0, 1 + shift] = 1e6
    extreme[2, 0 + shift] = float("inf")
    values = []
    for scores in (outputs, extreme):
        scores = scores.requires_grad_()
        value = loss(scores, Y)
        (gradient,) = torch.autograd.grad(value, scores)
        values.append((value.detach(), gradient))
        assert gradient[..., shift:][Y.isnan()].eq(0).all()
    torch.testing.assert_close(values[0], values[1])
    # Row 0 has the same loss as in a problem without label 1.
    two = ClassConditionalNoise(NOISE.rho_pos[[0, 2]], NOISE.rho_neg[[0, 2]])
    columns = [*range(shift), 0 + shift, 2 + shift]
    expected = make(noise=two, reduction="none")(outputs[:1, columns], Y[:1, [0, 2]])
    torch.testing.assert_close(make(noise=NOISE, reduction="none")(outputs[:1], Y[:1]), expected)


@BOTH
def test_rates_are_buffers_in_float64(make):
    loss = make(noise=NOISE)
    half = copy.deepcopy(loss).half().to("cpu")
    assert half.debias.rho_pos.dtype == torch.float64
    torch.testing.assert_close(half.debias.rho_pos, torch.tensor(NOISE.rho_pos))
    other = make(noise=ClassConditionalNoise(0.0, 0.0, n_labels=3))
    other.load_state_dict(loss.state_dict())
    outputs, Y = batch(loss)
    torch.testing.assert_close(other(outputs, Y), loss(outputs, Y))


@BOTH
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_autocast_computes_in_float32(make, surrogate):
    noise = ClassConditionalNoise(0.3, 0.2, n_labels=130)
    loss = make(surrogate, noise)
    outputs, Y = batch(loss, q=130, dtype=torch.float32)
    outputs = outputs.bfloat16().float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        autocast = loss(outputs.bfloat16(), Y)
    assert autocast.dtype == torch.float32
    torch.testing.assert_close(autocast, loss(outputs, Y))


@BOTH
@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_large_scores_in_half_precision(make, surrogate, dtype):
    """Value and gradient are finite for scores of -80 and 80."""
    loss = make(surrogate, NOISE)
    outputs, Y = batch(loss, dtype=torch.float32)
    outputs = (80 * outputs.sign()).to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=dtype):
        value = loss(outputs, Y)
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(outputs.grad).all()


@pytest.mark.parametrize(
    ("surrogate", "q"),
    [("square", 300), ("hinge", 3), ("sigmoid", 300)],
)
def test_torch_compile_in_one_graph(surrogate, q):
    """Few pairs are summed by operations that the compiler fuses, more pairs by an operator."""
    loss = RankingLoss(surrogate, ClassConditionalNoise(0.3, 0.2, n_labels=q))
    outputs, Y = batch(loss, q=q, dtype=torch.float32)
    Y = Y.float()
    Y[1, 2] = float("nan")
    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    gradients = []
    for f in (loss, compiled):
        leaf = outputs.clone().requires_grad_()
        value = f(leaf, Y)
        value.backward()
        gradients.append((value.detach(), leaf.grad))
    scale = float(gradients[0][1].abs().max())
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-5, atol=1e-6 * scale)


def test_custom_operator_passes_opcheck():
    op = torch.ops.ccmn.pair_sums.default
    for f, p, n in (torch.randn(3, 2, 30), torch.randn(3, 30, 600).transpose(1, 2)):
        torch.library.opcheck(op, (f, p, n, "sigmoid", True, False))
        torch.library.opcheck(op, (f, p, n, "logistic", True, True))


class TestCorrections:
    """Risk corrections g of the parts of the risk of every label."""

    G = {  # noqa: RUF012
        "abs": abs,
        "relu": lambda z: max(z, 0.0),
    }

    @pytest.mark.parametrize("correction", CORRECTIONS)
    def test_hamming_equals_plain_loops(self, correction):
        loss = HammingLoss("logistic", NOISE, correction=correction)
        outputs, Y = batch(loss, rows=6)
        outputs = outputs * 4
        Y = Y.double()
        Y[1, 2] = float("nan")
        expected, phi, p = 0.0, PHI["logistic"], NOISE.debias(Y)
        for j in range(3):
            seen = [i for i in range(6) if not Y[i, j].isnan()]
            positive = sum(p[i, j].item() * phi(outputs[i, j].item()) for i in seen) / len(seen)
            negative = sum((1 - p[i, j].item()) * phi(-outputs[i, j].item()) for i in seen) / len(seen)
            expected += len(seen) / 6 * (self.G[correction](positive) + self.G[correction](negative))
        assert loss(outputs, Y).item() == pytest.approx(expected, rel=1e-12)
        total = HammingLoss("logistic", NOISE, "sum", correction)
        assert total(outputs, Y).item() == pytest.approx(6 * expected, rel=1e-12)

    @pytest.mark.parametrize("correction", CORRECTIONS)
    @pytest.mark.parametrize("dummy", [True, False])
    def test_ranking_equals_plain_loops(self, correction, dummy):
        loss = RankingLoss("hinge", NOISE, correction=correction, dummy=dummy)
        outputs, Y = batch(loss, rows=6)
        outputs = outputs * 3
        p = NOISE.debias(Y.double())
        pos, neg = p, 1 - p
        if dummy:
            ones = torch.ones(6, 1, dtype=torch.float64)
            pos, neg = torch.cat((ones, pos), 1), torch.cat((ones, neg), 1)
        expected = 0.0
        for j in range(outputs.shape[1]):
            only_j = torch.zeros_like(pos)
            only_j[:, j] = pos[:, j]
            rows = [
                double_sum(outputs[i].tolist(), only_j[i].tolist(), neg[i].tolist(), PHI["hinge"]) for i in range(6)
            ]
            expected += self.G[correction](sum(rows) / 6)
        assert loss(outputs, Y).item() == pytest.approx(expected, rel=1e-12)

    @BOTH
    @pytest.mark.parametrize("correction", CORRECTIONS)
    def test_gradcheck(self, make, correction):
        loss = make("logistic", NOISE, correction=correction)
        outputs, Y = batch(loss, rows=7)
        outputs = (outputs * 5).requires_grad_()
        assert torch.autograd.gradcheck(lambda f: loss(f, Y), (outputs,))

    @BOTH
    def test_corrected_risk_is_not_negative(self, make):
        """A model that fits all noisy labels has a very negative unbiased risk."""
        noise = ClassConditionalNoise(0.3, 0.3, n_labels=3)
        Y = torch.randint(0, 2, (50, 3), generator=torch.Generator().manual_seed(0))
        outputs = torch.cat((torch.zeros(50, make().n_outputs(3) - 3), 100 * (2.0 * Y - 1)), 1)
        assert make("logistic", noise)(outputs, Y) < -10
        for correction in CORRECTIONS:
            assert make("logistic", noise, correction=correction)(outputs, Y) >= 0


@BOTH
def test_invalid_arguments(make):
    loss, two = make(noise=NOISE), "got outputs of shape .* and labels of shape"
    outputs, Y = batch(loss)
    gap = Y.double()
    gap[1, 1] = float("nan")
    for arguments, error, message in (
        ((outputs, 2 * Y - 1), ValueError, r"got -1\. For -1/\+1 labels pass \(Y \+ 1\) / 2"),
        ((outputs, gap + 0.5), ValueError, r"0 or 1 .* got [01]\.5.* soft labels use ccmn\.losses\.hamming_loss"),
        ((outputs, gap.clamp(max=0) - float("inf")), ValueError, "got -inf"),
        ((outputs, Y[:, :2]), ValueError, rf"{two} \(5, 2\)"),
        ((outputs[:, :2], Y), ValueError, r"for 3 labels this loss needs .*shape \(5, 2\)"),
        ((outputs[:4], Y), ValueError, r"the same rows; got outputs of shape \(4, \d\)"),
        ((outputs[:, None], Y), ValueError, "the same rows"),
        ((outputs, torch.tensor(1)), ValueError, "last dimension"),
        ((outputs, Y.numpy()), TypeError, "labels must be a torch tensor; got ndarray"),
        ((outputs, Y.to("meta")), ValueError, "the same device; got cpu and meta"),
    ):
        with pytest.raises(error, match=message):
            loss(*arguments)
    for options, error, message in (
        ({"noise": "both"}, TypeError, "got 'both'"),
        ({"reduction": "average"}, ValueError, "got 'average'"),
        ({"correction": "abs", "reduction": "none"}, ValueError, 'requires reduction="mean"'),
        ({"correction": "ab"}, ValueError, "'ab'; did you mean 'abs'"),
        ({"surrogate": 3}, TypeError, "a callable phi.* got int"),
    ):
        with pytest.raises(error, match=message):
            make(**options)


def test_invalid_arguments_of_one_loss():
    with pytest.raises(ValueError, match="dummy=False removes it"):
        RankingLoss()(torch.zeros(2, 3), torch.zeros(2, 3))
    with pytest.raises(ValueError, match="TransitionNoise"):
        RankingLoss(noise=TransitionNoise([[0.9, 0.1], [0.2, 0.8]]), correction="abs")
    for function in (hamming_loss, ranking_loss):
        with pytest.raises(ValueError, match=r"got shapes \(3,\) and \(4,\)"):
            function(torch.zeros(3), torch.zeros(4))


@BOTH
def test_pickle(make):
    loss = make("hinge", NOISE, correction="abs")
    again = pickle.loads(pickle.dumps(loss))
    outputs, Y = batch(loss)
    assert torch.equal(again(outputs, Y), loss(outputs, Y))


@BOTH
@pytest.mark.parametrize("correction", [None, "abs"])
def test_no_rows(make, correction):
    loss = make(correction=correction, reduction="sum")
    assert loss(torch.zeros(0, loss.n_outputs(3)), torch.zeros(0, 3)).shape == ()


# -- ForwardLoss


def test_forward_loss_is_the_likelihood_of_the_noisy_labels():
    noise = ClassConditionalNoise([0.2, 0.0], [0.1, 0.3])
    f, y = [0.7, -1.2], [1, 0]
    expected = 0.0
    for j in range(2):
        g = noise.rho_neg[j] + (1 - noise.rho_pos[j] - noise.rho_neg[j]) / (1 + math.exp(-f[j]))
        expected -= math.log(g if y[j] else 1 - g)
    loss = ForwardLoss(noise)
    assert loss(torch.tensor([f], dtype=torch.float64), torch.tensor([y])).item() == pytest.approx(expected, rel=1e-12)


def test_forward_loss_without_noise_is_the_logistic_loss():
    f, y = torch.randn(4, 3, dtype=torch.float64), torch.randint(0, 2, (4, 3))
    torch.testing.assert_close(ForwardLoss()(f, y), HammingLoss("logistic")(f, y))
    torch.testing.assert_close(ForwardLoss(ClassConditionalNoise(0.0, 0.0, n_labels=3))(f, y), ForwardLoss()(f, y))


def test_gradients_of_the_forward_loss_are_finite_and_zero_for_nan_labels():
    noise = ClassConditionalNoise([0.2, 0.0], [0.0, 0.3])
    f = torch.tensor([[80.0, -80.0], [-80.0, 80.0]], requires_grad=True)
    y = torch.tensor([[1.0, float("nan")], [0.0, 1.0]])
    ForwardLoss(noise)(f, y).backward()
    assert torch.isfinite(f.grad).all()
    assert f.grad[0, 1] == 0


def test_gradcheck_of_the_forward_loss():
    noise = ClassConditionalNoise([0.2, 0.1], [0.1, 0.3])
    f = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: ForwardLoss(noise)(t, torch.tensor([[1, 0], [0, 1], [1, 1]])), (f,))


def test_forward_loss_rejects_other_noise_models():
    with pytest.raises(TypeError, match="got TransitionNoise"):
        ForwardLoss(TransitionNoise([[0.9, 0.1], [0.2, 0.8]]))
