"""Write the saved models of this folder: run it in the commit that changes the format of models."""

from pathlib import Path

import numpy as np

from ccmn import CCMNClassifier, ClassConditionalNoise

FOLDER = Path(__file__).parent
MODELS = {
    "ranking_linear": {"loss": "ranking", "model": "linear", "epochs": 20},
    "hamming_mlp": {"loss": "hamming", "model": "mlp", "epochs": 5},
}

if __name__ == "__main__":
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 6))
    noise = ClassConditionalNoise([0.2, 0.1, 0.3], [0.1, 0.2, 0.0])
    Y = noise.corrupt((X @ rng.normal(size=(6, 3)) > 0.3).astype(int), random_state=0)
    expected = {"X": X[:50]}
    for name, parameters in MODELS.items():
        clf = CCMNClassifier(noise, lr=0.05, random_state=0, **parameters).fit(X, Y)
        clf.save(FOLDER / f"{name}.ccmn")
        expected |= {f"{name}_s": clf.decision_function(X[:50]), f"{name}_p": clf.predict_proba(X[:50])}
    np.savez(FOLDER / "expected.npz", **expected)
