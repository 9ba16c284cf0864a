from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from ccmn.data import MultiLabelData, write_npz
from ccmn.review import Display, Subject, read_subject
from ccmn.review.subject import MOST_FEATURES
from review.table import make_subject

CSV = "words,file,size,sea,sky\nred boat at sea,a.png,1.5,1,0\nblue sky today,b.png,2,0,1\nnothing here,c.png,3,0,\n"


@pytest.fixture
def table(tmp_path):
    """A file without its column of file names, and one without its column of words."""
    lines = [line.split(",") for line in CSV.splitlines()]
    for name, left in (("text.csv", 1), ("files.csv", 0)):
        kept = [",".join(cell for i, cell in enumerate(line) if i != left) for line in lines]
        (tmp_path / name).write_text("\n".join(kept) + "\n")
    (tmp_path / "a.png").write_bytes(b"picture")
    return tmp_path


def test_texts_are_shown_and_learnt_from(table):
    subject, columns = read_subject(table / "text.csv", ["sea", "sky"], Display(text="words"))
    assert list(subject.texts) == ["red boat at sea", "blue sky today", "nothing here"]
    assert subject.data.d == 1 + len(columns.text.terms)
    assert np.isnan(subject.given[2, 1])
    assert subject.picture is None


def test_picture_files_are_shown_and_not_learnt_from(table):
    subject, columns = read_subject(table / "files.csv", ["sea", "sky"], Display(image="file"))
    assert subject.picture(0).content == b"picture"
    assert subject.picture(1) is None
    assert subject.data.feature_names == columns.feature_names == ["size"] or subject.data.d == columns.n_features == 1
    with pytest.raises(FileNotFoundError):
        read_subject(table / "files.csv", ["sea", "sky"], Display(image="file", folder=table / "nowhere"))


def test_features_as_pictures_and_candidates(tmp_path):
    Y = np.array([[1, 0], [0, 1]])
    write_npz(MultiLabelData(np.eye(2, 4), Y, candidates=np.ones_like(Y)), tmp_path / "data.npz")
    subject, _ = read_subject(tmp_path / "data.npz", display=Display(picture="2x2"), candidates=True)
    assert subject.picture(0).media_type == "image/png"
    assert subject.given.tolist() == [[1, 1], [1, 1]]
    assert subject.label_names == ("label 0", "label 1")


def test_refuses(table, tmp_path):
    with pytest.raises(ValueError, match="shown in one way"):
        read_subject(table / "text.csv", ["sea"], Display(text="words", picture="1x1"))
    with pytest.raises(ValueError, match="no candidate sets"):
        read_subject(table / "text.csv", ["sea", "sky"], Display(text="words"), candidates=True)
    (tmp_path / "bare.csv").write_text("file,sea\na.png,1\n")
    with pytest.raises(ValueError, match="no features beside the pictures"):
        read_subject(tmp_path / "bare.csv", ["sea"], Display(image="file"))


@pytest.mark.parametrize("container", [np.asarray, scipy.sparse.csr_array])
def test_the_most_unusual_features_are_shown(container):
    X = np.random.default_rng(0).normal(size=(50, 100))
    X[7, [3, 90]] = 40, -40
    found = Subject(MultiLabelData(container(X), np.ones((50, 1)))).features(7)
    assert len(found) == MOST_FEATURES
    assert [feature.name for feature in found if abs(feature.apart) > 6] == ["x3", "x90"]
    expected = (X[7, 3] - X[:, 3].mean()) / X[:, 3].std()
    assert found[[f.name for f in found].index("x3")].apart == pytest.approx(expected, rel=1e-3)


def test_other_labels_or_rows_are_other_data():
    subject = make_subject()
    Y = subject.data.Y.copy()
    Y[0, 0] = 1 - Y[0, 0]
    other = Subject(MultiLabelData(subject.data.X, Y, label_names=subject.data.label_names))
    assert subject.facts != other.facts
    assert subject.facts == make_subject(texts=[""] * 150).facts
