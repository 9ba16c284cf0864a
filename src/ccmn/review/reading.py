"""Data files as subjects of a review: what the model learns from, and what a person is to see."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ccmn._validation import check_no_missing
from ccmn.data.columns import Columns
from ccmn.data.files import PathLike, blame
from ccmn.data.formats import read_text_file
from ccmn.data.labels import LabelSpec
from ccmn.data.multilabel import MultiLabelData
from ccmn.review.pictures import FeaturePictures, FilePictures, Shape
from ccmn.review.subject import Subject


class Display(NamedTuple):
    """How rows are shown; with nothing of this, as tables of their features.

    ``text`` names a column of texts, which become features, too; ``picture`` is the shape of features that are
    pixels; ``image`` names a column of file names, in ``folder``, which are shown and not learnt from.
    """

    text: str | None = None
    picture: str | None = None
    image: str | None = None
    folder: Path | None = None


def read_subject(
    source: PathLike,
    labels: LabelSpec | None = None,
    display: Display | None = None,
    *,
    candidates: bool = False,
    data_dir: PathLike | None = None,
) -> tuple[Subject, Columns]:
    """Read data to review; with them, which columns of a file a model of them takes."""
    show = display or Display()
    if sum(way is not None for way in (show.text, show.picture, show.image)) > 1:
        raise ValueError("rows are shown in one way: as a text, as a picture of the features, or as a picture file")
    if show.image is not None:
        subject, columns = _with_files(source, labels, show.image, show.folder)
    else:
        columns, data = Columns.of_training_data(source, labels, show.text, data_dir=data_dir)
        texts = None if show.text is None else read_text_file(source, show.text, labels)[1]
        shape = None if show.picture is None else Shape.read(show.picture)
        subject = Subject(data, texts, None if shape is None else FeaturePictures(data.X, shape))
    return (replace(subject, data=_candidates(subject.data)) if candidates else subject), columns


def _with_files(
    source: PathLike, labels: LabelSpec | None, column: str, folder: Path | None
) -> tuple[Subject, Columns]:
    data, names = read_text_file(source, column, labels)
    with blame(source):
        check_no_missing(data.X, data.feature_names)
        if not (data.q and data.d):
            what = "labels" if data.d else "features beside the pictures, which are shown but not learnt from,"
            raise ValueError(f"there are no {what} in these data")
    pictures = FilePictures(names, Path(source).parent if folder is None else folder)
    return Subject(data, picture=pictures), Columns(data.d, data.q, data.feature_names, data.label_names)


def _candidates(data: MultiLabelData) -> MultiLabelData:
    if data.candidates is None:
        raise ValueError("these data have no candidate sets beside the labels: leave --candidates out")
    return replace(data, Y=data.candidates, candidates=None)
