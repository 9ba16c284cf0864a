"""
With the Trainer of Hugging Face, with unknown noise rates
==========================================================

A subclass of ``Trainer`` computes a loss of ccmn in ``compute_loss``. It works with any model that returns ``logits``.
The noise rates are estimated from out-of-fold embeddings of the same kind of model, and ``compute_metrics`` estimates
the Hamming loss on the true labels from noisy ones. Here, a small BERT with random initial weights is trained on
synthetic texts of different lengths. Nothing is downloaded.

Install the packages with ``pip install -r requirements/recipes.txt`` in a clone of the repository. It prints::

    mean error of the estimated rates: 0.123
    Hamming loss estimated from noisy labels, plain: 0.429
    Hamming loss estimated from noisy labels, unbiased: 0.316
    Hamming loss on true labels, plain: 0.527
    Hamming loss on true labels, unbiased: 0.314
"""

import sys
import tempfile
import warnings
from typing import Any

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification, EvalPrediction, Trainer, TrainingArguments, set_seed
from transformers.trainer_callback import PrinterCallback

from ccmn import ClassConditionalNoise, HammingLoss, cross_fit_proba, estimate_noise
from ccmn.losses import MultiLabelLoss
from ccmn.metrics import hamming_loss

TOPICS, WORDS, LENGTH = 6, 60, 16


# %%
# Replace this block by your own texts and a tokenizer. A text has some of six topics and 12 to 16 words. Each topic has
# five words, and further words belong to no topic. Word 1 is the first word of every text; BERT uses its position to
# classify the text. Word 0 pads short texts, and ``attention_mask`` is 0 there.
def make_texts(n: int, random_state: int) -> tuple[list[dict[str, np.ndarray]], np.ndarray]:
    rng = np.random.default_rng(random_state)
    Y = (rng.random((n, TOPICS)) < 0.35).astype(np.int64)
    texts = []
    for topics in Y:
        topic = rng.choice(np.flatnonzero(topics), LENGTH) if topics.any() else np.full(LENGTH, -1)
        own, other = 2 + 5 * topic + rng.integers(5, size=LENGTH), rng.integers(5 * TOPICS + 2, WORDS, size=LENGTH)
        words = np.where((rng.random(LENGTH) < 0.7) & (topic >= 0), own, other)
        words[0] = 1
        mask = (np.arange(LENGTH) < rng.integers(12, LENGTH + 1)).astype(np.int64)
        texts.append({"input_ids": words * mask, "attention_mask": mask})
    return texts, Y


texts, Y = make_texts(4000, random_state=0)
true_noise = ClassConditionalNoise(rho_pos=0.1, rho_neg=0.5, n_labels=TOPICS)
Y_noisy = true_noise.corrupt(Y, random_state=1)
noisy = [{**text, "labels": labels} for text, labels in zip(texts, Y_noisy)]
training, validation, test = noisy[:2500], noisy[2500:3000], texts[3000:]


def make_model(n_outputs: int = TOPICS) -> BertForSequenceClassification:
    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=LENGTH,
        hidden_dropout_prob=0.0,
        num_labels=n_outputs,
    )
    return BertForSequenceClassification(config)


# %%
# Cross-fit the model on the training set: each text is encoded by a model that was not trained on it. The items contain
# the noisy labels.
warnings.filterwarnings("ignore", message="Noise rates")  # some rates have wide intervals with this few texts
fitted = cross_fit_proba(make_model, training, n_folds=3, epochs=8, batch_size=50, lr=5e-3)
noise = estimate_noise(fitted.embeddings, Y_noisy[:2500]).noise
errors = np.abs([noise.rho_pos - true_noise.rho_pos, noise.rho_neg - true_noise.rho_neg])
print(f"mean error of the estimated rates: {errors.mean():.3f}")


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
# ``compute_metrics`` receives noisy validation labels and estimates the metric on the true ones. A label is predicted
# if its logit is at least 0. For a ranking loss, ``criterion.decision`` first subtracts the learned threshold.
def train(criterion: MultiLabelLoss) -> NoisyTrainer:
    def compute_metrics(evaluated: EvalPrediction) -> dict[str, float]:
        predicted = (criterion.decision(torch.tensor(evaluated.predictions)) >= 0).int().numpy()
        return {"hamming_loss": hamming_loss(evaluated.label_ids, predicted, noise=noise).value}

    set_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            folder,
            num_train_epochs=15,
            per_device_train_batch_size=50,
            per_device_eval_batch_size=500,
            learning_rate=3e-3,
            save_strategy="no",
            report_to="none",
            disable_tqdm=not sys.stderr.isatty(),
            use_cpu=True,
            seed=0,
        )
        trainer = NoisyTrainer(
            criterion,
            model=make_model(criterion.n_outputs(TOPICS)),
            args=settings,
            train_dataset=training,
            eval_dataset=validation,
            compute_metrics=compute_metrics,
        )
        trainer.remove_callback(PrinterCallback)  # do not print the training loss
        trainer.train()
    return trainer


# %%
lines = []
for name, noise_model in (("plain", None), ("unbiased", noise)):
    criterion = HammingLoss("logistic", noise=noise_model, correction=noise_model and "relu")
    trainer = train(criterion)
    print(f"Hamming loss estimated from noisy labels, {name}: {trainer.evaluate()['eval_hamming_loss']:.3f}")
    predicted = criterion.decision(torch.tensor(trainer.predict(test).predictions)) >= 0
    lines.append(f"Hamming loss on true labels, {name}: {hamming_loss(Y[3000:], predicted.int().numpy()):.3f}")
print("\n".join(lines))
