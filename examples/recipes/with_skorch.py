"""
With skorch
===========

skorch makes a PyTorch module a scikit-learn estimator. A loss of this library is its ``criterion``, the noise an
argument of that; the grid search is scored on noisy labels, by the estimate of what the score would be on true ones.

Needs ``pip install 'ccmn[recipes]'``. It prints::

    chosen: 64 hidden units
    foreseen from noisy labels: 0.195
    Hamming loss, plain: 0.215
    Hamming loss, unbiased: 0.171
"""

import numpy as np
import torch
from sklearn.model_selection import GridSearchCV, KFold
from skorch import NeuralNet

from ccmn import ClassConditionalNoise, HammingLoss
from ccmn.data import load_digit_scenes
from ccmn.metrics import hamming_loss, make_noisy_scorer

# %%
# Noisy labels to learn from; true ones, of pictures by other hands, to test on.
data = load_digit_scenes(5000)
X, Y = data.X[:2500], data.Y[:2500]
noise = ClassConditionalNoise.sample(10, max_sum=0.6, random_state=1)
Y_noisy = noise.corrupt(Y, random_state=0)


# %%
# ``NeuralNet`` leaves open what its outputs mean: these are scores, and a label is predicted where its score is above
# 0.
class Net(NeuralNet):
    """Scores, and the labels they stand for."""

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        return self.predict_proba(X)  # skorch's name for the outputs, whatever they are

    def predict(self, X: np.ndarray) -> np.ndarray:
        return (self.decision_function(X) >= 0).astype(int)


class Network(torch.nn.Sequential):
    """One hidden layer."""

    def __init__(self, hidden: int = 32) -> None:
        super().__init__(torch.nn.Linear(384, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 10))


def make_net(**settings: object) -> Net:
    torch.manual_seed(0)
    return Net(
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
        verbose=0,
        **settings,
    )


# %%
# The number of hidden units, chosen without a true label.
search = GridSearchCV(
    make_net(criterion__noise=noise, criterion__correction="abs"),
    {"module__hidden": [4, 64]},
    scoring=make_noisy_scorer("hamming_loss", noise),
    cv=KFold(2, shuffle=True, random_state=0),
)
search.fit(X, Y_noisy)
hidden = search.best_params_["module__hidden"]
print(f"chosen: {hidden} hidden units")
print(f"foreseen from noisy labels: {-search.best_score_:.3f}")

# %%
# The same network with labels at their word, and what both are worth on true labels.
plain = make_net(module__hidden=hidden).fit(X, Y_noisy)
for name, net in (("plain", plain), ("unbiased", search.best_estimator_)):
    print(f"Hamming loss, {name}: {hamming_loss(data.Y[2500:], net.predict(data.X[2500:])):.3f}")
