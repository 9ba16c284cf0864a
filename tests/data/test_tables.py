from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ccmn.data.column_roles import label_columns, label_names

NAMES = ["age", "label_sea", "label_sky", "size"]
XML = '<labels xmlns="http://mulan.sourceforge.net/labels"><label name="label_sky"/><label name="age"></label></labels>'


@pytest.mark.parametrize(
    ("labels", "columns"),
    [
        (["label_sky", "age"], [0, 2]),  # the order of the file, not of the list
        (("size",), [3]),
        ([], []),
        ("size", [3]),
        ("label_*", [1, 2]),
        ("*", [0, 1, 2, 3]),
        (2, [0, 1]),
        (-1, [3]),
        (np.int64(-4), [0, 1, 2, 3]),
    ],
)
def test_columns(labels, columns):
    assert label_columns(labels, NAMES) == columns


def test_columns_from_files(write):
    assert label_columns(write("labels.xml", XML), NAMES) == [0, 2]
    assert label_columns(str(write("labels.txt", "label_sky\nage\n\n")), NAMES) == [0, 2]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (None, "specify which columns are labels"),
        (["label_see"], "no label column '.*'; did you mean 'label_sea'"),
        (["xyz"], "no label column '.*'; the columns are 'age', 'label_sea'"),
        (["age", "age"], "labels: 'age' occurs more than once"),
        ("tag_*", r"no column matches labels='tag_\*'"),
        (0, "labels=0 must count columns"),
        (5, "there are 4"),
        (-5, "there are 4"),
        (True, "labels=True must count columns"),
        (2.5, "labels must be names, a pattern, a count or a file; got 2.5"),
        (Path("names.doc"), "ends in .xml"),
    ],
)
def test_rejected(labels, message):
    with pytest.raises(ValueError, match=message):
        label_columns(labels, NAMES)


BOMB = """<?xml version="1.0"?>
<!DOCTYPE labels [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>
<labels><label name="&b;"/></labels>"""
EXTERNAL = """<!DOCTYPE labels [<!ENTITY x SYSTEM "file:///etc/passwd">]><labels><label name="a"/>&x;</labels>"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "declares a document type"),
        (EXTERNAL, "declares a document type"),
        ('<!DOCTYPE labels SYSTEM "http://127.0.0.1:1/labels.dtd"><labels/>', "declares a document type"),
        ('<labels>\n<label name="a">\n</labels>', "line 3: not valid XML"),
        ("<labels/>", "contains no label name"),
        ("<labels>\n<label/></labels>", "line 2: this label has no name"),
        ('<labels><label name="a"/><label name="a"/></labels>', "'a' occurs more than once"),
        ("", "not valid XML"),
        ("@relation x", "not valid XML"),
        ('<?xml version="1.0" encoding="klingon"?><labels/>', "not valid XML"),
        ('<labels><label name="&nothing;"/></labels>', "line 1: not valid XML"),
    ],
)
def test_bad_xml(write, text, message):
    path = write("labels.xml", text)
    with pytest.raises(ValueError, match=message) as caught:
        label_names(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [("a\n\nb\n", "line 2 is blank"), ("", "line 1 is blank"), ("a\na\n", "'a' occurs more than once")],
)
def test_bad_list(write, text, message):
    with pytest.raises(ValueError, match=message):
        label_names(write("labels.txt", text))
