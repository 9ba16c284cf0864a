"""
With Hugging Face's Trainer
===========================

A ``Trainer`` whose ``compute_loss`` asks a loss of this library. The model is any that gives ``logits``; here a tiny
BERT, made from its configuration, reads made-up texts. Nothing is downloaded.

Needs ``pip install 'ccmn[recipes]'``. It prints::

    Hamming loss, plain: 0.525
    Hamming loss, unbiased: 0.198
"""

import tempfile
from typing import Any

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed
from transformers.trainer_callback import PrinterCallback

from ccmn import ClassConditionalNoise, HammingLoss
from ccmn.losses import MultiLabelLoss
from ccmn.metrics import hamming_loss

TOPICS, WORDS, LENGTH = 6, 60, 16


# %%
# A text is about some of six topics, each with five words of its own; some of the words are about nothing. Word 0
# stands at the beginning, where BERT looks for what the text is about.
def make_texts(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, TOPICS)) < 0.35).astype(np.int64)
    texts = np.zeros((n, LENGTH), dtype=np.int64)
    for text, topics in zip(texts, Y):
        about = rng.choice(np.flatnonzero(topics), LENGTH) if topics.any() else np.full(LENGTH, -1)
        own, other = 1 + 5 * about + rng.integers(5, size=LENGTH), rng.integers(5 * TOPICS + 1, WORDS, size=LENGTH)
        text[1:] = np.where((rng.random(LENGTH) < 0.7) & (about >= 0), own, other)[1:]
    return texts, Y


texts, Y = make_texts(3000, seed=0)
noise = ClassConditionalNoise(rho_pos=0.1, rho_neg=0.5, n_labels=TOPICS)
Y_noisy = noise.corrupt(Y, random_state=1)
training = [{"input_ids": text, "labels": labels} for text, labels in zip(texts[:2000], Y_noisy[:2000])]


# %%
# The criterion is a mean over the rows of a batch; ``loss_is_scaled_for_ga = False`` says so where gradients are
# accumulated over several.
class NoisyTrainer(Trainer):
    """The Trainer, with a criterion."""

    loss_is_scaled_for_ga = False

    def __init__(self, criterion: MultiLabelLoss, **settings: Any) -> None:
        super().__init__(**settings)
        self.criterion = criterion.to(self.args.device)

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, torch.Tensor],
        return_outputs: bool = False,
        num_items_in_batch: int | None = None,
    ) -> Any:
        outputs = model(input_ids=inputs["input_ids"])
        loss = self.criterion(outputs.logits, inputs["labels"])
        return (loss, outputs) if return_outputs else loss


# %%
def train(criterion: MultiLabelLoss) -> NoisyTrainer:
    set_seed(0)
    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=LENGTH,
        hidden_dropout_prob=0.0,
        num_labels=criterion.n_outputs(TOPICS),
    )
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            folder,
            num_train_epochs=10,
            per_device_train_batch_size=50,
            per_device_eval_batch_size=500,
            learning_rate=5e-3,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            seed=0,
        )
        trainer = NoisyTrainer(
            criterion, model=BertForSequenceClassification(config), args=settings, train_dataset=training
        )
        trainer.remove_callback(PrinterCallback)  # the loss alone says little here
        trainer.train()
    return trainer


# %%
# Predictions are the logits' signs; for a ranking loss ``criterion.decision`` takes the learned cut off first.
testing = [{"input_ids": text} for text in texts[2000:]]
for name, believed in (("plain", None), ("unbiased", noise)):
    criterion = HammingLoss("logistic", noise=believed, correction=believed and "abs")
    logits = train(criterion).predict(testing).predictions
    predicted = criterion.decision(torch.tensor(logits)) >= 0
    print(f"Hamming loss, {name}: {hamming_loss(Y[2000:], predicted.int().numpy()):.3f}")
