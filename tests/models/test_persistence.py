"""Models on disk: identical predictions after loading, atomic writing, and rejection of damaged or unsafe files."""

import os
import pickle
import zipfile

import numpy as np
import pytest
import torch

import ccmn
from ccmn import CCMNClassifier, ClassConditionalNoise, load_model
from ccmn.noise import TransitionNoise
from helpers import rewrite_model, write_parts

X = np.random.default_rng(0).normal(size=(150, 4)).astype(np.float32)
Y = (X @ np.random.default_rng(1).normal(size=(4, 3)) > 0).astype(int)
NOISE = ClassConditionalNoise([0.1, 0.2, 0.0], [0.2, 0.1, 0.3], label_names=["sea", "sky", "sun"])


def fitted(**parameters):
    return CCMNClassifier(NOISE, **{"loss": "ranking", "epochs": 3, "random_state": 0, **parameters}).fit(X, Y)


@pytest.mark.parametrize("name", ["model.ccmn", "without-suffix", "deeper/still/model.ccmn"])
@pytest.mark.parametrize(
    "parameters",
    [{}, {"model": "mlp"}, {"loss": "hamming", "surrogate": "square"}, {"loss": "hamming", "surrogate": "hinge"}],
)
def test_predictions_are_bit_identical(tmp_path, name, parameters):
    clf = fitted(**parameters)
    clf.extra_["note"] = {"text": [1, 2]}
    clf.save(tmp_path / name)
    again = load_model(tmp_path / name)
    for method in ("decision_function", "predict", "predict_proba"):
        assert np.array_equal(getattr(again, method)(X), getattr(clf, method)(X))
    assert again.noise_ == clf.noise_
    assert again.get_params()["noise"] == NOISE
    assert again.extra_ == {"note": {"text": [1, 2]}}
    assert again.history_.equals(clf.history_)
    assert (again.classes_ == clf.classes_).all()
    assert [p.name for p in tmp_path.iterdir()] == [name.split("/")[0]]


@pytest.mark.parametrize("labels", [np.array(["no", "yes", "maybe"])[Y.argmax(1)], np.eye(3)[Y.argmax(1)]])
def test_classes_are_saved(tmp_path, labels):
    clf = CCMNClassifier(TransitionNoise(0.7 * np.eye(3) + 0.1), loss="ranking", epochs=2).fit(X, labels)
    clf.save(tmp_path / "m.ccmn")
    np.testing.assert_array_equal(load_model(tmp_path / "m.ccmn").predict(X), clf.predict(X))


def test_custom_networks_require_the_model_argument(tmp_path):
    def make(n_features, n_outputs):
        return torch.nn.Sequential(torch.nn.Linear(n_features, 5), torch.nn.ReLU(), torch.nn.Linear(5, n_outputs))

    clf = fitted(model=make)
    clf.save(tmp_path / "m.ccmn")
    again = load_model(tmp_path / "m.ccmn", model=make)
    assert np.array_equal(again.decision_function(X), clf.decision_function(X))
    with pytest.raises(ValueError, match=r"load_model\(path, model=\.\.\.\)"):
        load_model(tmp_path / "m.ccmn").predict(X)
    with pytest.raises(ValueError, match=r"^The network created by model\(\.\.\.\) does not match the saved weights"):
        load_model(tmp_path / "m.ccmn", model=lambda d, o: torch.nn.Linear(d, o))


@pytest.mark.parametrize("wrong", [np.inf, np.nan, 1e200])
def test_weights_with_infinite_scores_are_not_saved(tmp_path, wrong):
    clf = fitted()
    clf._network.arrays["weight"][0, 0] = wrong
    with pytest.raises(ValueError, match="weight must be finite"):
        clf.save(tmp_path / "m.ccmn")
    assert not any(tmp_path.iterdir())


class TestRejected:
    @pytest.fixture
    def path(self, tmp_path):
        fitted().save(tmp_path / "m.ccmn")
        return tmp_path / "m.ccmn"

    def test_changed_bytes_are_detected(self, path):
        """After one flipped byte, the model is rejected, or equal if the byte is padding of the zip format."""
        whole = path.read_bytes()
        expected = load_model(path).decision_function(X)
        for position in np.random.default_rng(0).integers(0, len(whole), 150):
            damaged = bytearray(whole)
            damaged[position] ^= 0x55
            path.write_bytes(bytes(damaged))
            try:
                scores = load_model(path).decision_function(X)
            except ValueError:
                continue
            assert np.array_equal(scores, expected)

    def test_truncation_is_detected(self, path):
        whole = path.read_bytes()
        for length in range(0, len(whole), max(1, len(whole) // 60)):
            path.write_bytes(whole[:length])
            with pytest.raises(ValueError, match="not a valid ccmn model"):
                load_model(path)

    def test_pickles_are_never_loaded(self, path):
        class Evil:
            def __reduce__(self):
                return (os.mkdir, (str(path.parent / "executed"),))

        path.write_bytes(pickle.dumps(Evil()))
        with pytest.raises(ValueError, match="not a valid ccmn model"):
            load_model(path)
        torch.save({"a": Evil()}, path)
        with pytest.raises(ValueError, match="not a valid ccmn model"):
            load_model(path)
        assert not (path.parent / "executed").exists()

    def test_other_files(self, path, tmp_path):
        with pytest.raises(FileNotFoundError, match="does not exist"):
            load_model(tmp_path / "nowhere.ccmn")
        with pytest.raises(ValueError, match="is a folder"):
            load_model(tmp_path)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("../evil.json", "{}")
        with pytest.raises(ValueError, match="not a valid ccmn model: it contains"):
            load_model(path)

    def test_hostile_names_in_the_archive(self, path):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("two\nlines.json", "{}")
        with pytest.raises(ValueError, match=r"it contains 'two\\nlines.json'$"):
            load_model(path)
        fitted().save(path)
        content = path.read_bytes()
        at = content.rindex(b"PK\1\2")  # the last entry of the directory: its flags, then its name
        path.write_bytes(content[: at + 8] + b"\0\x08" + content[at + 10 : at + 46] + b"\xff" + content[at + 47 :])
        with pytest.raises(ValueError, match=r"\.ccmn is not a valid ccmn model"):
            load_model(path)

    def test_pipes_are_rejected(self, tmp_path):
        os.mkfifo(tmp_path / "model.ccmn")
        with pytest.raises(ValueError, match=r"model\.ccmn is a pipe or a device"):
            load_model(tmp_path / "model.ccmn")
        os.mkfifo(tmp_path / "state")
        with pytest.raises(ValueError, match="state is a pipe or a device"):
            CCMNClassifier(None, lr=0.1).fit(np.eye(9), np.eye(9), checkpoint=tmp_path / "state")

    @pytest.mark.parametrize(
        "change",
        [
            lambda d, a: d.update(version=99),
            lambda d, a: a["weight"].__setitem__((0, 0), np.nan),
            lambda d, a: d.update(label_names=["sea", "sky", "\ud800"]),
            lambda d, a: d.pop("noise"),
            lambda d, a: d.update(network="transformer"),
            lambda d, a: a.pop("bias"),
            lambda d, a: a.update(weight=a["weight"].astype(np.int32)),
            lambda d, a: d.update(parameters=[1]),
            lambda d, a: d["parameters"].update(noise={"kind": ["grouped"]}),
            lambda d, a: d["parameters"].update(epochs="many"),
            lambda d, a: d.update(noise={"kind": "class_conditional", "rho_pos": [0.1], "rho_neg": [0.1]}),
        ],
    )
    def test_invalid_descriptions(self, path, change):
        """Checksums are valid, but the content is not."""
        rewrite_model(path, change)
        with pytest.raises(ValueError, match=r"m\.ccmn is not a valid ccmn model"):
            load_model(path)

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("kind", "unilabel"),
            ("classes", [0, 1]),
            ("classes", "abc"),
            ("label_names", ["sea", "sky", 3]),
            ("feature_names", ["a", "b"]),
            ("n_features", "4"),
            ("link", "chain"),
            ("slope", 0),
            ("sparse", "no"),
            ("history", [{"l2": "one"}]),
            ("extra", []),
        ],
    )
    def test_invalid_fields(self, path, field, value):
        rewrite_model(path, lambda d, a: d.update({field: value}))
        with pytest.raises(ValueError, match=rf"m\.ccmn is not a valid ccmn model: {field} must be .*; got "):
            load_model(path)

    @pytest.mark.parametrize("text", [b"[1, 2", b"[" * 100_000, b"9" * 5000, b"\xff"])
    def test_invalid_json(self, path, text):
        write_parts(path, {"model.json": text, "weights.safetensors": b"x" * 20})
        with pytest.raises(ValueError, match="not a valid ccmn model"):
            ccmn.load_model(path)
