"""Nine kinds of injected label noise: five class-conditional ones and four that violate that model."""

from __future__ import annotations

import numpy as np
from scipy.sparse import issparse
from sklearn.linear_model import LogisticRegression

from ccmn.noise import ClassConditionalNoise, MissingNoise, PartialNoise

CLASS_CONDITIONAL = ("clean", "two-sided", "missing", "added", "asymmetric")
VIOLATIONS = ("boundary", "feature", "confusion", "empty")
KINDS = CLASS_CONDITIONAL + VIOLATIONS


def inject(kind: str, X: object, Y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return noisy labels of true labels Y (n, q).

    two-sided: rates .1 to .5 with sums up to .6; missing and added: rates .1 to .5; asymmetric: 30 to 50 % of the
    positives missing and 2 or 5 % of the negatives added; boundary: flip probability .5 (1 - |2 eta - 1|) for an
    estimated P(y = 1 | x) = eta; feature: positives are lost with a probability that grows from 0 to .6 along a random
    direction, negatives added with a fifth of it; confusion: 35 % of the positives of a label are moved to the next
    label; empty: 10 % of the rows lose all labels.
    """
    n, q = Y.shape
    if kind == "clean":
        return Y.copy()
    if kind in CLASS_CONDITIONAL:
        noise = {
            "two-sided": lambda: ClassConditionalNoise.sample(q, max_sum=0.6, random_state=rng),
            "missing": lambda: MissingNoise(rng.choice([0.1, 0.2, 0.3, 0.4, 0.5], q)),
            "added": lambda: PartialNoise(rng.choice([0.1, 0.2, 0.3, 0.4, 0.5], q)),
            "asymmetric": lambda: ClassConditionalNoise(rng.choice([0.3, 0.4, 0.5], q), rng.choice([0.02, 0.05], q)),
        }[kind]()
        return np.asarray(noise.corrupt(Y, random_state=rng))
    draw = rng.random(Y.shape)
    if kind == "boundary":
        return np.where(draw < 0.5 * (1 - np.abs(2 * posterior(X, Y) - 1)), 1 - Y, Y)
    if kind == "feature":
        direction = np.asarray(X @ rng.standard_normal(X.shape[1])).ravel()
        rate = 0.6 * np.argsort(np.argsort(direction))[:, None] / n
        return np.where(Y == 1, draw >= rate, draw < rate / 5).astype(Y.dtype)
    noisy = Y.copy()
    if kind == "confusion":
        for label in range(q):
            other = (label + 1) % q
            moved = (Y[:, label] == 1) & (Y[:, other] == 0) & (draw[:, label] < 0.35)
            noisy[moved, label], noisy[moved, other] = 0, 1
        return noisy
    if kind == "empty":
        noisy[rng.random(n) < 0.1] = 0
        return noisy
    raise ValueError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}")


def posterior(X: object, Y: np.ndarray) -> np.ndarray:
    """Return P(y = 1 | x), (n, q), of logistic regressions on features scaled to unit mean row norm."""
    norms = np.sqrt(np.asarray(X.multiply(X).sum(1)).ravel() if issparse(X) else np.square(X).sum(1))
    scaled = X * (1 / max(norms.mean(), 1e-12))
    result = np.empty(Y.shape)
    for label, target in enumerate(Y.T):
        if target.min() == target.max():
            result[:, label] = target[0]
        else:
            result[:, label] = LogisticRegression(C=10.0, max_iter=300).fit(scaled, target).predict_proba(scaled)[:, 1]
    return result
