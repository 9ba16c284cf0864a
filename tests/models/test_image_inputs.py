"""Custom networks take inputs of any shape, with rates from out-of-fold embeddings."""

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from ccmn import CCMNClassifier, ClassConditionalNoise, MissingNoise, load_model
from ccmn.data import load_digit_scenes
from ccmn.estimation import cross_fit_proba, estimate_noise
from helpers import rewrite_model

DATA = load_digit_scenes(600)
IMAGES, Y = DATA.X.reshape(-1, 1, 16, 24), DATA.Y
FIT = {"epochs": 3, "lr": 0.005, "random_state": 0, "device": "cpu"}
RANKING = {"loss": "ranking", **FIT}


def make_cnn(shape, n_outputs):
    assert shape == (1, 16, 24)
    layers = torch.nn.Conv2d(1, 8, 8, 4), torch.nn.ReLU(), torch.nn.Flatten()
    return torch.nn.Sequential(*layers, torch.nn.Linear(120, n_outputs))


@pytest.fixture(scope="module")
def fitted():
    """Return a classifier that knows the rates."""
    return CCMNClassifier(MissingNoise(0.1, n_labels=10), model=make_cnn, **RANKING).fit(IMAGES, Y)


@pytest.mark.parametrize("as_dataset", [False, True])
def test_tensors_and_datasets_are_accepted(fitted, as_dataset):
    X = torch.tensor(IMAGES)
    X = TensorDataset(X, torch.tensor(Y)) if as_dataset else X
    again = CCMNClassifier(MissingNoise(0.1, n_labels=10), model=make_cnn, **RANKING).fit(X, Y)
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(IMAGES))


class CountedItems(Dataset):
    """Images that count how often they are read."""

    def __init__(self, n):
        self.reads = np.zeros(n, dtype=int)

    def __len__(self):
        return len(self.reads)

    def __getitem__(self, i):
        self.reads[i] += 1
        return IMAGES[i], Y[i]


@pytest.mark.filterwarnings("ignore:The best epoch")
def test_items_of_a_dataset_are_read_in_every_epoch():
    items = CountedItems(200)
    clf = CCMNClassifier(None, model=make_cnn, **FIT).fit(items, Y[:200])
    assert items.reads.min() >= FIT["epochs"]
    expected = CCMNClassifier(None, model=make_cnn, **FIT).fit(IMAGES[:200], Y[:200])
    np.testing.assert_allclose(clf.predict_proba(items), expected.predict_proba(IMAGES[:200]), atol=1e-6)


def test_items_of_different_shapes_are_rejected():
    items = [np.zeros((1, 2, 3)), np.zeros((1, 3, 2))] * 30
    X = type("Items", (Dataset,), {"__len__": lambda self: 60, "__getitem__": lambda self, i: items[i]})()
    with pytest.raises(ValueError, match=r"shape \(1, 2, 3\).*\(1, 3, 2\)"):
        CCMNClassifier(
            None, model=lambda shape, q: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(6, q)), **FIT
        ).fit(X, Y[:60])


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_rates_are_estimated_from_out_of_fold_embeddings():
    images, noisy = IMAGES[:150], ClassConditionalNoise(0.2, 0.2, n_labels=10).corrupt(Y[:150], random_state=0)
    clf = CCMNClassifier(model=make_cnn, **FIT).fit(images, noisy)
    seed = int(np.random.default_rng(0).integers(2**31))
    networks = cross_fit_proba(lambda: make_cnn((1, 16, 24), 10), images, noisy, epochs=3, random_state=seed)
    expected = estimate_noise(networks.embeddings, noisy, random_state=seed)
    np.testing.assert_allclose(clf.rates_.rho_neg, expected.rho_neg, atol=1e-3)
    np.testing.assert_allclose(clf.rates_.rho_pos, expected.rho_pos, atol=1e-3)


def test_saved_model_keeps_the_shape(fitted, tmp_path):
    fitted.save(tmp_path / "model.ccmn")
    loaded = load_model(tmp_path / "model.ccmn", model=make_cnn)
    assert loaded.input_shape_ == (1, 16, 24)
    np.testing.assert_array_equal(loaded.predict_proba(IMAGES), fitted.predict_proba(IMAGES))


@pytest.mark.parametrize("shape", [[1, 2], "no shape", [-1, -384]])
def test_invalid_shape_in_a_description_is_rejected(fitted, tmp_path, shape):
    fitted.save(tmp_path / "model.ccmn")
    rewrite_model(tmp_path / "model.ccmn", lambda d, a: d.update(input_shape=shape))
    with pytest.raises(ValueError, match="input_shape"):
        load_model(tmp_path / "model.ccmn")


def test_other_shapes_and_built_in_models_are_rejected(fitted):
    with pytest.raises(ValueError, match=r"\(1, 16, 24\).*\(16, 24, 1\)"):
        fitted.predict(IMAGES.reshape(-1, 16, 24, 1))
    with pytest.raises(ValueError, match="dim 4"):
        CCMNClassifier(None, model="linear").fit(IMAGES, Y)
