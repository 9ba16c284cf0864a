"""
With Lightning, with unknown noise rates
========================================

The criterion is a submodule of the ``LightningModule``. The noise rates are therefore moved to the device with it and
saved in its checkpoints. The validation loss on noisy labels is unbiased, so ``ModelCheckpoint`` and ``EarlyStopping``
can monitor it. A callback logs the Hamming loss on the true labels, estimated from the noisy ones.

Install the packages with ``pip install -r requirements/recipes.txt`` in a clone of the repository. It prints::

    mean error of the estimated rates: 0.076
    Hamming loss estimated from noisy labels, plain: 0.242
    Hamming loss estimated from noisy labels, unbiased: 0.197
    Hamming loss on true labels, plain: 0.240
    Hamming loss on true labels, unbiased: 0.165
"""

import logging
import sys
import tempfile
import warnings
from typing import Any

import lightning
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset, random_split

from ccmn import ClassConditionalNoise, HammingLoss, cross_fit_proba, estimate_noise
from ccmn.data import load_digit_scenes
from ccmn.losses import MultiLabelLoss
from ccmn.metrics import hamming_loss
from ccmn.noise import NoiseModel

# %%
# Replace this block by your own data. Training and validation labels are noisy; the test set has true labels.
data = load_digit_scenes(5000)
X, Y = torch.tensor(data.X), torch.tensor(data.Y)
true_noise = ClassConditionalNoise.sample(10, max_sum=0.6, random_state=1)
noisy = TensorDataset(X[:2500], true_noise.corrupt(Y[:2500], random_state=0))
training, validation = random_split(noisy, [2000, 500], torch.Generator().manual_seed(0))


def make_network(n_outputs: int = 10) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(384, 64), torch.nn.ReLU(), torch.nn.Linear(64, n_outputs))


# %%
# Estimate the rates from out-of-fold embeddings: each row is encoded by a network that was not trained on it. The items
# of the dataset contain the noisy labels.
warnings.filterwarnings("ignore", message="Noise rates")  # some rates have wide intervals with this few rows
fitted = cross_fit_proba(make_network, noisy, epochs=8, lr=0.003)
noise = estimate_noise(fitted.embeddings, noisy.tensors[1]).noise
errors = np.abs([noise.rho_pos - true_noise.rho_pos, noise.rho_neg - true_noise.rho_neg])
print(f"mean error of the estimated rates: {errors.mean():.3f}")


# %%
# A ``LightningModule`` that takes the criterion as an argument.
class Digits(lightning.LightningModule):
    """Network with one hidden layer."""

    def __init__(self, criterion: MultiLabelLoss, n_labels: int) -> None:
        super().__init__()
        self.criterion, self.network = criterion, make_network(criterion.n_outputs(n_labels))

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        return self.criterion.decision(self.network(X))

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        return self.criterion(self.network(batch[0]), batch[1])

    def validation_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        self.log("noisy_loss", self.criterion(self.network(batch[0]), batch[1]), prog_bar=True)
        return self(batch[0])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.003, weight_decay=1e-4)


# %%
# The callback collects predictions and noisy labels, and estimates the metric on the true labels after an epoch.
class CorrectedHammingLoss(Callback):
    """Hamming loss on the true labels, estimated from noisy validation labels."""

    def __init__(self, noise: NoiseModel) -> None:
        self.noise = noise
        self.predicted: list[torch.Tensor] = []
        self.labels: list[torch.Tensor] = []

    def on_validation_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, *_: Any) -> None:
        self.predicted.append((outputs >= 0).int().cpu())
        self.labels.append(batch[1].cpu())

    def on_validation_epoch_end(self, trainer: Any, module: Any) -> None:
        estimate = hamming_loss(torch.cat(self.labels), torch.cat(self.predicted), noise=self.noise)
        module.log("hamming_loss", estimate.value, prog_bar=True)
        self.predicted, self.labels = [], []


# %%
# ``correction="relu"`` prevents a flexible network from overfitting the noise until the loss is negative.
def train(criterion: MultiLabelLoss) -> tuple[Digits, float]:
    lightning.seed_everything(0, verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        best = ModelCheckpoint(folder, monitor="noisy_loss")
        trainer = lightning.Trainer(
            max_epochs=20,
            accelerator="cpu",
            callbacks=[CorrectedHammingLoss(noise), best, EarlyStopping("noisy_loss", patience=5)],
            logger=False,
            enable_progress_bar=sys.stderr.isatty(),
            enable_model_summary=False,
        )
        model = Digits(criterion, 10)
        trainer.fit(model, DataLoader(training, 100, shuffle=True), DataLoader(validation, 500))
        model.load_state_dict(torch.load(best.best_model_path, weights_only=True)["state_dict"])
        (metrics,) = trainer.validate(model, DataLoader(validation, 500), verbose=False)
    return model.eval(), metrics["hamming_loss"]


# %%
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning")  # about the number of data-loading processes
lines = []
for name, noise_model in (("plain", None), ("unbiased", noise)):
    model, estimated = train(HammingLoss("logistic", noise=noise_model, correction=noise_model and "relu"))
    with torch.no_grad():
        predicted = (model(X[2500:]) >= 0).int()
    print(f"Hamming loss estimated from noisy labels, {name}: {estimated:.3f}")
    lines.append(f"Hamming loss on true labels, {name}: {hamming_loss(Y[2500:], predicted):.3f}")
print("\n".join(lines))
