"""
A CNN in your own PyTorch loop, with unknown noise rates
========================================================

The labels of a set of images contain errors, and nobody knows how many. Four steps train a network that is robust to
them: cross-fit a network, estimate the noise rates from its out-of-fold embeddings, train with an unbiased loss, and
evaluate with corrected metrics. Only the criterion of the training loop depends on the noise. No step uses true labels.

It prints::

    mean error of the estimated rates: 0.054
    average precision estimated from noisy labels, plain: 0.779
    average precision estimated from noisy labels, unbiased: 0.858
    average precision on true labels, plain: 0.766
    average precision on true labels, unbiased: 0.876
"""

import copy
import warnings

import numpy as np
import torch

from ccmn import ClassConditionalNoise, RankingLoss, cross_fit_proba, estimate_noise
from ccmn.data import load_digit_scenes
from ccmn.metrics import average_precision

# %%
# Replace this block by your own images (n, channels, height, width) and labels (n, q). Here, the pictures show several
# handwritten digits. The second half shows other writers; its true labels are used for the last two lines only.
data = load_digit_scenes(8000)
images, Y = data.X.reshape(-1, 1, 16, 24), data.Y
true_noise = ClassConditionalNoise.sample(10, max_sum=0.6, random_state=1)
images_noisy, Y_noisy = images[:4000], true_noise.corrupt(Y[:4000], random_state=0)


def make_cnn(n_outputs: int = 10) -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3, padding=1),
        torch.nn.BatchNorm2d(16),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(16, 32, 3, padding=1),
        torch.nn.BatchNorm2d(32),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(768, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, n_outputs),
    )


# %%
# Each row gets the embedding of a network that was not trained on it. Embeddings of a network that was trained on the
# same rows would hide the noise. ``verbose=1`` prints the progress.
fitted = cross_fit_proba(make_cnn, images_noisy, Y_noisy, n_folds=3, epochs=5, batch_size=64)
warnings.filterwarnings("ignore", message="Noise rates")  # some rates have wide intervals with this few images
noise = estimate_noise(fitted.embeddings, Y_noisy).noise
errors = np.abs([noise.rho_pos - true_noise.rho_pos, noise.rho_neg - true_noise.rho_neg])
print(f"mean error of the estimated rates: {errors.mean():.3f}")

# %%
# The usual loop: the best epoch is selected by the loss of a validation set, which is unbiased on noisy labels, too.
# The network has ``loss.n_outputs(q)`` = q + 1 outputs, because the ranking loss learns a threshold as the score of a
# dummy label. ``HammingLoss("logistic", noise=noise, correction="relu")`` is the alternative with q outputs.
X, targets = torch.tensor(images_noisy), torch.tensor(Y_noisy)
training, validation = torch.arange(4000).split([3500, 500])


def train(loss: RankingLoss) -> torch.nn.Module:
    torch.manual_seed(0)
    model = make_cnn(loss.n_outputs(10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.002)
    best_value, best_model = float("inf"), model
    for _ in range(12):
        model.train()
        for rows in training[torch.randperm(len(training))].split(64):
            optimizer.zero_grad()
            loss(model(X[rows]), targets[rows]).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            value = loss(model(X[validation]), targets[validation]).item()
        if value < best_value:
            best_value, best_model = value, copy.deepcopy(model)
    return best_model


# %%
# ``average_precision(..., noise=noise)`` estimates the metric on the true labels from the noisy ones.
lines = []
for name, noise_model in (("plain", None), ("unbiased", noise)):
    loss = RankingLoss("sigmoid", noise=noise_model)
    model = train(loss)
    with torch.no_grad():
        scores = loss.decision(model(torch.tensor(images)))
    estimated = average_precision(Y_noisy[validation], scores[validation].numpy(), noise=noise)
    print(f"average precision estimated from noisy labels, {name}: {estimated.value:.3f}")
    lines.append(f"average precision on true labels, {name}: {average_precision(Y[4000:], scores[4000:].numpy()):.3f}")
print("\n".join(lines))
