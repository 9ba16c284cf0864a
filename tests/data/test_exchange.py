"""Files of annotation tools: what the readers make of them, and round trips."""

import json

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from ccmn.data import write_file
from ccmn.data.column_roles import ColumnRoles
from ccmn.data.columns import Columns
from ccmn.data.exchange import write_label_studio, write_tag_csv


def annotation(choices, who=1, **fields):
    """Return an annotation of Label Studio."""
    result = [{"from_name": "topic", "to_name": "text", "type": "choices", "value": {"choices": choices}}]
    return {"completed_by": who, "result": result, **fields}


TASKS = [
    {
        "id": 7,
        "data": {"text": "red boat"},
        "annotations": [annotation(["sea"], {"id": 1, "email": "a@x"}), annotation(["sea", "sky"], 2)],
    },
    {"id": 8, "data": {"text": "blue sky"}, "annotations": [annotation(["sky"], 2, ground_truth=True)]},
    {"id": 9, "data": {"text": "blue sea"}, "annotations": [annotation(["sea"], 2, was_cancelled=True)]},
    {"id": 10, "data": {"text": "nothing"}, "annotations": [annotation([], 2)]},
]


def read(path, roles=None):
    """Return the data in a file, whose columns have these roles."""
    return Columns.from_training_data(path, roles=roles)[1]


def test_label_studio(tmp_path):
    path = tmp_path / "export.json"
    path.write_text(json.dumps(TASKS))
    data = read(path)
    assert (data.ids, data.texts) == (["7", "8", "9", "10"], ["red boat", "blue sky", "blue sea", "nothing"])
    assert data.label_names == ("sea", "sky")
    assert_array_equal(data.Y, [[1, 0], [0, 1], [np.nan, np.nan], [0, 0]])  # the majority, verified, cancelled, none
    assert_array_equal(data.trusted, [[np.nan, np.nan], [0, 1], [np.nan, np.nan], [np.nan, np.nan]])
    assert data.votes.annotator_names == ("2", "a@x")
    expected = np.full((4, 2, 2), np.nan)
    expected[0], expected[3, 0] = [[1, 1], [1, 0]], [0, 0]
    assert_array_equal(data.votes.to_array(), expected)


def test_label_studio_round_trip(tmp_path):
    path, again = tmp_path / "export.json", tmp_path / "again.json"
    path.write_text(json.dumps(TASKS))
    first = read(path)
    write_file(first, again)
    second = read(again)
    assert_array_equal(second.Y, first.Y)
    assert_array_equal(second.trusted, first.trusted)
    assert_array_equal(second.votes.to_array(), first.votes.to_array())
    assert (second.texts, second.ids) == (first.texts, first.ids)


def test_issues_are_predictions_of_label_studio(tmp_path):
    import pandas as pd

    (tmp_path / "rows.jsonl").write_text('{"text": "ab", "labels": ["x"]}\n{"text": "cd", "labels": ["x", "y"]}\n')
    issues = pd.DataFrame({"row": [1, 1], "label": ["x", "y"], "p_wrong": [0.9, 0.6], "suggested": [0, 1]})
    write_label_studio(read(tmp_path / "rows.jsonl"), tmp_path / "tasks.json", issues)
    tasks = json.loads((tmp_path / "tasks.json").read_text())
    (prediction,) = tasks[1]["predictions"]
    assert prediction["score"] == 0.9
    assert prediction["result"][0]["value"]["choices"] == ["y"]
    assert "predictions" not in tasks[0]


@pytest.mark.parametrize("form", ["jsonl", "csv", "doccano", "json"])
def test_round_trips(tmp_path, form):
    rows = [
        {"id": "a", "text": 'Grüße, "quoted"\nsecond line', "labels": ["sky", "sea"]},
        {"id": "b", "text": "none", "labels": []},
    ]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    first = read(tmp_path / "rows.jsonl")
    path = tmp_path / f"again.{'csv' if form == 'doccano' else form}"
    roles = ColumnRoles()
    if path.suffix == ".csv":
        separator = "#" if form == "doccano" else ";"
        write_tag_csv(first, path, separator)
        roles = ColumnRoles(tags="labels", separator=separator, text=("text",), id="id")
    else:
        write_file(first, path)
    second = read(path, roles)
    assert_array_equal(second.Y, [[1, 1], [0, 0]])
    assert (second.texts, second.label_names) == (first.texts, ("sea", "sky"))
    assert second.ids == ["a", "b"]


def test_argilla_records(tmp_path):
    records = [
        {
            "id": "r1",
            "fields": {"text": "red boat"},
            "responses": {
                "topics": [
                    {"value": ["sea"], "user_id": "u1", "status": "submitted"},
                    {"value": ["sky"], "user_id": "u2", "status": "discarded"},
                ]
            },
        },
        {"id": "r2", "fields": {"text": "sky"}, "responses": {}},
    ]
    (tmp_path / "records.json").write_text(json.dumps(records))
    assert_array_equal(read(tmp_path / "records.json").Y, [[1], [np.nan]])
    old = [
        {"text": "red", "annotation": ["sea", "sky"], "annotation_agent": "a", "id": 1, "status": "Validated"},
        {"text": "blue", "annotation": None, "annotation_agent": None, "id": 2, "status": "Default"},
    ]
    (tmp_path / "old.json").write_text(json.dumps(old))
    assert_array_equal(read(tmp_path / "old.json").Y, [[1, 1], [np.nan, np.nan]])


def test_hugging_face_parquet(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    features = {
        "text": {"dtype": "string", "_type": "Value"},
        "labels": {"feature": {"names": ["sea", "sky", "sun"], "_type": "ClassLabel"}, "_type": "Sequence"},
    }
    table = pa.table({"text": ["ab", "cd"], "labels": [[0, 2], []]})
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "data.parquet")
    data = read(tmp_path / "data.parquet", ColumnRoles(text=("text",)))
    assert data.label_names == ("sea", "sky", "sun")
    assert_array_equal(data.Y, [[1, 0, 1], [0, 0, 0]])
