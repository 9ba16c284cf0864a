"""Extreme inputs for all estimators, metrics and losses: finite results, or a ValueError or warning with the cause."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
import torch

from robustness.campaign import Campaign, Failure

N_LABELS = 4


# -- Inputs


def features(rng: np.random.Generator, n: int) -> Any:
    """Return features with an extreme property."""
    X = rng.normal(size=(n, 6))
    scale = rng.choice([1, 1, 1e-300, 1e-30, 1e-8, 1e3, 1e6, 1e15, 1e30, 1e38, 1e100, 1e300])
    if rng.random() < 0.5:
        X[:, rng.integers(6)] *= scale
    else:
        X = X * scale
    kind = rng.integers(14)
    if kind == 0:
        X[:] = X[0]
    elif kind == 1:
        X[:, 0] = 0
    elif kind == 2:
        X[:, 1] = X[:, 0]
    elif kind == 3:
        X += 1e8
    elif kind == 4:
        X[rng.integers(n), rng.integers(6)] = rng.choice([np.nan, np.inf, -np.inf])
    elif kind == 5:
        X[rng.integers(n)] *= 1e6
    elif kind == 6:
        X = X[:, :1]
    elif kind == 7:
        X = np.hstack([X, np.zeros((n, 200))])
    with np.errstate(over="ignore"):
        kinds: tuple[Callable[[Any], Any], ...] = (
            lambda X: X.astype(np.float32),
            lambda X: X.astype(np.float16),
            scipy.sparse.csr_array,
            pd.DataFrame,
            lambda X: torch.tensor(X, dtype=torch.bfloat16),
            lambda X: np.clip(np.nan_to_num(X), -100, 100).astype(np.int8),
        )
        return X if rng.random() < 0.5 else kinds[rng.integers(len(kinds))](X)


def labels(rng: np.random.Generator, n: int) -> Any:
    """Return labels with an extreme property."""
    Y: Any = (rng.random((n, N_LABELS)) < rng.choice([0.5, 0.3, 0.05, 0.95])).astype(np.int64)
    kind = rng.integers(14)
    if kind == 0:
        Y[:, 0] = 0
    elif kind == 1:
        Y[:, 0] = 1
    elif kind == 2:
        Y[:] = 0
    elif kind == 3:
        Y[:] = 1
    elif kind == 4:
        Y = Y.astype(float)
        Y[rng.random(Y.shape) < 0.3] = np.nan
    elif kind == 5:
        Y = Y.astype(object)
        Y[0, 0] = rng.choice([None, pd.NA])
    elif kind == 6:
        Y = torch.tensor(Y, dtype=torch.bfloat16)
    elif kind == 7:
        Y = scipy.sparse.csr_array(Y)
    elif kind == 8:
        Y = Y.astype(float)
        Y[rng.integers(n), 0] = rng.choice([0.5, -1, 2, 1e300, np.inf])
    elif kind == 9:
        Y[1:] = Y[0]
    return Y


def noise(rng: np.random.Generator) -> Any:
    """Return a noise model, up to the limits of what is allowed."""
    from ccmn.noise import ClassConditionalNoise, MissingNoise, PartialNoise

    high = float(rng.choice([0.0, 0.1, 0.45, 0.49, 0.9, 0.95, 0.999]))
    kind = rng.integers(5)
    if kind == 0:
        return ClassConditionalNoise(high, (1 - high) * 0.5, n_labels=N_LABELS)
    if kind == 1:
        return ClassConditionalNoise(rng.random(N_LABELS) * high, rng.random(N_LABELS) * (0.99 - high))
    if kind == 2:
        return PartialNoise(high, n_labels=N_LABELS)
    if kind == 3:
        return MissingNoise(high, n_labels=N_LABELS)
    return None


# -- Cases


def fit(rng: np.random.Generator, X: Any, Y: Any) -> Any:
    """Fit a random estimator and predict."""
    estimator = _estimator(rng)
    estimator.fit(X, Y)
    rows = X if rng.random() < 0.7 else X[:3]
    predict = getattr(estimator, "predict_proba", None) if rng.random() < 0.5 else None
    predict = predict or getattr(estimator, "decision_function", estimator.predict)
    return type(estimator).__name__, predict(rows)


def _estimator(rng: np.random.Generator) -> Any:
    from sklearn.linear_model import LogisticRegression

    from ccmn import CCMNClassifier, CorrectedClassifier
    from ccmn.losses import CORRECTIONS, SURROGATES
    from ccmn.paper.baselines import BASELINES

    kind = rng.integers(9)
    if kind == 5:
        return CorrectedClassifier(noise=noise(rng), threshold=str(rng.choice(["fixed", "f1"])), random_state=0)
    if kind < 5:
        options: dict[str, Any] = {
            "noise": "partial" if rng.random() < 0.1 else noise(rng),
            "loss": str(rng.choice(["hamming", "ranking"])),
            "surrogate": str(rng.choice([*SURROGATES])),
            "model": str(rng.choice(["linear", "linear", "mlp"])),
            "lr": float(rng.choice([0.05, 10.0])),
            "epochs": 5,
            "correction": rng.choice([None, None, *CORRECTIONS]),
            "random_state": 0,
        }
        return CCMNClassifier(**options)
    if kind == 6:
        return CorrectedClassifier(LogisticRegression(), noise(rng), random_state=0)
    name = [*BASELINES][rng.integers(len(BASELINES))]
    return BASELINES[name].estimator()


def estimate(rng: np.random.Generator, X: Any, Y: Any) -> Any:
    """Estimate the noise rates."""
    from ccmn import estimate_noise

    inputs: dict[str, dict[str, Any]] = {
        "features": {},
        "trusted": {"trusted": ([0, 1, 2, 3], np.array([[0, 1, 0, 1]] * 4))},
        "votes": {"votes": rng.integers(0, 2, size=(60, 3, N_LABELS)).astype(float)},
        "prevalence": {"prevalence": rng.random(N_LABELS)},
        "pred_proba": {"pred_proba": np.clip(rng.random((60, N_LABELS)) * rng.choice([1, 1e-300, 2]), 0, 1)},
    }
    kind, noise_type = str(rng.choice([*inputs])), str(rng.choice(["both", "partial", "missing"]))
    if kind == "votes":
        X = Y = None
    elif kind == "pred_proba":
        X = None
    rates = estimate_noise(X, Y, noise_type=noise_type, random_state=0, **inputs[kind])
    return f"estimate_noise {kind}", np.stack([rates.rho_pos, rates.rho_neg, *rates.ci_pos, *rates.ci_neg])


def audit(rng: np.random.Generator, X: Any, Y: Any) -> Any:
    """Find label issues."""
    from ccmn.audit import find_label_issues
    from ccmn.noise import PartialNoise

    proba = np.clip(rng.random((60, N_LABELS)) * rng.choice([1, 1e-300, 2]), 0, 1)
    rates = noise(rng) or PartialNoise(0.1, n_labels=N_LABELS)
    return "find_label_issues", np.asarray(find_label_issues(Y, proba, rates)["p_wrong"], float)


def metric(rng: np.random.Generator, X: Any, Y: Any) -> Any:
    """Evaluate a random metric."""
    from ccmn import metrics

    names = [name for name in metrics.__all__ if name.islower() and name != "make_noisy_scorer"]
    name = str(rng.choice(names))
    scores: Any = rng.normal(size=(60, N_LABELS)) * rng.choice([1, 0, 1e-300, 1e300])
    if name in metrics.METRICS and metrics.METRICS[name].needs == "labels":
        scores = (scores > 0).astype(int)
    elif rng.random() < 0.1:
        scores[0, 0] = rng.choice([np.nan, np.inf])
    options = {"k": int(rng.integers(1, N_LABELS + 2))} if name.endswith("_at_k") else {}
    value = getattr(metrics, name)(Y, scores, noise=noise(rng), **options)
    if hasattr(value, "value"):
        if np.isnan(value.value) and value.se == 0:
            raise Failure("NaN with a standard error of 0", f"{name}: {value}")
        return name, np.array([value.value, value.se])
    return name, np.asarray(value, float)


def loss(rng: np.random.Generator, X: Any, Y: Any) -> Any:
    """Compute a random loss and its gradient."""
    from ccmn import losses

    Z: Any = rng.normal(size=(60, N_LABELS)) * rng.choice([1, 0, 1e-300, 1e10, 1e30, 1e200])
    targets = (rng.random((60, N_LABELS)) < rng.choice([0, 0.02, 0.5, 1])).astype(float)
    kind = str(rng.choice([*losses.LOSSES, "forward"]))
    dtype = rng.choice([torch.float32, torch.float64])
    with np.errstate(over="ignore"):
        scores = torch.tensor(Z.astype(np.float32) if dtype == torch.float32 else Z, dtype=dtype)
    scores = scores.clamp(-1e30, 1e30).requires_grad_()
    if kind == "forward":
        module: Any = losses.ForwardLoss(noise=noise(rng))
    else:
        surrogate, correction = str(rng.choice([*losses.SURROGATES])), rng.choice([None, *losses.CORRECTIONS])
        module = losses.LOSSES[kind](surrogate, noise=noise(rng), correction=correction)
    value = module(scores, torch.tensor(targets, dtype=dtype))
    if value.dtype == torch.float32 and scores.abs().max() > 1e18:
        return f"{kind} loss of large scores", np.zeros(1)  # squares exceed float32
    value.backward()
    return f"{kind} loss", np.array([value.item(), scores.grad.abs().max().item()])


def votes(rng: np.random.Generator, X: Any, Y: Any) -> Any:
    """Infer labels from the votes of annotators who agree, contradict each other, vote rarely or never."""
    from ccmn import infer_labels
    from ccmn.votes import next_votes

    given = (rng.random((60, 3, N_LABELS)) < rng.choice([0.0, 0.05, 0.5, 1.0])).astype(float)
    given[rng.random(given.shape) < rng.choice([0.0, 0.5, 0.99, 1.0])] = np.nan
    given[:, 0] = rng.choice([0.0, 1.0, np.nan, 0.5])
    if rng.random() < 0.1:
        given[0, 0, 0] = rng.choice([2.0, -1.0, np.inf])
    inferred = infer_labels(given, X if rng.random() < 0.5 else None)
    next_votes(inferred, 5)
    return "infer_labels", np.concatenate([inferred.proba.ravel(), inferred.rho_pos.ravel(), inferred.rho_neg.ravel()])


def diagnose(rng: np.random.Generator, X: Any, Y: Any) -> Any:
    """Diagnose noise, or estimate uncertain labels."""
    from ccmn import diagnose_noise
    from ccmn.estimation import resolve_uncertain

    proba = np.clip(rng.random((60, N_LABELS)) * rng.choice([1, 1e-300, 2]), 0, 1)
    if rng.random() < 0.5:
        return "diagnose_noise", np.array([flag.value for flag in diagnose_noise(X, Y).flags if flag.value is not None])
    given = rng.integers(0, 2, (60, N_LABELS))
    given[rng.random(given.shape) < rng.choice([0.1, 0.9])] = -1
    by_features = rng.random() < 0.5
    found = resolve_uncertain(X, given) if by_features else resolve_uncertain(None, given, pred_proba=proba)
    return "resolve_uncertain", np.concatenate([found.proba.ravel(), found.share[(given < 0).any(0)]])


def group_noise(rng: np.random.Generator, X: Any, Y: Any) -> Any:
    """Train on labels with rates per group."""
    from ccmn import CCMNClassifier, ClassConditionalNoise
    from ccmn.noise import GroupedNoise

    members = [ClassConditionalNoise(*(rng.random((2, N_LABELS)) * 0.499)) for _ in range(2)]
    groups = rng.choice(["a", "b"], 60)
    grouped = GroupedNoise({"a": members[0], "b": members[1]})
    clf = CCMNClassifier(grouped, loss="hamming", surrogate="square", random_state=0).fit(X, Y, groups=groups)
    return "GroupedNoise", clf.decision_function(X)


def _dense(Y: Any) -> np.ndarray:
    return np.asarray(Y.toarray() if scipy.sparse.issparse(Y) else Y, dtype=float)


def risk(rng: np.random.Generator, X: Any, Y: Any) -> Any:
    """Control a risk on noisy labels."""
    from ccmn import control_risk
    from ccmn.metrics.risk_control import CONTROLLED

    scores = rng.normal(size=(60, N_LABELS)) * rng.choice([1, 0, 1e-300, 1e300])
    name, target = str(rng.choice([*CONTROLLED])), float(rng.choice([0.01, 0.1, 0.9, 0.99]))
    found = control_risk(Y, scores, noise(rng), name, target, per_label=bool(rng.integers(2)))
    return "control_risk", np.nan_to_num(np.asarray(found.bound, float), posinf=0.0)


def audit_all(rng: np.random.Generator, X: Any, Y: Any) -> Any:
    """Audit labels with out-of-fold probabilities of a linear model and a random forest."""
    from ccmn.audit import audit_labels

    found = audit_labels(X, Y, str(rng.choice(["both", "partial"])))
    return "audit_labels", np.asarray(found.issues["p_wrong"], float)


def preprocess(rng: np.random.Generator, X: Any, Y: Any) -> Any:
    """Convert a table with extreme numbers, categories, dates and texts to features."""
    from ccmn.data import TablePreprocessor

    words = np.array(["a", "b", "", None, "nan", "\u0661", "2026-01-01", "1e999"], dtype=object)
    frame = pd.DataFrame(
        {
            "number": rng.normal(size=60) * rng.choice([1, 1e-300, 1e300]),
            "gaps": np.where(rng.random(60) < 0.5, np.nan, 1.0),
            "word": words[rng.integers(0, len(words), 60)],
            "text": [f"red boat {i}" for i in rng.integers(0, 5, 60)],
            "same": 1,
            "day": pd.date_range("1700-01-01", periods=60, freq="1000D"),
        }
    )
    if rng.random() < 0.3:
        frame.loc[0, "number"] = rng.choice([np.inf, -np.inf])
    chosen = list(rng.permutation(frame.columns)[: rng.integers(1, 7)])
    text = ["text"] if "text" in chosen else []
    return "TablePreprocessor", _dense(TablePreprocessor(text).fit(frame[chosen]).transform(frame[chosen][:20]))


CASES = (
    (0.4, fit),
    (0.1, estimate),
    (0.05, audit),
    (0.15, metric),
    (0.13, loss),
    (0.03, votes),
    (0.04, diagnose),
    (0.03, group_noise),
    (0.03, risk),
    (0.01, audit_all),
    (0.03, preprocess),
)


def check(rng: np.random.Generator, folder: Path) -> str:
    """Compute one result from extreme inputs."""
    chosen = CASES[rng.choice(len(CASES), p=[share for share, _ in CASES])][1]
    with warnings.catch_warnings(record=True) as caught, np.errstate(all="ignore"):
        warnings.simplefilter("always")
        try:
            name, result = chosen(rng, features(rng, 60), labels(rng, 60))
        except ValueError as error:
            if not str(error).strip():
                raise Failure("empty message", chosen.__name__) from error
            return f"{chosen.__name__}: ValueError"
    result = _dense(result.float() if torch.is_tensor(result) else result)
    if np.isfinite(result).all():
        return f"{chosen.__name__}: finite"
    texts = [str(warning.message) for warning in caught if issubclass(warning.category, UserWarning)]
    if not texts:
        raise Failure("not finite", f"{name}: {result.ravel()[:5]}")
    return f"{chosen.__name__}: warning"


def prepare() -> None:
    """Import everything."""
    torch.set_num_threads(1)


CAMPAIGNS = (Campaign("numerics", check, 2000, seconds=60, batch=25, prepare=prepare),)
