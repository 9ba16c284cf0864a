from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from app.review.example import make_dataset
from ccmn._pictures import encode_png
from ccmn.app.review import ReviewDataset, read_review_data
from ccmn.app.review.review_data import MAX_FEATURES, MAX_OTHER_COLUMNS, FeaturePictures, FilePictures
from ccmn.data import MultiLabelData, write_file
from ccmn.data.column_roles import ColumnRoles

CSV = "words,file,size,sea,sky\nred boat at sea,a.png,1.5,1,0\nblue sky today,b.png,2,0,1\nnothing here,c.png,3,0,\n"


@pytest.fixture
def table(tmp_path):
    """Write text.csv without the column of file names and files.csv without the column of texts."""
    lines = [line.split(",") for line in CSV.splitlines()]
    for name, omitted in (("text.csv", 1), ("files.csv", 0)):
        kept = [",".join(cell for i, cell in enumerate(line) if i != omitted) for line in lines]
        (tmp_path / name).write_text("\n".join(kept) + "\n")
    (tmp_path / "a.png").write_bytes(b"picture")
    return tmp_path


def test_texts_are_displayed_and_used_as_features(table):
    dataset, columns = read_review_data(table / "text.csv", ColumnRoles(["sea", "sky"], text=("words",)))
    assert list(dataset.texts) == ["red boat at sea", "blue sky today", "nothing here"]
    assert dataset.data.d == 1 + len(columns.table.steps_[1].terms)
    assert np.isnan(dataset.given[2, 1])
    assert dataset.picture is None


def test_picture_files_are_displayed_and_not_used_as_features(table):
    dataset, columns = read_review_data(table / "files.csv", ColumnRoles(["sea", "sky"], image="file"))
    assert dataset.picture(0).content == b"picture"
    assert dataset.picture(1) is None
    assert dataset.data.feature_names == columns.feature_names == ["size"] or dataset.data.d == columns.n_features == 1
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_review_data(table / "files.csv", ColumnRoles(["sea", "sky"], image="file"), image_dir=table / "nowhere")


def test_features_as_pictures(tmp_path):
    Y = np.array([[1, 0], [0, 1]])
    write_file(MultiLabelData(np.eye(2, 4), Y), tmp_path / "data.npz")
    dataset, _ = read_review_data(tmp_path / "data.npz", ColumnRoles(), picture="2x2")
    assert dataset.picture(0).media_type == "image/png"
    assert dataset.label_names == ("label 0", "label 1")


def test_invalid_options_are_rejected(table, tmp_path):
    with pytest.raises(ValueError, match="at most one of text, picture and image"):
        read_review_data(table / "text.csv", ColumnRoles(["sea"], text=("words",)), picture="1x1")
    (tmp_path / "bare.csv").write_text("file,sea\na.png,1\n")
    with pytest.raises(ValueError, match=r"bare\.csv.*no features"):
        read_review_data(tmp_path / "bare.csv", ColumnRoles(["sea"], image="file"))


@pytest.mark.parametrize("container", [np.asarray, scipy.sparse.csr_array])
def test_the_most_unusual_features_are_displayed(container):
    X = np.random.default_rng(0).normal(size=(50, 100))
    X[7, [3, 90]] = 40, -40
    features = ReviewDataset(MultiLabelData(container(X), np.ones((50, 1)))).features(7)
    assert len(features) == MAX_FEATURES
    assert [feature.name for feature in features if abs(feature.z_score) > 6] == ["x3", "x90"]
    expected = (X[7, 3] - X[:, 3].mean()) / X[:, 3].std()
    assert features[[f.name for f in features].index("x3")].z_score == pytest.approx(expected, rel=1e-3)


def test_metadata_depends_on_labels_not_on_display():
    dataset = make_dataset()
    Y = dataset.data.Y.copy()
    Y[0, 0] = 1 - Y[0, 0]
    other = ReviewDataset(MultiLabelData(dataset.data.X, Y, label_names=dataset.data.label_names))
    assert dataset.metadata != other.metadata
    assert dataset.metadata == make_dataset(texts=[""] * 150).metadata


@pytest.mark.parametrize("container", [np.asarray, scipy.sparse.csr_array])
def test_features_are_scaled_to_gray_values(container):
    X = np.array([[0.0, 0.5, 1.0, 0.25], [0, 0, 0, 0]])
    content, media_type = FeaturePictures(container(X), (2, 2))(0)
    assert media_type == "image/png"
    assert content == encode_png(np.array([[0, 128], [255, 64]], dtype=np.uint8))


def test_a_constant_picture_is_black():
    assert FeaturePictures(np.ones((1, 3)), (1, 1, 3))(0).content == encode_png(np.zeros((1, 1, 3), np.uint8))


def test_wrong_number_of_features_is_rejected():
    with pytest.raises(ValueError, match="Expected 384 features for pictures of size 16x24; got 5 features"):
        FeaturePictures(np.zeros((2, 5)), (16, 24))


def test_only_pictures_inside_the_folder_are_read(tmp_path):
    folder = tmp_path / "pictures"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "a.PNG").write_bytes(b"picture")
    (folder / "page.svg").write_text("<svg onload='alert(1)'/>")
    (folder / "page.html").write_text("<p>")
    (tmp_path / "secret.png").write_bytes(b"secret")
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    names = [
        "inner/a.PNG", " inner/../inner/a.PNG ", "../secret.png", str(tmp_path / "secret.png"), "link.png",
        "page.svg", "page.html", "absent.png", "", "inner",
    ]  # fmt: skip
    pictures = FilePictures(names, folder)
    assert [pictures(row) and pictures(row).content for row in range(len(names))] == [b"picture"] * 2 + [None] * 8
    assert pictures(0).media_type == "image/png"
    with pytest.raises(FileNotFoundError, match="nowhere"):
        FilePictures([], tmp_path / "nowhere")


def test_unusable_picture_names_give_no_picture(tmp_path):
    (tmp_path / "loop.png").symlink_to(tmp_path / "loop.png")
    pictures = FilePictures(["a\0.png", f"{'a' * 5000}.png", f"{'a/' * 2500}a.png", "loop.png"], tmp_path)
    assert [pictures(row) for row in range(4)] == [None] * 4


def test_rows_of_a_table_are_displayed_as_in_the_file(tmp_path):
    lines = [f"C{i},{'IT' if i % 2 else ''},2024-05-0{i % 9 + 1},{20 + i * i}.5,{i % 2}" for i in range(40)]
    (tmp_path / "table.csv").write_text("\n".join(["customer,country,since,income,uses", *lines]) + "\n")
    dataset, _ = read_review_data(tmp_path / "table.csv", ColumnRoles(["uses"], id="customer"))
    shown = [(feature.name, feature.value) for feature in dataset.features(2)]
    assert shown == [("country", "–"), ("since", "2024-05-03"), ("income", "24.5")]
    assert dataset.excerpt(2) == "since: 2024-05-03, income: 24.5"
    assert dataset.other_columns(2) == dataset.features(2)


@pytest.mark.parametrize("ids", [(), ("id",)])
@pytest.mark.parametrize(("n_columns", "displayed"), [(2, True), (MAX_OTHER_COLUMNS + 1, False)])
def test_other_columns_are_displayed_beside_a_text_unless_there_are_many(tmp_path, ids, n_columns, displayed):
    names = [f"x{j}" for j in range(n_columns)]
    lines = [",".join([*(f"T{i}" for _ in ids), f"word {i}", *["1.5"] * n_columns, str(i % 2)]) for i in range(30)]
    (tmp_path / "texts.csv").write_text("\n".join([",".join([*ids, "body", *names, "sea"]), *lines]) + "\n")
    roles = ColumnRoles(["sea"], text=("body",), id=ids[0] if ids else None)
    dataset, _ = read_review_data(tmp_path / "texts.csv", roles)
    assert dataset.excerpt(0) == "word 0"
    assert [cell[:2] for cell in dataset.other_columns(0)] == [(name, "1.5") for name in names if displayed]


def test_excerpt_of_rows_of_numbers():
    data = MultiLabelData([[1.25, -3.0], [0.0, 4.0]], [[1], [0]], feature_names=["length", "width"])
    assert ReviewDataset(data).excerpt(0) == "length: 1.25, width: -3"
    assert ReviewDataset(MultiLabelData(np.ones((2, 50)), [[1], [0]])).excerpt(0) == ""
