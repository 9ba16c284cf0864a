"""Every entry of the fast forms returns the value and the derivatives of the formula beside its call, or None."""

import pytest
import torch

from ccmn.losses import SURROGATES, hamming_loss, ranking_loss

LOSSES = {"hamming": hamming_loss, "ranking": ranking_loss}


def formula(loss, f, p, phi):
    """Return the loss from its definition, with NaN targets removed from every sum."""
    known = ~p.isnan().expand(torch.broadcast_shapes(f.shape, p.shape))
    f, p = (torch.where(known, t, 0) for t in (f, p))
    n = torch.where(known, 1 - p, 0)
    if loss == "hamming":
        return (p * phi(f) + n * phi(-f)).sum(-1)
    pairs = p.unsqueeze(-1) * n.unsqueeze(-2) * phi(f.unsqueeze(-1) - f.unsqueeze(-2))
    return (pairs * (1 - torch.eye(f.shape[-1], dtype=f.dtype))).sum((-2, -1))


def derivatives(function, f, p):
    """Return the value and the first and second derivatives with respect to the scores."""
    leaf = f.clone().requires_grad_()
    value = function(leaf, p)
    (first,) = torch.autograd.grad(value.sum(), leaf, create_graph=True)
    linear = not first.requires_grad  # between the kinks of a hinge
    (second,) = (torch.zeros_like(f),) if linear else torch.autograd.grad(first.square().sum(), leaf)
    return value.detach(), first.detach(), second


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("q", [1, 5, 60, 300])
@pytest.mark.parametrize("case", ["plain", "nan", "broadcast", "targets", "float16", "compiled"])
def test_entry_equals_the_formula(loss, surrogate, q, case):
    torch.manual_seed(q)
    f, p = torch.randn(2, 8, q, dtype=torch.float64)
    phi, function, tolerance = SURROGATES[surrogate], LOSSES[loss], 1e-10
    if case != "plain":
        p[:, q // 2 :: 7] = float("nan")
    if case == "broadcast":
        f = torch.randn(3, 8, q, dtype=torch.float64)
    if case == "targets":  # derivatives with respect to the targets
        p = p.nan_to_num(0.3)
        found, expected = (
            derivatives(call, p, f)
            for call in (lambda p, f: function(f, p, surrogate), lambda p, f: formula(loss, f, p, phi))
        )
    elif case == "float16":
        low = f.half()
        leaf = low.clone().requires_grad_()
        value = function(leaf, p.float(), surrogate)
        value.sum().backward()
        assert value.dtype == torch.float32
        assert leaf.grad.dtype == torch.float16
        expected, gradient = derivatives(lambda f, p: formula(loss, f, p, phi), low.double(), p)[:2]
        size = float(gradient.abs().max()) + 1
        torch.testing.assert_close(leaf.grad.double(), gradient, rtol=1e-3, atol=1e-3 * size)
        found, expected, tolerance = (value.detach().double(),), (expected,), 1e-5
    elif case == "compiled":
        if q in (1, 60):
            pytest.skip("compiled in the same way as 5 labels")
        torch._dynamo.reset()
        compiled = torch.compile(lambda f, p: function(f, p, surrogate), fullgraph=True, backend="aot_eager")
        leaf = f.clone().requires_grad_()
        value = compiled(leaf, p)
        value.sum().backward()
        found = value.detach(), leaf.grad
        expected = derivatives(lambda f, p: formula(loss, f, p, phi), f, p)[:2]
    else:
        found = derivatives(lambda f, p: function(f, p, surrogate), f, p)
        expected = derivatives(lambda f, p: formula(loss, f, p, phi), f, p)
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x, y.detach(), rtol=tolerance, atol=tolerance * (float(y.detach().abs().max()) + 1))
