"""
With the Trainer of Hugging Face
================================

A subclass of ``Trainer`` computes a loss of ccmn in ``compute_loss``. It works with any model that returns ``logits``.
Here, a small BERT with random initial weights is trained on synthetic texts. Nothing is downloaded.

Install the packages with ``pip install '.[recipes]'`` in a clone of the repository. It prints::

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
# A text has some of six topics. Each topic has five words, and further words belong to no topic. Word 0 is the first
# word of every text; BERT uses its position to classify the text. The inputs of the model are those that a tokenizer
# returns: ``input_ids`` and ``attention_mask``, which is 0 where a text is padded.
def make_texts(n: int, random_state: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(random_state)
    Y = (rng.random((n, TOPICS)) < 0.35).astype(np.int64)
    texts = np.zeros((n, LENGTH), dtype=np.int64)
    for text, topics in zip(texts, Y):
        topic = rng.choice(np.flatnonzero(topics), LENGTH) if topics.any() else np.full(LENGTH, -1)
        own, other = 1 + 5 * topic + rng.integers(5, size=LENGTH), rng.integers(5 * TOPICS + 1, WORDS, size=LENGTH)
        text[1:] = np.where((rng.random(LENGTH) < 0.7) & (topic >= 0), own, other)[1:]
    return texts, Y


texts, Y = make_texts(3000, random_state=0)
noise = ClassConditionalNoise(rho_pos=0.1, rho_neg=0.5, n_labels=TOPICS)
Y_noisy = noise.corrupt(Y, random_state=1)
encoded = [{"input_ids": text, "attention_mask": np.ones_like(text)} for text in texts]
training = [{**text, "labels": labels} for text, labels in zip(encoded[:2000], Y_noisy[:2000])]


# %%
# The criterion is a mean over the rows of a batch. ``loss_is_scaled_for_ga = False`` declares this for gradient
# accumulation over several batches. The model receives all inputs except the labels, so that padded texts keep their
# ``attention_mask``.
class NoisyTrainer(Trainer):
    """Trainer with a criterion of ccmn."""

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
        outputs = model(**{name: value for name, value in inputs.items() if name != "labels"})
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
        trainer.remove_callback(PrinterCallback)  # do not print the training loss
        trainer.train()
    return trainer


# %%
# A label is predicted if its logit is at least 0. For a ranking loss, ``criterion.decision`` first subtracts the
# learned threshold.
for name, noise_model in (("plain", None), ("unbiased", noise)):
    criterion = HammingLoss("logistic", noise=noise_model, correction=noise_model and "abs")
    logits = train(criterion).predict(encoded[2000:]).predictions
    predicted = criterion.decision(torch.tensor(logits)) >= 0
    print(f"Hamming loss, {name}: {hamming_loss(Y[2000:], predicted.int().numpy()):.3f}")
