"""Random fits and extreme numbers: finite results without warnings of numpy, or a ValueError that names the cause.

Fits at the same time, with other numbers of threads, and in long sequences give the same results in the same memory.
"""

import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
import torch
from sklearn.linear_model import LogisticRegression

import ccmn
from ccmn import CCMNClassifier, ClassConditionalNoise, CorrectedClassifier, metrics
from ccmn.paper.baselines import BASELINES
from robustness.campaign import Campaign, expect

QUICK: dict[str, Any] = {"epochs": 5, "lr": 0.05, "random_state": 0}


def estimators(noise: Any) -> dict[str, Callable[[], Any]]:
    """Return all estimators of the package; competing methods take no noise."""
    return {
        "default": lambda: CorrectedClassifier(noise=noise, random_state=0),
        "corrected": lambda: CorrectedClassifier(LogisticRegression(), noise=noise, random_state=0),
        "hamming": lambda: CCMNClassifier(noise, loss="hamming", **QUICK),
        "logistic": lambda: CCMNClassifier(noise, loss="hamming", surrogate="logistic", **QUICK),
        "ranking": lambda: CCMNClassifier(noise, **QUICK),
        "network": lambda: CCMNClassifier(noise, model="mlp", **QUICK),
        "relu": lambda: CCMNClassifier(noise, loss="hamming", correction="relu", **QUICK),
        **{f"method {name}": BASELINES[name].make for name in BASELINES},
    }


def noisy_task(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, Any]:
    """Return features, labels with exactly the noise that is declared, and this noise."""
    n = int(np.exp(rng.uniform(np.log(2), np.log(1000))))
    d, q = rng.integers(1, 10), rng.integers(1, 7)
    X = rng.normal(size=(n, d)) * rng.choice([1, 1, 1, 1e-3, 1e3])
    Y = (X @ rng.normal(size=(d, q)) + rng.normal(size=q) * rng.choice([0, 1]) > 0).astype(int)
    rates = rng.choice([0, 0.1, 0.3, 0.4, 0.45], size=(2, q))
    noise = ClassConditionalNoise(*rates)
    return X, noise.corrupt(Y, random_state=int(rng.integers(2**31))), noise


def random_fit(rng: np.random.Generator, folder: Path) -> str:
    X, Y, noise = noisy_task(rng)
    made = estimators(rng.choice(["both", "partial"]) if rng.random() < 0.2 else noise)
    name = [*made][rng.integers(len(made))]
    if name.startswith("method"):  # they do not scale features; support vector machines need many steps on large ones
        X = X / np.abs(X).max()
    return f"{name}: {finite(lambda: made[name]().fit(X, Y), X)}"


def finite(fit: Callable[[], Any], X: Any) -> str:
    """Fit and predict; fail if a number is not finite or numpy warns."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            fitted = fit()
        except ValueError as error:
            expect(bool(str(error).strip()), "empty message")
            return "ValueError"
        scores = np.asarray(fitted.decision_function(X))
        proba = np.asarray(fitted.predict_proba(X)) if hasattr(fitted, "predict_proba") else np.zeros(1)
        expect(bool(((scores >= 0) == (fitted.predict(X) == 1)).all()), "predict differs", fitted)
    expect(bool(np.isfinite(scores).all() and ((proba >= 0) & (proba <= 1)).all()), "not finite", fitted)
    warned = [str(warning.message) for warning in caught if issubclass(warning.category, RuntimeWarning)]
    expect(not warned, "RuntimeWarning", (fitted, warned[:3]))
    return "finite"


# -- Extreme numbers


def extreme_features(rng: np.random.Generator, n: int) -> Any:
    X = rng.normal(size=(n, 6))
    scale = rng.choice([1, 1, 1e-300, 1e-30, 1e-8, 1e6, 1e15, 1e38, 1e100, 1e300])
    chosen = slice(None) if rng.random() < 0.5 else rng.integers(6)
    X[:, chosen] *= scale
    changes: list[Callable[[], Any]] = [
        lambda: X.__setitem__(slice(None), X[0]),
        lambda: X.__setitem__((slice(None), 0), 0),
        lambda: X.__setitem__((slice(None), 1), X[:, 0]),
        lambda: X.__iadd__(1e8),
        lambda: X.__setitem__((rng.integers(n), 0), rng.choice([np.nan, np.inf, -np.inf])),
        lambda: None,
    ]
    changes[rng.integers(len(changes))]()
    kinds: list[Callable[[Any], Any]] = [np.asarray, np.float32, np.float16, scipy.sparse.csr_array, pd.DataFrame]
    with np.errstate(over="ignore"):
        return kinds[rng.integers(len(kinds))](X)


def extreme_labels(rng: np.random.Generator, n: int, q: int) -> np.ndarray:
    Y = (rng.random((n, q)) < rng.choice([0.5, 0.05, 0.95])).astype(float)
    places: list[Any] = [(slice(None), 0), slice(None), rng.random(Y.shape) < 0.3, (0, 0), slice(0, 0)]
    Y[places[rng.integers(len(places))]] = rng.choice([0, 1, np.nan, np.nan, 0.5, -1, np.inf])
    return Y


def extreme(rng: np.random.Generator, folder: Path) -> str:
    """Fit, estimate, audit, infer or evaluate with extreme numbers; a warning may say why a result is not finite."""
    q, n = 4, 60
    X, Y = extreme_features(rng, n), extreme_labels(rng, n, q)
    high = float(rng.choice([0.0, 0.45, 0.9, 0.999]))
    noise = ccmn.ClassConditionalNoise(high, (1 - high) * 0.5, n_labels=q)
    proba = np.clip(rng.random((n, q)) * rng.choice([1, 1e-300, 2]), 0, 1)
    votes = np.where(rng.random((n, 3, q)) < rng.choice([0, 0.5, 0.99]), np.nan, rng.integers(0, 2, (n, 3, q)))
    scores = rng.normal(size=(n, q)) * rng.choice([1, 0, 1e-300, 1e300])
    made = estimators(noise)
    fitted = made[[*made][rng.integers(len(made))]]()
    metric = metrics.METRICS[[*metrics.METRICS][rng.integers(len(metrics.METRICS))]]
    rates = ("rho_pos", "rho_neg", "ci_pos", "ci_neg")
    calls: dict[str, Callable[[], Any]] = {
        "fit": lambda: fitted.fit(X, Y).decision_function(X),
        "estimate": lambda: [getattr(ccmn.estimate_noise(X, Y, random_state=0), name) for name in rates],
        "issues": lambda: ccmn.find_label_issues(Y, proba, noise)["p_wrong"],
        "votes": lambda: ccmn.infer_labels(votes).proba,
        "risk": lambda: ccmn.control_risk(Y, scores, noise, "recall", 0.9).threshold,
        "metric": lambda: getattr(metrics, metric.name)(Y, scores > 0 if metric.needs == "labels" else scores),
    }
    name = [*calls][rng.choice(len(calls), p=[0.5, 0.1, 0.1, 0.1, 0.1, 0.1])]
    with warnings.catch_warnings(record=True) as caught, np.errstate(all="ignore"):
        warnings.simplefilter("always")
        try:
            found = calls[name]()
        except ValueError as error:
            expect(bool(str(error).strip()), "empty message", name)
            return f"{name}: ValueError"
    parts = found if isinstance(found, list) else [found]
    bounded = name == "risk" or all(np.isfinite(np.asarray(part, float)).all() for part in parts)
    expect(bounded or any(issubclass(w.category, UserWarning) for w in caught), "not finite", (name, fitted, high))
    return f"{name}: {'finite' if bounded else 'warning'}"


# -- Threads and memory


def threads(rng: np.random.Generator, folder: Path) -> str:
    """Two fits at the same time equal fits one after the other; 1, 2 and 8 threads agree to 1e-6 of the largest score.

    The order of sums depends on the number of threads.
    """
    X, Y, noise = noisy_task(np.random.default_rng(int(rng.integers(20))))
    made = estimators(noise)
    names = [str(name) for name in rng.choice([*made], 2)]

    def scores(name: str) -> Any:
        try:
            return np.asarray(made[name]().fit(X, Y).decision_function(X))
        except ValueError:  # too few rows, or a single label
            return np.zeros(1)

    expected, found = [scores(name) for name in names], [None, None]
    workers = [threading.Thread(target=lambda i=i: found.__setitem__(i, scores(names[i]))) for i in range(2)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
    expect(all(map(np.array_equal, expected, found)), "not equal", names)
    for count in (2, 8):
        torch.set_num_threads(count)
        close = np.allclose(scores(names[0]), expected[0], rtol=0, atol=1e-6 * max(1, np.abs(expected[0]).max()))
        torch.set_num_threads(1)
        expect(close, "depends on threads", (names[0], count))
    return "equal"


def leak(rng: np.random.Generator, folder: Path, fits: int = 500) -> str:
    """Memory after many fits is at most 5 % above that after the first tenth."""
    rows = np.random.default_rng(0).normal(size=(60, 3))
    name = str(rng.choice(["default", "hamming", "ranking", "corrected", "method PMLNI"]))
    for number in range(fits):
        estimators(None)[name]().fit(rows, rows > 0).predict(rows)
        if number == fits // 10:
            before = _resident()
    expect(_resident() < 1.05 * before, "leak", f"{name}: {before} bytes became {_resident()}")
    return f"{name}: flat"


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def prepare() -> None:
    """Import everything."""
    torch.set_num_threads(1)
    estimators(None)


CAMPAIGNS = (
    Campaign("fits", random_fit, 2000, seconds=60, batch=25, prepare=prepare),
    Campaign("numbers", extreme, 2000, seconds=60, batch=25, prepare=prepare),
    Campaign("threads", threads, 100, seconds=60, batch=10, prepare=prepare),
    Campaign("leaks", leak, 5, seconds=600, min_minutes=30, prepare=prepare),
)
