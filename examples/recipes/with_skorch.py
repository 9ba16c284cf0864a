"""
With skorch, with unknown noise rates
=====================================

skorch wraps a PyTorch module as a scikit-learn estimator. The ``criterion`` is a loss of ccmn, and the noise model is
an argument of the criterion. The rates are estimated from out-of-fold embeddings. The grid search uses noisy labels:
its scorer estimates the score on the true labels.

Install the packages with ``pip install -r requirements/recipes.txt`` in a clone of the repository. It prints::

    mean error of the estimated rates: 0.076
    selected: 64 hidden units
    Hamming loss, estimated from noisy labels: 0.225
    Hamming loss, plain: 0.215
    Hamming loss, unbiased: 0.171
"""

import sys
import warnings

import numpy as np
import torch
from sklearn.model_selection import GridSearchCV, KFold
from skorch import NeuralNet

from ccmn import ClassConditionalNoise, HammingLoss, cross_fit_proba, estimate_noise
from ccmn.data import load_digit_scenes
from ccmn.metrics import hamming_loss, make_noisy_scorer

# %%
# Replace this block by your own data. Training labels are noisy; the test set has true labels of other writers.
data = load_digit_scenes(5000)
X, Y = data.X[:2500], data.Y[:2500]
true_noise = ClassConditionalNoise.sample(10, max_sum=0.6, random_state=1)
Y_noisy = true_noise.corrupt(Y, random_state=0)


# %%
# ``NeuralNet`` does not define the meaning of its outputs. Here they are scores, and a label is predicted if its score
# is at least 0.
class MultiLabelNet(NeuralNet):
    """Neural network that predicts label sets from scores."""

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        return self.predict_proba(X)  # the outputs of the module

    def predict(self, X: np.ndarray) -> np.ndarray:
        return (self.decision_function(X) >= 0).astype(int)


class Network(torch.nn.Sequential):
    """Network with one hidden layer."""

    def __init__(self, hidden: int = 32) -> None:
        super().__init__(torch.nn.Linear(384, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 10))


# %%
# Estimate the rates: each row is encoded by a network that was not trained on it.
warnings.filterwarnings("ignore", message="Noise rates")  # some rates have wide intervals with this few rows
fitted = cross_fit_proba(lambda: Network(64), X, Y_noisy, epochs=8, lr=0.003)
noise = estimate_noise(fitted.embeddings, Y_noisy).noise
errors = np.abs([noise.rho_pos - true_noise.rho_pos, noise.rho_neg - true_noise.rho_neg])
print(f"mean error of the estimated rates: {errors.mean():.3f}")


# %%
# skorch prints a line per epoch with ``verbose=1``.
def make_net(**settings: object) -> MultiLabelNet:
    torch.manual_seed(0)
    return MultiLabelNet(
        Network,
        criterion=HammingLoss,
        criterion__surrogate="logistic",
        optimizer=torch.optim.Adam,
        optimizer__weight_decay=1e-4,
        lr=0.003,
        max_epochs=10,
        batch_size=100,
        train_split=None,
        iterator_train__shuffle=True,
        verbose=int(sys.stderr.isatty()),
        **settings,
    )


# %%
# Select the number of hidden units without true labels.
search = GridSearchCV(
    make_net(criterion__noise=noise, criterion__correction="relu"),
    {"module__hidden": [4, 64]},
    scoring=make_noisy_scorer("hamming_loss", noise),
    cv=KFold(2, shuffle=True, random_state=0),
)
search.fit(X, Y_noisy)
hidden = search.best_params_["module__hidden"]
print(f"selected: {hidden} hidden units")
print(f"Hamming loss, estimated from noisy labels: {-search.best_score_:.3f}")

# %%
# Compare with the same network without noise correction, on true labels.
plain = make_net(module__hidden=hidden).fit(X, Y_noisy)
for name, net in (("plain", plain), ("unbiased", search.best_estimator_)):
    print(f"Hamming loss, {name}: {hamming_loss(data.Y[2500:], net.predict(data.X[2500:])):.3f}")
