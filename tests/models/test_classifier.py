"""CCMNClassifier: containers of X and y, losses, validation, trusted rows, checkpoints and errors."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from sklearn.exceptions import NotFittedError

from ccmn import CCMNClassifier, ClassConditionalNoise, MissingNoise, PartialNoise
from ccmn.data import load_digit_scenes, make_noisy_multilabel
from ccmn.metrics import hamming_loss, ranking_loss
from ccmn.models import predictor
from ccmn.noise import TransitionNoise
from ccmn.training import selection


@pytest.fixture(scope="module")
def scenes():
    """Return 1000 training and 1000 test images; half of the absent digits are in the candidate set."""
    data = load_digit_scenes(2000)
    noise = PartialNoise(0.5, n_labels=10)
    return (
        data.X[:1000],
        noise.corrupt(data.Y[:1000], random_state=0),
        data.X[1000:],
        data.Y[1000:],
        noise,
        data.Y[:1000],
    )


@pytest.mark.parametrize(
    ("loss", "surrogate"),
    [("hamming", "square"), ("hamming", "hinge"), ("hamming", "logistic"), ("hamming", "sigmoid"),
     ("ranking", "hinge"), ("ranking", "sigmoid"), ("ranking", "logistic")],
)  # fmt: skip
def test_corrected_losses_outperform_plain_losses(scenes, loss, surrogate):
    X, Z, X_test, Y_test, noise, _ = scenes
    wrong = {}
    for name, given in (("plain", None), ("corrected", noise)):
        clf = CCMNClassifier(given, loss=loss, surrogate=surrogate, epochs=30, lr=0.01, random_state=0).fit(X, Z)
        wrong[name] = hamming_loss(Y_test, clf.predict(X_test))
        p = clf.predict_proba(X_test)
        assert 0 < p.min() <= p.max() < 1
        assert ((p >= 0.5) == clf.predict(X_test)).all()
        assert ((clf.decision_function(X_test) >= 0) == clf.predict(X_test)).all()
    assert wrong["corrected"] < wrong["plain"] - 0.05


def test_estimated_partial_noise_outperforms_no_correction(scenes):
    X, Z, X_test, Y_test, _, _ = scenes
    estimated = CCMNClassifier("partial", loss="hamming", surrogate="square", random_state=0).fit(X, Z)
    plain = CCMNClassifier(None, loss="hamming", surrogate="square", random_state=0).fit(X, Z)
    assert estimated.noise_.rho_pos.max() == 0
    assert estimated.rates_ is not None
    assert hamming_loss(Y_test, estimated.predict(X_test)) < hamming_loss(Y_test, plain.predict(X_test)) - 0.05


def test_estimated_rates_have_the_names_of_the_labels():
    task = make_noisy_multilabel(150, 3, 2, noise=PartialNoise([0.2, 0.4]), random_state=0)
    clf = CCMNClassifier("partial", loss="hamming", surrogate="square", random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # few rows: the rates are poorly identified
        unnamed = clf.fit(task.X, task.Y_noisy).rates_
        named = clf.fit(task.X, pd.DataFrame(task.Y_noisy, columns=["sea", "sky"])).rates_
    assert unnamed.label_names is None
    assert named.label_names == ("sea", "sky")
    np.testing.assert_array_equal(named.rho_neg, unnamed.rho_neg)


def test_same_seed_same_model(scenes):
    X, Z, X_test, _, noise, _ = scenes
    scores = [
        CCMNClassifier(noise, loss="ranking", epochs=3, random_state=7).fit(X, Z).decision_function(X_test)
        for _ in range(2)
    ]
    assert np.array_equal(*scores)


@pytest.mark.parametrize(
    "wrap", [scipy.sparse.csr_matrix, scipy.sparse.csr_array, torch.tensor, pd.DataFrame, np.asfortranarray]
)
def test_features_in_every_container(scenes, wrap):
    X, Z, X_test, _, noise, _ = scenes
    for loss, surrogate in (("hamming", "square"), ("ranking", "sigmoid")):
        # Sparse features are scaled in a different way.
        settings = {"loss": loss, "surrogate": surrogate, "scale": False, "epochs": 2, "random_state": 0}
        expected = CCMNClassifier(noise, **settings).fit(X, Z).decision_function(X_test)
        clf = CCMNClassifier(noise, **settings).fit(wrap(X), Z)
        np.testing.assert_allclose(clf.decision_function(wrap(X_test)), expected, rtol=1e-3, atol=1e-4)


def test_labels_in_every_container(scenes):
    X, Z, X_test, _, noise, _ = scenes
    settings = {"loss": "ranking", "epochs": 2, "random_state": 0}
    expected = CCMNClassifier(noise, **settings).fit(X, Z).decision_function(X_test)
    sets = [set(map(str, np.flatnonzero(row))) for row in Z]
    for Y in (scipy.sparse.csr_array(Z), torch.tensor(Z), pd.DataFrame(Z), Z.astype(bool), Z.tolist(), sets):
        clf = CCMNClassifier(noise, **settings).fit(X, Y)
        np.testing.assert_allclose(clf.decision_function(X_test), expected)
    assert clf.classes_.tolist() == [str(j) for j in range(10)]
    assert clf.label_names_ == tuple(str(j) for j in range(10))


def test_unobserved_labels(scenes):
    X, Z, X_test, Y_test, noise, _ = scenes
    Z = Z.astype(float)
    Z[np.random.default_rng(1).random(Z.shape) < 0.3] = np.nan
    clf = CCMNClassifier(noise, loss="hamming", surrogate="square", epochs=20, random_state=0).fit(X, Z)
    assert hamming_loss(Y_test, clf.predict(X_test)) < 0.25


def test_clean_validation_set(scenes):
    X, Z, X_test, Y_test, noise, _ = scenes
    clf = CCMNClassifier(noise, loss="hamming", surrogate="hinge", epochs=8, lr=(0.05, 0.005), random_state=0)
    clf.fit(X, Z, validation=(X_test, Y_test), validation_is_clean=True)
    history = clf.history_
    assert len(history) == 16
    # The criterion on true labels is the plain Hamming loss of the selected epoch.
    assert hamming_loss(Y_test, clf.predict(X_test)) == pytest.approx(history["hamming_loss"].min(), abs=1e-3)


def test_trusted_labels_replace_noisy_labels(scenes):
    X, Z, X_test, Y_test, noise, Y = scenes
    rows = np.arange(500)
    common = dict(noise=noise, loss="hamming", surrogate="square", random_state=0)  # noqa: C408
    without = CCMNClassifier(**common).fit(X, Z)
    with_trusted = CCMNClassifier(**common).fit(X, Z, trusted=(rows, Y[rows]))
    assert hamming_loss(Y_test, with_trusted.predict(X_test)) < hamming_loss(Y_test, without.predict(X_test))
    with pytest.raises(ValueError, match="from 0 to 999"):
        CCMNClassifier(**common).fit(X, Z, trusted=([1000], Y[:1]))
    with pytest.raises(ValueError, match="2 rows of trusted; got 1"):
        CCMNClassifier(**common).fit(X, Z, trusted=([1, 2], Y[:1]))


def test_custom_networks(scenes):
    X, Z, X_test, Y_test, noise, _ = scenes

    def deep(n_features, n_outputs):
        return torch.nn.Sequential(torch.nn.Linear(n_features, 32), torch.nn.GELU(), torch.nn.Linear(32, n_outputs))

    clf = CCMNClassifier(noise, model=deep, lr=(5e-3, 1e-3), epochs=10, random_state=0).fit(X, Z)
    again = CCMNClassifier(noise, model=deep, lr=(5e-3, 1e-3), epochs=10, random_state=0).fit(X, Z)
    assert ranking_loss(Y_test, clf.decision_function(X_test)) < 0.3
    assert np.array_equal(clf.decision_function(X_test), again.decision_function(X_test))
    assert set(clf.history_["lr"]) == {5e-3, 1e-3}


def test_corrections_reach_the_loss(scenes):
    X, Z, X_test, _, noise, _ = scenes
    scores = [
        CCMNClassifier(
            noise,
            loss="hamming",
            surrogate="logistic",
            model="mlp",
            lr=0.05,
            epochs=15,
            correction=c,
            random_state=0,
        )
        .fit(X, Z)
        .decision_function(X_test)
        for c in (None, "abs", "relu")
    ]
    for a in range(3):
        for b in range(a):
            assert not np.allclose(scores[a], scores[b])


def test_interrupted_fit_keeps_the_best_model_and_warns(scenes, monkeypatch):
    X, Z, X_test, _, noise, _ = scenes
    from ccmn.training.selection import KeepBest

    epochs = []
    on_epoch_end = KeepBest.on_epoch_end

    def interrupted(self, epoch, network):
        value = on_epoch_end(self, epoch, network)
        epochs.append(epoch)
        if epoch == 2:
            raise KeyboardInterrupt
        return value

    monkeypatch.setattr(KeepBest, "on_epoch_end", interrupted)
    with pytest.warns(UserWarning, match="the best model so far is kept"):
        clf = CCMNClassifier(noise, loss="ranking", epochs=50, random_state=0).fit(X, Z)
    assert epochs == [0, 1, 2]
    assert np.isfinite(clf.decision_function(X_test)).all()


def test_checkpoint_resumes_to_the_same_model(scenes, tmp_path):
    X, Z, X_test, _, noise, _ = scenes
    settings = {"loss": "ranking", "epochs": 12, "random_state": 0}
    expected = CCMNClassifier(noise, **settings).fit(X, Z).decision_function(X_test)
    path = tmp_path / "fit.ckpt"

    class KilledError(Exception):
        pass

    from ccmn.training import checkpoint as module

    save = module.Checkpoint.save

    def save_and_die(self, *state):
        save(self, *state)
        if len(state[-1].losses) == 10:
            raise KilledError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.Checkpoint, "save", save_and_die)
        with pytest.raises(KilledError):
            CCMNClassifier(noise, **settings).fit(X, Z, checkpoint=path)
    assert path.exists()
    with pytest.raises(ValueError, match="belongs to a different fit"):
        CCMNClassifier(noise, **{**settings, "epochs": 13}).fit(X, Z, checkpoint=path)
    resumed = CCMNClassifier(noise, **settings).fit(X, Z, checkpoint=path)
    assert np.array_equal(resumed.decision_function(X_test), expected)
    resumed.save(tmp_path / "m.ccmn")
    assert not path.exists()


class TestClasses:
    @pytest.mark.parametrize(
        ("loss", "surrogate"), [("hamming", "logistic"), ("hamming", "sigmoid"), ("ranking", "auto")]
    )
    def test_transition_matrix(self, loss, surrogate):
        rng = np.random.default_rng(1)
        X = rng.normal(size=(800, 5))
        y = (X @ rng.normal(size=(5, 4))).argmax(1)
        # Class 0 becomes class 1 with a probability above 1/2: training without noise correction fails.
        T = np.array([[0.4, 0.6, 0, 0], [0, 1, 0, 0], [0, 0, 0.9, 0.1], [0, 0, 0.1, 0.9]])
        noise = TransitionNoise(T)
        noisy = noise.corrupt(np.eye(4)[y], random_state=0).argmax(1)
        settings = {"loss": loss, "surrogate": surrogate, "epochs": 60, "random_state": 0}
        names = np.array(["ant", "bee", "cat", "dog"])
        corrected = CCMNClassifier(noise, **settings).fit(X, names[noisy])
        plain = CCMNClassifier(TransitionNoise(np.eye(4)), **settings).fit(X, names[noisy])
        assert corrected.score(X, names[y]) > 0.85 > plain.score(X, names[y])
        np.testing.assert_allclose(corrected.predict_proba(X).sum(1), 1)
        # One-hot labels give the same model, which predicts exactly one label of every row.
        one_hot = CCMNClassifier(noise, **settings).fit(X, np.eye(4, dtype=int)[noisy])
        assert (one_hot.predict(X).sum(1) == 1).all()
        np.testing.assert_array_equal(one_hot.predict(X).argmax(1), names.searchsorted(corrected.predict(X)))

    def test_partial_labels_with_one_true_label(self):
        """Candidate sets with exactly one true label, which is predicted by the top score."""
        data = load_digit_scenes(2400, max_digits=1)
        y = data.Y.argmax(1)
        noise = PartialNoise(0.6, n_labels=10)
        candidates = noise.corrupt(data.Y[:1200], random_state=0)
        score = {}
        for name, given in (("plain", None), ("unbiased", noise)):
            clf = CCMNClassifier(given, loss="hamming", surrogate="square", random_state=0).fit(
                data.X[:1200], candidates
            )
            score[name] = (clf.decision_function(data.X[1200:]).argmax(1) == y[1200:]).mean()
            right = hamming_loss(data.Y[1200:], clf.predict(data.X[1200:]))
            score[name + " hamming"] = right
        assert score["unbiased"] >= score["plain"] - 0.02
        assert score["unbiased hamming"] < score["plain hamming"] - 0.1

    @pytest.mark.parametrize("noise", [None, "both", ClassConditionalNoise(0.1, 0.1, n_labels=3)])
    def test_classes_need_a_transition_matrix(self, noise):
        with pytest.raises(ValueError, match=r"one class per row.*CCMNClassifier\(TransitionNoise\(T\)\)"):
            CCMNClassifier(noise).fit(np.eye(6), list("abcabc"))


def test_diverged_run_is_never_selected(scenes):
    X, Z, X_test, _, _, _ = scenes
    rare = Z * (np.random.default_rng(0).random(Z.shape) < 0.1)
    clf = CCMNClassifier(None, loss="ranking", epochs=3, lr=(1e-3, 1e38), random_state=0).fit(X, rare)
    assert np.isfinite(clf.decision_function(X_test)).all()


def test_parameters_set_after_fit_do_not_change_predictions(scenes):
    X, Z, X_test, _, noise, _ = scenes
    clf = CCMNClassifier(noise, loss="hamming", surrogate="square", random_state=0).fit(X, Z)
    before = clf.decision_function(X_test)
    assert np.array_equal(clf.set_params(loss="ranking").decision_function(X_test), before)


class TestCustomNetworks:
    """Custom modules may share gradients, leave parameters unused and keep running statistics."""

    X = np.random.default_rng(0).normal(size=(120, 4)).astype(np.float32)
    Y = (X[:, :2] > 0).astype(int)

    def fit(self, make, **fit_parameters):
        self.made = []
        clf = CCMNClassifier(
            None, loss="hamming", surrogate="logistic",
            model=lambda d, o: self.made.append(make(d, o)) or self.made[-1],
            lr=(1e-5, 0.1), epochs=12, batch_size=30, random_state=0,
        )  # fmt: skip
        return clf.fit(self.X, self.Y, **fit_parameters)

    def test_shared_and_unused_parameters(self):
        class Twins(torch.nn.Module):
            def __init__(self, d, o):
                super().__init__()
                self.a, self.b = (torch.nn.Parameter(torch.zeros(o, d)) for _ in range(2))
                self.unused = torch.nn.Parameter(torch.zeros(3))

            def forward(self, x):
                return x @ (self.a + self.b).T

        self.fit(Twins)
        for module in self.made:
            assert torch.equal(module.a, module.b)
            assert not module.unused.any()

    def test_running_statistics_belong_to_the_selected_epoch(self):
        clf = self.fit(lambda d, o: torch.nn.Sequential(torch.nn.BatchNorm1d(d), torch.nn.Linear(d, o)))
        history = clf.history_[clf.history_["lr"] == 0.1]["hamming_loss"]
        best = int(history.to_numpy().argmin()) + 1
        batches = len(range(0, 96, 30))
        assert int(self.made[1][0].num_batches_tracked) == best * batches

    def test_one_checkpoint_per_learning_rate(self, tmp_path):
        plain = self.fit(torch.nn.Linear)
        kept = self.fit(torch.nn.Linear, checkpoint=tmp_path / "fit")
        assert np.array_equal(plain.decision_function(self.X), kept.decision_function(self.X))
        assert len(list(tmp_path.iterdir())) == 2
        kept.save(tmp_path / "m.ccmn")
        assert [file.name for file in tmp_path.iterdir()] == ["m.ccmn"]


@pytest.mark.parametrize("loss", ["hamming", "ranking"])
@pytest.mark.parametrize("value", [0, 1])
def test_constant_labels_are_predicted(value, loss):
    """There are no pairs to rank: the threshold alone determines the prediction."""
    X = np.random.default_rng(0).normal(size=(300, 6))
    clf = CCMNClassifier(noise=None, loss=loss, random_state=0).fit(X, np.full((300, 4), value))
    assert (clf.predict(X) == value).mean() > 0.99


def test_missing_labels(scenes):
    X, _, X_test, Y_test, _, Y = scenes
    noise = MissingNoise(0.6, n_labels=10)
    Z = noise.corrupt(Y, random_state=0)
    unbiased = CCMNClassifier(noise, lr=0.05, epochs=60, random_state=0).fit(X, Z)
    plain = CCMNClassifier(None, lr=0.05, epochs=60, random_state=0).fit(X, Z)
    assert hamming_loss(Y_test, unbiased.predict(X_test)) < hamming_loss(Y_test, plain.predict(X_test)) - 0.03


class TestErrors:
    X = np.random.default_rng(0).normal(size=(60, 3))
    Y = np.random.default_rng(0).integers(0, 2, size=(60, 2))

    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"loss": "rank"}, "loss must be 'hamming', 'ranking'; got 'rank'"),
            ({"loss": "plugin"}, "loss must be 'hamming', 'ranking'; got 'plugin'"),
            ({"surrogate": "sigmod"}, "surrogate must be 'auto', .*'sigmoid'.* or a function; got 'sigmod'"),
            ({"model": "liner"}, "model must be 'linear', 'mlp' or a function"),
            ({"noise": "estimate"}, "noise must be 'both', 'partial', 'missing' or a noise model"),
            ({"noise": 0.3}, "noise must be 'both', 'partial', 'missing' or a noise model"),
            ({"epochs": 0}, r"epochs must be an integer in \[1, inf\]; got 0"),
            ({"epochs": 2.5}, "epochs must be an integer"),
            ({"batch_size": -1}, "batch_size must be 'auto' or an integer"),
            ({"lr": -0.1}, r"lr must be a number in .* or a list of positive numbers; got -0\.1"),
            ({"lr": "quick"}, "lr must be"),
            ({"lr": None}, "lr must be"),
            ({"lr": ()}, "lr must be"),
            ({"lr": [[0.1]]}, "lr must be"),
            ({"weight_decay": -1}, r"weight_decay must be a number in \[0, inf\]"),
            ({"weight_decay": float("nan")}, "weight_decay must be a number"),
            ({"weight_decay": "auto"}, "weight_decay must be a number"),
            ({"validation_fraction": 1.0}, r"validation_fraction must be a number in \(0, 1\)"),
            ({"validation_fraction": None}, "validation_fraction must be a number"),
            ({"device": "abacus"}, "device must be 'auto', 'cpu', 'cuda'"),
            ({"correction": "clip"}, "correction must be 'abs', 'relu' or None; got 'clip'"),
            ({"scale": "yes"}, "scale must be True or False; got 'yes'"),
            ({"random_state": -1}, "random_state must be an integer"),
            ({"verbose": True}, "verbose must be an integer"),
            ({"noise": ClassConditionalNoise(0.1, 0.1, n_labels=3)}, "with 2 labels, as y; got 3"),
        ],
    )
    def test_parameters(self, parameters, message):
        with pytest.raises(ValueError, match=message):
            CCMNClassifier(**{"noise": None, "epochs": 1, **parameters}).fit(self.X, self.Y)

    @pytest.mark.parametrize(
        ("Y", "message"),
        [
            (np.zeros((59, 2)), "60; got 59"),
            (np.full((60, 2), 2), "Unknown label type|must be 0 or 1"),
            (2 * Y - 1, "Unknown label type|For -1"),
            (np.zeros((60, 0)), r"got shape \(60, 0\)"),
            (np.zeros((60, 2, 2, 2)), r"got shape \(60, 2, 2, 2\)"),
            (np.linspace(0, 1, 60), "Unknown label type"),
            ([set()] * 60, "empty label sets"),
        ],
    )
    def test_labels(self, Y, message):
        with pytest.raises(ValueError, match=message):
            CCMNClassifier(noise=None, epochs=1).fit(self.X, Y)

    def test_too_few_rows_to_estimate(self):
        with pytest.warns(UserWarning, match="noise rates are not estimated"):
            clf = CCMNClassifier(epochs=1).fit(self.X, self.Y)
        assert not clf.noise_.rho_pos.any()

    def test_inconsistent_names(self):
        frame = pd.DataFrame(self.Y, columns=["a", "b"])
        other = pd.DataFrame(self.Y, columns=["a", "z"])
        with pytest.raises(ValueError, match="label 'z' is not among the training labels"):
            CCMNClassifier(None, epochs=1).fit(self.X, frame, validation=(self.X, other))
        noise = ClassConditionalNoise(0.1, 0.1, n_labels=2, label_names=["b", "a"])
        with pytest.raises(ValueError, match="use the same order"):
            CCMNClassifier(noise, epochs=1).fit(self.X, frame)

    def test_inconsistent_numbers_of_rows(self):
        with pytest.raises(ValueError, match="in validation, 60; got 5"):
            CCMNClassifier(None, epochs=1).fit(self.X, self.Y, validation=(self.X, self.Y[:5]))

    def test_sample_weights_with_correction(self):
        with pytest.raises(ValueError, match="sample_weight cannot be combined"):
            CCMNClassifier(None, correction="abs").fit(self.X, self.Y, sample_weight=np.ones(60))

    def test_validation_with_other_labels(self):
        with pytest.raises(ValueError, match=r"Expected 2 label columns .* got 3"):
            CCMNClassifier(None, epochs=1).fit(self.X, self.Y, validation=(self.X, np.zeros((60, 3))))

    def test_progress_is_printed_on_request(self, capsys):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            CCMNClassifier(None, loss="ranking", lr=0.05, epochs=1).fit(self.X, self.Y)
        assert capsys.readouterr().err == ""
        CCMNClassifier(None, loss="ranking", epochs=2, verbose=2).fit(self.X, self.Y)
        assert "epoch 2/2: loss" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("loss", "surrogate"), [("ranking", "sigmoid"), ("hamming", "square"), ("hamming", "logistic")]
)
@pytest.mark.parametrize("seed", range(3))
def test_rows_without_weight_do_not_count(loss, surrogate, seed):
    """With few rows of positive weight, all rows are used for training and validation, as without the other rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    Y, weights = X[:, :2] > 0, np.zeros(60)
    weights[:20] = 1
    settings = {"loss": loss, "surrogate": surrogate, "epochs": 5, "batch_size": 60, "random_state": seed}
    clf = CCMNClassifier(None, **settings).fit(X, Y, weights)
    few = CCMNClassifier(None, **settings).fit(X[:20], Y[:20])
    np.testing.assert_allclose(clf.decision_function(X), few.decision_function(X), atol=1e-3)
    assert clf.selected_["value"] == pytest.approx(few.selected_["value"])


def test_split_without_weights_on_one_side():
    X, weights = np.random.default_rng(0).normal(size=(20_000, 2)), np.zeros(20_000)
    weights[:60] = 1
    with pytest.raises(ValueError, match="positive sample_weight in a validation row"):
        CCMNClassifier(None, validation_fraction=1e-4).fit(X, X > 0, weights)


def test_failed_fit_leaves_no_earlier_model():
    X = np.random.default_rng(0).normal(size=(60, 3))
    clf = CCMNClassifier(None, loss="hamming", surrogate="square").fit(X, X > 0)
    with pytest.raises(ValueError, match="rows in y"):
        clf.fit(X[:, :2], X[:9] > 0)
    with pytest.raises(NotFittedError):
        clf.predict(X[:, :2])


def test_clean_validation_requires_validation():
    with pytest.raises(ValueError, match="validation_is_clean"):
        CCMNClassifier(None).fit(np.eye(4), np.eye(4), validation_is_clean=True)


def test_warning_if_all_runs_diverge():
    X = np.random.default_rng(0).normal(size=(60, 3))

    def model(n_features, n_outputs):
        return torch.nn.Sequential(torch.nn.Linear(n_features, n_outputs), Overflow())

    with pytest.warns(UserWarning, match="diverged"):
        clf = CCMNClassifier(None, model=model, lr=(0.1, 0.01), epochs=2, random_state=0).fit(X, X > 0)
    assert clf.selected_["value"] == np.inf


class Overflow(torch.nn.Module):
    """Layer that returns infinite values in evaluation mode."""

    def forward(self, outputs):
        return outputs if self.training else outputs / 0


def test_custom_network_gets_dense_blocks_of_limited_size(monkeypatch):
    """Sparse features with many columns are never dense as a whole."""
    sizes = []

    class Recorded(torch.nn.Linear):
        def forward(self, features):
            sizes.append(features.numel())
            return super().forward(features)

    for module in (predictor, selection):
        name = "MAX_DENSE_ENTRIES" if module is predictor else "MAX_BLOCK_ENTRIES"
        monkeypatch.setattr(module, name, 10 * 5000)
    X = scipy.sparse.random(100, 5000, 0.01, format="csr", random_state=0)
    clf = CCMNClassifier(None, model=Recorded, lr=0.01, epochs=1, batch_size=10, random_state=0)
    clf.fit(X, X[:, :2].toarray() > 0).predict(X)
    assert max(sizes) <= 10 * 5000


@pytest.mark.parametrize("noise", [None, "both"])
def test_labels_that_were_never_observed_are_rejected(noise):
    X, unknown = np.eye(9), np.full((9, 2), np.nan)
    with pytest.raises(ValueError, match="only NaN"):
        CCMNClassifier(noise).fit(X, unknown)
    trusted = ([0, 1], [[0, 1], [1, 0]])
    clf = CCMNClassifier(None, loss="hamming", surrogate="square").fit(X, unknown, trusted=trusted)
    assert np.isfinite(clf.decision_function(X)).all()


def test_validation_labels_that_were_never_observed_are_rejected():
    X, Y = np.eye(9), np.eye(9, 2)
    with pytest.raises(ValueError, match="validation must contain observed labels"):
        CCMNClassifier(None).fit(X, Y, validation=(X, Y * np.nan))


@pytest.mark.parametrize("loss", ["ranking", "hamming"])
def test_sample_weights_whose_products_overflow_are_rejected(loss):
    X = np.random.default_rng(0).normal(size=(60, 2))
    weights, clf = np.full(60, 1e300), CCMNClassifier(None, loss=loss, random_state=0)
    with pytest.raises(ValueError, match="sample_weight must be at most 1e\\+100; got 1e\\+300"):
        clf.fit(X, X > 0, sample_weight=weights)
    assert np.isfinite(clf.fit(X, X > 0, sample_weight=weights / 1e200).decision_function(X)).all()


@pytest.mark.parametrize("groups", [np.ones((60, 2)), [["a"]] * 60])
def test_groups_that_are_no_names_are_rejected(groups):
    X = np.random.default_rng(0).normal(size=(60, 2))
    with pytest.raises(ValueError, match="one name per row"):
        CCMNClassifier(random_state=0).fit(X, X > 0, groups=groups)
