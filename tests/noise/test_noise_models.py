"""Checks of every noise model, and of each one alone. ``MEMBERS`` must contain every registered kind."""

import json
import math

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from sklearn.linear_model import LogisticRegression

from ccmn import metrics
from ccmn.models import CorrectedClassifier
from ccmn.noise import (
    ClassConditionalNoise,
    GroupedNoise,
    MissingNoise,
    NoiseModel,
    PartialNoise,
    TransitionNoise,
    propensity_noise,
)
from reference import noisy_vectors, posterior
from strategies import noises

MEMBERS = {
    "class_conditional": ClassConditionalNoise([0.1, 0.3, 0.0], [0.4, 0.2, 0.0], label_names=["sea", "sky", "sun"]),
    "partial": PartialNoise([0.3, 0.6, 0.0]),
    "missing": MissingNoise([0.3, 0.6, 0.0]),
    "transition": TransitionNoise([[0.7, 0.2, 0.1], [0.0, 0.9, 0.1], [0.3, 0.1, 0.6]]),
}
ALL_MODELS = pytest.mark.parametrize("noise", MEMBERS.values(), ids=list(MEMBERS))
ONE_HOT = np.tile(np.eye(3, dtype=np.int64), (40, 1))


def test_every_noise_model_is_tested():
    assert set(MEMBERS) == {kind for kind, model in NoiseModel._kinds.items() if issubclass(model, NoiseModel)}


def containers(Y):
    return {
        "numpy": Y,
        "bool": Y.astype(bool),
        "float32": Y.astype(np.float32),
        "big-endian": Y.astype(">f8"),
        "torch": torch.tensor(Y),
        "torch float": torch.tensor(Y, dtype=torch.float32),
        "pandas": pd.DataFrame(Y, columns=["sea", "sky", "sun"], index=range(5, 5 + len(Y))),
        "csr_matrix": scipy.sparse.csr_matrix(Y),
        "csr_array": scipy.sparse.csr_array(Y),
    }


@ALL_MODELS
@pytest.mark.parametrize("kind", containers(ONE_HOT))
def test_corrupt_keeps_container_shape_dtype(noise, kind):
    Y = containers(ONE_HOT)[kind]
    noisy = noise.corrupt(Y, random_state=3)
    assert type(noisy) is type(Y)
    assert noisy.shape == Y.shape
    if kind == "pandas":
        assert list(noisy.columns) == ["sea", "sky", "sun"]
        assert list(noisy.index) == list(Y.index)
        assert (noisy.dtypes == Y.dtypes).all()
    else:
        assert noisy.dtype == Y.dtype
    again = noise.corrupt(Y, random_state=3)
    assert (np.asarray(dense(noisy)) == np.asarray(dense(again))).all()
    assert set(np.unique(dense(noisy))) <= {0, 1}


def dense(Y):
    return Y.toarray() if scipy.sparse.issparse(Y) else np.asarray(Y)


@ALL_MODELS
def test_debias_agrees_in_every_container(noise):
    expected = noise.debias(ONE_HOT)
    assert expected.dtype == np.float64
    for kind, Y in containers(ONE_HOT).items():
        p = noise.debias(Y)
        np.testing.assert_allclose(np.asarray(p), expected, rtol=1e-6, atol=1e-6)
        if kind.startswith("torch"):
            assert isinstance(p, torch.Tensor)
            assert p.dtype == torch.float32
        elif kind == "pandas":
            assert list(p.columns) == ["sea", "sky", "sun"]
        else:
            assert type(p) is np.ndarray
    assert noise.debias(ONE_HOT.astype(np.float32)).dtype == np.float32
    module = noise.debiasing()
    np.testing.assert_allclose(module(torch.tensor(ONE_HOT, dtype=torch.float64)).numpy(), expected, atol=1e-15)


@ALL_MODELS
def test_nan_stays_nan(noise):
    Y = ONE_HOT.astype(float)
    Y[0] = np.nan
    assert np.isnan(noise.corrupt(Y, random_state=0)[0]).all()
    assert not np.isnan(noise.corrupt(Y, random_state=0)[1:]).any()
    assert np.isnan(noise.debias(Y)[0]).all()
    assert noise.debias(torch.tensor(Y))[0].isnan().all()
    assert not np.isnan(noise.debias(Y)[1:]).any()


@ALL_MODELS
def test_json_round_trip_and_repr(noise):
    description = json.loads(json.dumps(noise.to_dict()))
    for cls in (NoiseModel, type(noise)):
        again = cls.from_dict(description)
        assert type(again) is type(noise)
        assert again == noise
    np.testing.assert_array_equal(again.debias(ONE_HOT), noise.debias(ONE_HOT))
    assert repr(noise).startswith(f"{type(noise).__name__}({noise.n_labels} ")
    assert "\n" not in repr(noise)


@ALL_MODELS
@pytest.mark.parametrize("call", ["corrupt", "debias"])
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.ones((2, 4)), r"must have 3 labels in the last dimension, shape \(n, 3\); got shape \(2, 4\)"),
        (np.array(1), r"got shape \(\)"),
        (2 * ONE_HOT - 1, r"must be 0 or 1 .* got -1\. For -1/\+1 labels pass \(Y \+ 1\) / 2"),
        (ONE_HOT * 0.5, r"must be 0 or 1 \(NaN: not observed\); got 0\.5"),
        (np.array([["a", "b", "c"]]), "must be numbers 0 or 1"),
    ],
)
def test_bad_labels(noise, call, labels, message):
    with pytest.raises(ValueError, match=message):
        getattr(noise, call)(labels)


@settings(max_examples=50)
@given(noise=noises())
def test_expectation_of_debiased_labels_is_the_true_labels(noise):
    """E[debias(noisy) | y] = y for every y, over all noisy vectors."""
    q = noise.n_labels
    for y in (np.zeros(q, int), np.ones(q, int), np.arange(q) % 2):
        mean = sum(w * noise.debias(np.array([v]))[0] for v, w in noisy_vectors(y, noise.rho_pos, noise.rho_neg))
        np.testing.assert_allclose(mean, y, atol=1e-12)


def test_transition_debiasing_inverts_the_matrix():
    noise = MEMBERS["transition"]
    np.testing.assert_allclose(noise.T @ noise.debias(np.eye(3)), np.eye(3), atol=1e-14)


@pytest.mark.parametrize("container", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
def test_flip_frequencies(container):
    """Each of the twelve rates is within 5 standard errors: a false alarm has a probability below 1e-5."""
    n = 40_000
    noise = ClassConditionalNoise([0.1, 0.5, 0.0], [0.3, 0.05, 0.6])
    Y = np.random.default_rng(1).integers(0, 2, size=(n, 3))
    noisy = dense(noise.corrupt(container(Y), random_state=2))
    counted = ClassConditionalNoise.from_pairs(Y, noisy)
    for found, true in ((counted.rho_pos, noise.rho_pos), (counted.rho_neg, noise.rho_neg)):
        assert (np.abs(found - true) <= 5 * np.sqrt(true * (1 - true) / (n / 2 - 600))).all()
    # Independent flips: the covariance of two flips is 0.
    flipped = (noisy != Y).astype(float)
    assert np.abs(np.cov(flipped.T)[np.triu_indices(3, 1)]).max() < 5 * 0.25 / np.sqrt(n)


def test_many_sparse_labels_stay_sparse():
    rng = np.random.default_rng(0)
    cells = np.unique(rng.integers(2000 * 100_000, size=20_000))
    Y = scipy.sparse.csr_array((np.ones(cells.size), np.divmod(cells, 100_000)), shape=(2000, 100_000))
    noisy = PartialNoise(1e-4, n_labels=100_000).corrupt(Y, random_state=0)
    assert noisy.nnz == pytest.approx(Y.nnz * 2, rel=0.1)
    with pytest.warns(UserWarning, match=r"no positive sample for labels 0, .* and \d+ more \(of 100000\)"):
        counted = PartialNoise.from_pairs(Y, noisy)
    assert counted.rho_neg.mean() == pytest.approx(1e-4, rel=0.05)


class TestClassConditional:
    def test_rates_are_read_only_copies(self):
        given_rates = np.array([0.1, 0.2])
        noise = ClassConditionalNoise(given_rates, [0.0, 0.0])
        given_rates[0] = 0.9
        assert noise.rho_pos[0] == 0.1
        with pytest.raises(ValueError, match="read-only"):
            noise.rho_pos[0] = 0.5

    def test_series_set_label_names(self):
        noise = ClassConditionalNoise(pd.Series([0.1, 0.2], index=["sea", "sky"]), [0.0, 0.0])
        assert noise.label_names == ("sea", "sky")
        assert PartialNoise(pd.Series([0.1, 0.2], index=["sea", "sky"])).label_names == ("sea", "sky")

    def test_equality_and_hash(self):
        a, b = ClassConditionalNoise([0.1], [0.2]), ClassConditionalNoise([0.1], [0.2])
        assert a == b
        assert hash(a) == hash(b)
        assert a != ClassConditionalNoise([0.1], [0.3])
        assert PartialNoise([0.1]) != ClassConditionalNoise([0.0], [0.1])

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (([-0.1, 0.2], [0, 0]), r"rho_pos must be probabilities, between 0 and 1; got -0\.1 for label 0 \(of 2\)"),
            (([0.1, 1.2], [0, 0]), r"got 1\.2 for label 1"),
            (([0.1, np.nan], [0, 0]), r"rho_pos .* got nan for label 1 \(of 2\)"),
            (([0.1, 0.2], [0.3]), "rho_neg has 1 rates, but there are 2 labels"),
            (([0.5, 0.1, 0.6], [0.5, 0.1, 0.4]), r"got 0\.5 \+ 0\.5 for labels 0 and 2 \(of 3\)"),
            (([0.3], [0.7]), "must be below 1"),
            ((0.1, 0.2), "pass n_labels=q"),
            (([[0.1]], [[0.2]]), r"shape \(q,\); got shape \(1, 1\)"),
            (("lots", [0.1]), "must be a number or a list of numbers"),
            (([], []), "one rate per label"),
            (([10**400], [0.1]), "must be a number or a list"),
        ],
    )
    def test_bad_rates(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            ClassConditionalNoise(*arguments)


class TestFromPairs:
    Y = np.array([[1, 0], [1, 0], [1, 1], [0, 0]])
    Z = np.array([[0, 0], [1, 1], [1, 1], [0, 0]])

    def test_counts(self):
        for wrap in (np.asarray, torch.tensor, pd.DataFrame, scipy.sparse.csr_matrix, scipy.sparse.csr_array):
            noise = ClassConditionalNoise.from_pairs(wrap(self.Y), wrap(self.Z))
            np.testing.assert_allclose(noise.rho_pos, [1 / 3, 0])
            np.testing.assert_allclose(noise.rho_neg, [0, 1 / 3])

    def test_pairs_with_nan_are_ignored(self):
        Z = self.Z.astype(float)
        Z[0, 0] = np.nan
        assert ClassConditionalNoise.from_pairs(self.Y, Z).rho_pos[0] == 0

    def test_warning_names_labels_without_positives(self):
        frame = pd.DataFrame(self.Y * [1, 0], columns=["sea", "sky"])
        with pytest.warns(UserWarning, match=r"no positive sample for label 'sky' \(of 2\): rho_pos is set to 0"):
            assert ClassConditionalNoise.from_pairs(frame, self.Z).rho_pos[1] == 0

    def test_one_rate_models(self):
        assert PartialNoise.from_pairs(self.Y[1:], self.Z[1:]).rho_neg.tolist() == [0, 0.5]
        assert MissingNoise.from_pairs(self.Z[1:], self.Y[1:]).rho_pos.tolist() == [0, 0.5]
        with pytest.raises(ValueError, match=r"every true label .* for label 0"):
            PartialNoise.from_pairs(self.Y, self.Z)
        with pytest.raises(ValueError, match=r"no false label .* for label 1"):
            MissingNoise.from_pairs(self.Y, self.Z)

    def test_rates_with_a_sum_of_one_are_clipped(self):
        Y, Z = np.array([[1, 1], [1, 1], [0, 0], [0, 0]]), np.array([[0, 1], [1, 1], [0, 0], [1, 0]])
        with pytest.warns(UserWarning, match=r"sum above 0\.99 for label 0 \(of 2\)"):
            noise = ClassConditionalNoise.from_pairs(Y, Z)
        np.testing.assert_allclose(noise.rho_pos, [0.495, 0])
        np.testing.assert_allclose(noise.rho_neg, [0.495, 0])
        with pytest.warns(UserWarning, match="sum above"):
            inverted = ClassConditionalNoise.from_pairs(Y, 1 - Y)
        np.testing.assert_allclose(inverted.rho_pos + inverted.rho_neg, 0.99)
        with pytest.warns(UserWarning, match="sum above"):
            assert PartialNoise.from_pairs(Y, np.ones_like(Y)).rho_neg == pytest.approx([0.99, 0.99])

    def test_bad_shapes(self):
        with pytest.raises(ValueError, match=r"shape \(n, q\); got \(4, 2\) and \(3, 2\)"):
            ClassConditionalNoise.from_pairs(self.Y, self.Z[:3])


class TestSample:
    def test_rates_of_the_paper(self):
        noise = ClassConditionalNoise.sample(3000, random_state=0)
        assert set(noise.rho_pos) == set(noise.rho_neg) == {0.1, 0.2, 0.3, 0.4, 0.5}
        pairs = {(a, b) for a, b in zip(noise.rho_pos, noise.rho_neg)}
        assert len(pairs) == 24  # 25 pairs less (.5, .5), each equally likely
        assert (0.5, 0.5) not in pairs
        assert noise == ClassConditionalNoise.sample(3000, random_state=0)

    def test_no_allowed_pair(self):
        with pytest.raises(ValueError, match=r"got \(0\.6, 0\.7\)"):
            ClassConditionalNoise.sample(3, choices=(0.6, 0.7))
        with pytest.raises(ValueError, match=r"at most max_sum=0\.1"):
            ClassConditionalNoise.sample(3, max_sum=0.1)
        with pytest.raises(ValueError, match="q must be an integer of at least 1; got 0"):
            ClassConditionalNoise.sample(0)


class TestFromDict:
    @pytest.mark.parametrize(
        ("description", "message"),
        [
            ({}, "'kind' class_conditional, partial, missing, transition; got None"),
            ({"kind": "gaussian"}, "got 'gaussian'"),
            ([0.1], "got list"),
            ({"kind": "partial"}, "partial noise has no field 'rho_neg'"),
            ({"kind": "class_conditional", "rho_pos": [0.9], "rho_neg": [0.9]}, "must be below 1"),
        ],
    )
    def test_bad_descriptions(self, description, message):
        with pytest.raises(ValueError, match=message):
            NoiseModel.from_dict(description)

    @pytest.mark.parametrize("models", [None, 3, [None], [[0.0]], [[0.0, None]]])
    def test_damaged_members(self, models):
        with pytest.raises(ValueError, match=r"invalid field|description|unpack"):
            GroupedNoise.from_dict({"kind": "grouped", "models": models})


class TestTransition:
    @pytest.mark.parametrize(
        ("T", "message"),
        [
            ([[0.5, 0.5], [0.5, 0.5]], "singular"),
            ([[0.9, 0.2], [0.2, 0.8]], r"rows of T \(true classes\) must sum to 1; row 0 sums to 1\.1"),
            ([[0.9, 0.3], [0.1, 0.7]], r"Its columns do: pass T\.T"),
            ([[1.1, -0.1], [0, 1]], "between 0 and 1"),
            ([[1.0, 0.0]], r"square matrix .* got shape \(1, 2\)"),
            ("no", "square matrix of probabilities"),
        ],
    )
    def test_bad_matrices(self, T, message):
        with pytest.raises(ValueError, match=message):
            TransitionNoise(T)

    @pytest.mark.parametrize("wrap", [np.asarray, scipy.sparse.csr_matrix, torch.tensor])
    def test_labels_must_be_one_hot(self, wrap):
        noise = MEMBERS["transition"]
        with pytest.raises(ValueError, match="exactly one 1 per row"):
            noise.corrupt(wrap(np.array([[1, 1, 0]])))
        with pytest.raises(ValueError, match="exactly one 1 per row"):
            noise.debias(wrap(np.array([[0, 0, 0]])))

    def test_counts_of_many_pairs_are_the_matrix(self):
        T = np.array([[0.7, 0.2, 0.1], [0.0, 0.9, 0.1], [0.3, 0.1, 0.6]])
        true = np.eye(3)[np.random.default_rng(0).integers(3, size=60_000)]
        noisy = TransitionNoise(T).corrupt(true, random_state=1)
        found = TransitionNoise.from_pairs(true, noisy)
        np.testing.assert_allclose(found.T, T, atol=0.015)
        frames = pd.DataFrame(true, columns=list("abc")), pd.DataFrame(noisy, columns=list("abc"))
        for pair in (
            frames,
            (torch.tensor(true), torch.tensor(noisy)),
            tuple(map(scipy.sparse.csr_array, (true, noisy))),
        ):
            np.testing.assert_array_equal(TransitionNoise.from_pairs(*pair).T, found.T)
        assert TransitionNoise.from_pairs(*frames).label_names == ("a", "b", "c")

    def test_few_pairs_are_shrunk(self):
        """The diagonal lies between the share of the class and that of all rows; a class without rows gets the mean."""
        true = np.repeat([0, 1, 2], [10, 10, 1])
        noisy = np.array([0] * 9 + [1] + [1] * 5 + [0] * 5 + [2])
        found = TransitionNoise.from_pairs(np.eye(4)[true], np.eye(4)[noisy]).T
        np.testing.assert_allclose(found.sum(1), 1)
        common = (9 + 5 + 1 + 0.5) / 22
        assert 0.5 < found[1, 1] < common < found[0, 0] < 0.9
        assert common < found[2, 2] < 1
        assert found[3, 3] == pytest.approx(common)
        assert found[1, 0] > found[1, 2] == pytest.approx(found[1, 3])

    def test_pairs_must_be_one_hot(self):
        with pytest.raises(ValueError, match="exactly one 1 per row"):
            TransitionNoise.from_pairs(np.array([[1, 1]]), np.array([[1, 0]]))
        with pytest.raises(ValueError, match=r"one-hot matrices of the same shape .* got \(2,\) and \(2,\)"):
            TransitionNoise.from_pairs(np.array([1, 0]), np.array([1, 0]))


class TestPosterior:
    NOISE = ClassConditionalNoise([0.1, 0.5, 0.0], [0.4, 0.0, 0.2])
    ETA = np.array([[0.3, 0.8, 0.5], [0.9, 0.1, 0.4]])

    def test_equals_the_ratio_of_joint_probabilities(self):
        for noisy in (0, 1):
            expected = [
                [posterior(noisy, eta, a, b) for eta, a, b in zip(row, self.NOISE.rho_pos, self.NOISE.rho_neg)]
                for row in self.ETA
            ]
            Y = np.full((2, 3), noisy)
            np.testing.assert_allclose(self.NOISE.posterior(Y, self.ETA), expected, rtol=1e-5)

    def test_has_the_expectation_of_the_true_label_and_a_smaller_variance_than_debiased_labels(self):
        g = self.NOISE.rho_neg + (1 - self.NOISE.rho_pos - self.NOISE.rho_neg) * self.ETA
        ones, zeros = np.ones((2, 3)), np.zeros((2, 3))

        def moments(transform):
            return [g * transform(ones) ** k + (1 - g) * transform(zeros) ** k for k in (1, 2)]

        mean, square = moments(lambda Y: self.NOISE.posterior(Y, self.ETA))
        debiased_mean, debiased_square = moments(self.NOISE.debias)
        np.testing.assert_allclose(mean, self.ETA, rtol=1e-12)
        np.testing.assert_allclose(debiased_mean, self.ETA, rtol=1e-12)
        assert (square < debiased_square).all()

    def test_soft_labels_are_averages_and_nan_stays(self):
        q = self.NOISE.posterior(torch.tensor([[0.25, 1.0, torch.nan]]), self.ETA[:1])
        zero, one = (self.NOISE.posterior(np.full((1, 3), y), self.ETA[:1]) for y in (0, 1))
        assert q[0, 0] == pytest.approx(0.75 * zero[0, 0] + 0.25 * one[0, 0])
        assert np.isnan(q[0, 2])

    @pytest.mark.parametrize(
        ("labels", "pred_proba", "message"),
        [
            ([[0, 1]], [[0.1, 0.2]], "3 labels"),
            ([[0, 1, 2]], [[0.1, 0.2, 0.3]], "between 0 and 1"),
            ([[0, 1, 1]], [[0.1, 0.2, 1.3]], "pred_proba"),
            ([[0, 1, 1]], [0.1, 0.2, 0.3], "pred_proba"),
        ],
    )
    def test_invalid_arguments(self, labels, pred_proba, message):
        with pytest.raises(ValueError, match=message):
            self.NOISE.posterior(np.array(labels), np.array(pred_proba))


class TestPropensities:
    def test_formula(self):
        counts, n, A, B = [0, 3, 700], 1000, 0.6, 2.6
        noise = propensity_noise(counts, A, B, n_samples=n)
        for count, rate in zip(counts, noise.rho_pos):
            inverse = 1 + (math.log(n) - 1) * (B + 1) ** A * (count + B) ** -A
            assert 1 / (1 - rate) == pytest.approx(inverse)
        assert isinstance(noise, MissingNoise)
        np.testing.assert_array_equal(noise.rho_pos, np.sort(noise.rho_pos)[::-1])

    def test_number_of_samples(self):
        with pytest.warns(UserWarning, match="n_samples is not given"):
            assert propensity_noise([10, 30]) == propensity_noise([10, 30], n_samples=40)
        assert propensity_noise([1, 2], n_samples=2).rho_pos.tolist() == [0, 0]

    @pytest.mark.parametrize(
        ("counts", "options", "message"),
        [
            ([[1, 2]], {}, r"counts .* shape \(1, 2\)"),
            ([1, -2], {}, "counts must be"),
            ([1, 2], {"A": 0}, "A must be"),
            ([1, 2], {"B": -1}, "B must be"),
            ([1, 20], {"n_samples": 10}, "n_samples must be at least the largest count"),
        ],
    )
    def test_errors(self, counts, options, message):
        with pytest.raises(ValueError, match=message):
            propensity_noise(counts, **{"n_samples": 100, **options})


# -- Names of labels: another order is rejected, labels without names are accepted

NAMED = ClassConditionalNoise([0.1, 0.2], [0.3, 0.0], label_names=["sea", "sky"])
FRAME = pd.DataFrame([[1, 0], [0, 1], [1, 1], [0, 0]], columns=["sea", "sky"])
REORDERED, UNNAMED, RENAMED = (
    FRAME[["sky", "sea"]],
    pd.DataFrame(FRAME.to_numpy()),
    FRAME.rename(columns={"sky": "sun"}),
)


def grouped(labels, method):
    noise = GroupedNoise({"a": NAMED})
    return getattr(noise, method)(labels, ["a"] * len(labels))


NAMED_CALLS = {
    "corrupt": lambda labels: NAMED.corrupt(labels, random_state=0),
    "debias": NAMED.debias,
    "grouped corrupt": lambda labels: grouped(labels, "corrupt"),
    "grouped debias": lambda labels: grouped(labels, "debias"),
    "from pairs": lambda labels: ClassConditionalNoise.from_pairs(FRAME, labels),
    "corrected": lambda labels: CorrectedClassifier(LogisticRegression(), NAMED).fit(np.eye(4), labels),
    **{name: lambda labels, row=row: row.function(labels, _other(row)) for name, row in metrics.METRICS.items()},
    **{
        f"{name} with noise": lambda labels, row=row: row.function(labels, _other(row).to_numpy(), noise=NAMED)
        for name, row in metrics.METRICS.items()
    },
}


def _other(row):
    return FRAME if row.needs == "labels" else FRAME + np.array([0.1, 0.2])


@pytest.mark.parametrize("name", NAMED_CALLS)
def test_other_names_or_order_are_rejected(name):
    with pytest.raises(ValueError, match=r"sky, sea|sea, sky"):
        NAMED_CALLS[name](REORDERED)
    with pytest.raises(ValueError, match="sun"):
        NAMED_CALLS[name](RENAMED)


@pytest.mark.parametrize("name", NAMED_CALLS)
@pytest.mark.parametrize("labels", [FRAME, UNNAMED, FRAME.to_numpy()], ids=["named", "unnamed", "array"])
def test_same_order_or_no_names_do_not_raise(name, labels):
    NAMED_CALLS[name](labels)
