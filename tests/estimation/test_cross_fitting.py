"""Cross-fitting: every row is predicted by a network that has not seen it, from any kind of inputs."""

import re

import numpy as np
import pytest
import torch
from scipy.special import logit
from sklearn.neighbors import KNeighborsClassifier
from torch.utils.data import Dataset, TensorDataset, default_collate

from ccmn import ClassConditionalNoise, cross_fit_proba

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(60, 1, 4, 6)).astype(np.float32)
Y = (IMAGES.mean((1, 2, 3))[:, None] * 24**0.5 > np.array([0.0, 0.5])).astype(np.int64)
FAST = {"n_folds": 3, "epochs": 2, "batch_size": 16}


def make_cnn() -> torch.nn.Module:
    layers = torch.nn.Conv2d(1, 3, 3), torch.nn.BatchNorm2d(3), torch.nn.ReLU(), torch.nn.Flatten()
    return torch.nn.Sequential(*layers, torch.nn.Linear(24, 2))


class Tokens(torch.nn.Module):
    """Mean of embedded tokens, with a mask; returns an object with logits, as transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.classifier = torch.nn.Embedding(20, 5), torch.nn.Linear(5, 2)

    def forward(self, input_ids, attention_mask):
        embedded = self.table(input_ids) * attention_mask.unsqueeze(-1)
        return type("Output", (), {"logits": self.classifier(embedded.sum(1))})


class Items(Dataset):
    """Items in one of the accepted forms."""

    def __init__(self, form):
        self.form = form

    def __len__(self):
        return len(IMAGES)

    def __getitem__(self, i):
        return {"input": IMAGES[i], "tuple": (IMAGES[i],), "pair": (IMAGES[i], Y[i])}[self.form]


def make_linear() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(24, 2))


@pytest.mark.parametrize("forward", [False, True])
def test_equals_a_plain_training_of_every_fold(forward):
    """The reference trains each fold in a few lines, full batch. With noise, log-odds are scaled for each label."""
    rho_pos, rho_neg = (torch.tensor([0.3, 0.1]), torch.tensor([0.0, 0.2])) if forward else (torch.zeros(2),) * 2
    noise = ClassConditionalNoise(rho_pos.numpy(), rho_neg.numpy()) if forward else None
    settings = {"n_folds": 2, "epochs": 3, "patience": 3, "batch_size": 100, "lr": 0.01, "weight_decay": 0.1}
    fitted = cross_fit_proba(make_linear, IMAGES, Y, noise=noise, **settings)
    seed, expected = int(np.random.default_rng(0).integers(2**31)), np.empty(Y.shape)
    for k in range(2):
        torch.manual_seed(seed)
        network = make_linear()
        seen, held_out = np.flatnonzero(fitted.folds != k), np.flatnonzero(fitted.folds == k)
        optimizer = torch.optim.AdamW(network.parameters(), lr=0.01, weight_decay=0.1)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, 3, pct_start=0.1) if forward else None
        results = []
        for _ in range(3):
            g = rho_neg + (1 - rho_pos - rho_neg) * torch.sigmoid(network(torch.tensor(IMAGES[seen])))
            loss = torch.nn.functional.binary_cross_entropy(g, torch.tensor(Y[seen]).float(), reduction="sum")
            optimizer.zero_grad()
            (loss / len(seen)).backward()
            optimizer.step()
            if schedule:
                schedule.step()
            p = torch.sigmoid(network(torch.tensor(IMAGES[held_out]))).detach()
            g = rho_neg + (1 - rho_pos - rho_neg) * p
            held_out_loss = torch.nn.functional.binary_cross_entropy(g, torch.tensor(Y[held_out]).float())
            results.append((float(held_out_loss), p.numpy()))
        expected[held_out] = min(results, key=lambda result: result[0])[1]
    found, expected = logit(fitted.pred_proba), logit(expected)
    if forward:
        expected = np.stack([np.polyval(np.polyfit(expected[:, j], found[:, j], 1), expected[:, j]) for j in (0, 1)], 1)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_probabilities_of_true_labels_are_calibrated():
    """The network outputs the log-odds of the true label divided by 4, shifted; the scaling reverses this."""
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(20_000, 1)) * 2
    true = (rng.random(logits.shape) < 1 / (1 + np.exp(-logits))).astype(int)
    noise = ClassConditionalNoise(0.2, 0.3, n_labels=1)
    network = torch.nn.Linear(1, 1)
    with torch.no_grad():
        network.weight.fill_(0.25), network.bias.fill_(0.5)
    noisy = noise.corrupt(true, random_state=0)
    fitted = cross_fit_proba(lambda: network, logits, noisy, noise=noise, n_folds=2, epochs=1, lr=1e-9)
    np.testing.assert_allclose(fitted.pred_proba, 1 / (1 + np.exp(-logits)), atol=0.04)


@pytest.mark.parametrize("form", ["input", "tuple", "pair", "tensor", "TensorDataset", "named"])
def test_all_kinds_of_inputs_give_the_same_result(form):
    inputs = {
        "tensor": torch.tensor(IMAGES),
        "TensorDataset": TensorDataset(torch.tensor(IMAGES), torch.tensor(Y)),
        "named": {"input": IMAGES.astype(np.float64)},
    }
    X = inputs[form] if form in inputs else Items(form)
    labels = None if form in ("pair", "TensorDataset") else Y
    expected = cross_fit_proba(make_cnn, IMAGES, Y, **FAST)
    fitted = cross_fit_proba(make_cnn, X, labels, **FAST)
    np.testing.assert_allclose(fitted.pred_proba, expected.pred_proba, atol=1e-6)
    np.testing.assert_allclose(fitted.embeddings, expected.embeddings, atol=1e-5)


@pytest.mark.parametrize("as_items", [False, True])
def test_dictionaries_of_tokens_with_a_mask(as_items):
    tokens = RNG.integers(20, size=(60, 7))
    X = {"input_ids": tokens, "attention_mask": np.ones_like(tokens)}
    if as_items:
        X = [{name: torch.tensor(array[i]) for name, array in X.items()} | {"labels": Y[i]} for i in range(60)]
    labels = np.where(np.arange(60)[:, None] % 2, Y, np.nan)
    fitted = cross_fit_proba(Tokens, X, None if as_items else labels, collate_fn=default_collate, **FAST)
    assert np.isfinite(fitted.pred_proba).all()
    assert fitted.embeddings.shape == (60, 5)


def test_embedding_is_the_input_of_the_last_layer():
    """With weights that do not change, it is the same in all folds."""
    torch.manual_seed(0)
    network = make_linear()
    named, automatic, none = (
        cross_fit_proba(lambda: network, IMAGES, Y, head=head, lr=1e-9, **FAST).embeddings
        for head in ("1", "auto", None)
    )
    np.testing.assert_allclose(named, IMAGES.reshape(60, 24), atol=1e-5)
    np.testing.assert_array_equal(named, automatic)
    assert none is None
    without_linear = torch.nn.Sequential(torch.nn.Conv2d(1, 2, (4, 6)), torch.nn.Flatten())
    assert cross_fit_proba(lambda: without_linear, IMAGES, Y, **FAST).embeddings is None


def test_global_random_state_is_unchanged():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    cross_fit_proba(make_cnn, IMAGES, Y, **FAST)
    assert torch.rand(1) == expected


def test_embeddings_of_different_folds_are_comparable():
    """A linear model trained on the embeddings of two folds predicts the third."""
    n = 600
    X = RNG.normal(size=(n, 6)).astype(np.float32)
    labels = (X[:, :2] > 0).astype(int)

    def make():
        return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))

    fitted = cross_fit_proba(make, X, labels, n_folds=3, epochs=15, batch_size=50, lr=0.02)
    train, test = fitted.folds > 0, fitted.folds == 0
    A = np.c_[fitted.embeddings, np.ones(n)]
    weights = np.linalg.lstsq(A[train], 2 * labels[train] - 1, rcond=None)[0]
    assert ((A[test] @ weights > 0) == labels[test]).mean() > 0.9


def test_progress_is_reported_to_its_end_also_if_training_stops_early(capsys):
    cross_fit_proba(make_cnn, IMAGES, Y, **FAST)
    assert capsys.readouterr().err == ""
    cross_fit_proba(make_cnn, IMAGES, Y, verbose=1, **{**FAST, "epochs": 6, "patience": 1, "lr": 1.0})
    done, total = re.search(r"(\d+) of (\d+)\n$", capsys.readouterr().err).groups()
    assert done == total


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"Y_noisy": None}, ValueError, "Y_noisy"),
        ({"Y_noisy": Y[:5]}, ValueError, "same number of rows"),
        ({"make_model": KNeighborsClassifier(), "Y_noisy": Y[:5]}, ValueError, "same number of rows"),
        ({"make_model": KNeighborsClassifier(), "n_folds": 1}, ValueError, "n_folds"),
        ({"make_model": type("Factory", (dict,), {"predict_proba": None})}, TypeError, "Factory"),
        ({"head": "last"}, ValueError, "'last'"),
        ({"make_model": dict}, TypeError, "dict"),
        ({"make_model": lambda: torch.nn.Flatten()}, ValueError, "trainable"),
        ({"make_model": lambda: torch.nn.Conv2d(1, 2, 3)}, ValueError, r"\(batch, 2\)"),
        ({"X": iter([1])}, TypeError, "list_iterator"),
        ({"X": Items("input"), "Y_noisy": None}, ValueError, "got neither"),
        ({"X": {"a": IMAGES, "b": IMAGES[:3]}}, ValueError, "rows"),
        ({"noise": "missing"}, TypeError, "noise"),
        ({"noise": ClassConditionalNoise(0.1, 0.2, n_labels=3)}, ValueError, "3 labels"),
    ],
)
def test_invalid_arguments(arguments, error, message):
    settings = {"make_model": make_cnn, "X": IMAGES, "Y_noisy": Y, **FAST, **arguments}
    with pytest.raises(error, match=message):
        cross_fit_proba(settings.pop("make_model"), settings.pop("X"), settings.pop("Y_noisy"), **settings)


def test_classifier_predicts_rows_that_it_has_not_seen():
    """A nearest neighbor reproduces every label of its own training rows."""
    X = RNG.normal(size=(200, 3))
    labels = np.column_stack([X[:, 0] > 0, X[:, 1] > 1]) ^ (RNG.random((200, 2)) < 0.2)
    fitted = cross_fit_proba(KNeighborsClassifier(1), X, labels.astype(int), n_folds=4)
    assert fitted.embeddings is None
    for k in range(4):
        held_out = fitted.folds == k
        expected = KNeighborsClassifier(1).fit(X[~held_out], labels[~held_out]).predict(X[held_out])
        np.testing.assert_array_equal(fitted.pred_proba[held_out], expected)
    with pytest.raises(ValueError, match="noise=None"):
        cross_fit_proba(
            KNeighborsClassifier(1), X, labels.astype(int), noise=ClassConditionalNoise(0.1, 0.1, n_labels=2)
        )
