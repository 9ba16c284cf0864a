"""
With Lightning
==============

The criterion is a submodule of the ``LightningModule``. The noise rates are therefore moved to the device with it and
saved in its checkpoints. The validation loss on noisy labels is also unbiased, so ``ModelCheckpoint`` and
``EarlyStopping`` can monitor it.

Install the packages with ``pip install '.[recipes]'`` in a clone of the repository. It prints::

    Hamming loss, plain: 0.240
    Hamming loss, unbiased: 0.175
"""

import logging
import tempfile
import warnings

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset

from ccmn import ClassConditionalNoise, HammingLoss
from ccmn.data import load_digit_scenes
from ccmn.losses import MultiLabelLoss
from ccmn.metrics import hamming_loss


# %%
# A ``LightningModule`` that takes the criterion as an argument.
class Digits(lightning.LightningModule):
    """Network with one hidden layer."""

    def __init__(self, criterion: MultiLabelLoss, n_features: int, n_labels: int) -> None:
        super().__init__()
        self.criterion = criterion
        self.network = torch.nn.Sequential(
            torch.nn.Linear(n_features, 64), torch.nn.ReLU(), torch.nn.Linear(64, criterion.n_outputs(n_labels))
        )

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        return self.criterion.decision(self.network(X))

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        return self.criterion(self.network(batch[0]), batch[1])

    def validation_step(self, batch: list[torch.Tensor], batch_idx: int) -> None:
        self.log("noisy_loss", self.criterion(self.network(batch[0]), batch[1]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.003, weight_decay=1e-4)


# %%
# Training and validation labels are noisy. The test set has true labels of pictures by other writers.
data = load_digit_scenes(5000)
X, Y = torch.tensor(data.X), torch.tensor(data.Y)
noise = ClassConditionalNoise.sample(10, max_sum=0.6, random_state=1)
noisy = TensorDataset(X[:2500], noise.corrupt(Y[:2500], random_state=0))
training, validation = torch.utils.data.random_split(noisy, [2000, 500], torch.Generator().manual_seed(0))


# %%
# The validation loss selects the best epoch without true labels. ``correction="abs"`` prevents a flexible network from
# overfitting the noise until the loss is negative.
def train(criterion: MultiLabelLoss) -> Digits:
    lightning.seed_everything(0, verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        best = ModelCheckpoint(folder, monitor="noisy_loss")
        trainer = lightning.Trainer(
            max_epochs=12,
            accelerator="cpu",
            callbacks=[best],
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        model = Digits(criterion, 384, 10)
        trainer.fit(model, DataLoader(training, 100, shuffle=True), DataLoader(validation, 500))
        model.load_state_dict(torch.load(best.best_model_path, weights_only=True)["state_dict"])
    return model.eval()


# %%
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning")  # about the number of data-loading processes
for name, noise_model in (("plain", None), ("unbiased", noise)):
    model = train(HammingLoss("logistic", noise=noise_model, correction=noise_model and "abs"))
    with torch.no_grad():
        predicted = model(X[2500:]) >= 0
    print(f"Hamming loss, {name}: {hamming_loss(Y[2500:], predicted.int()):.3f}")
