from __future__ import annotations

import numpy as np
import pytest

from app.review.example import make_dataset
from ccmn.app.review import ReviewDataset, read_review_data
from ccmn.app.review.review_data import FilePictures
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


def test_metadata_depends_on_labels_not_on_display():
    dataset = make_dataset()
    Y = dataset.data.Y.copy()
    Y[0, 0] = 1 - Y[0, 0]
    other = ReviewDataset(MultiLabelData(dataset.data.X, Y, label_names=dataset.data.label_names))
    assert dataset.metadata != other.metadata
    assert dataset.metadata == make_dataset(texts=[""] * 150).metadata


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


def test_rows_of_a_table_are_displayed_as_in_the_file(tmp_path):
    lines = [f"C{i},{'IT' if i % 2 else ''},2024-05-0{i % 9 + 1},{20 + i * i}.5,{i % 2}" for i in range(40)]
    (tmp_path / "table.csv").write_text("\n".join(["customer,country,since,income,uses", *lines]) + "\n")
    dataset, _ = read_review_data(tmp_path / "table.csv", ColumnRoles(["uses"], id="customer"))
    shown = [(feature.name, feature.value) for feature in dataset.features(2)]
    assert shown == [("country", "–"), ("since", "2024-05-03"), ("income", "24.5")]
    assert dataset.excerpt(2) == "since: 2024-05-03, income: 24.5"
    assert dataset.other_columns(2) == dataset.features(2)
