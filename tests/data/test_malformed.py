"""Malformed files and selections of labels: the error names the file, the line and the reason."""

from pathlib import Path

import numpy as np
import pytest

from ccmn.data import read_file, write_file

pa = pytest.importorskip("pyarrow")

X, Y = np.float32([[0.1, 0], [0, -2.5], [0, 0]]), np.array([[1, 0], [0, 0], [1, 1]])
ARFF = "@relation x\n@attribute a numeric\n@attribute sea {0,1}\n"
CSR = {
    "X_data": np.ones(1, np.float32),
    "X_indices": np.zeros(1, np.int32),
    "X_indptr": np.array([0, 1, 1, 1], np.int32),
    "X_shape": np.array([3, 2]),
    "Y": Y,
}
NPZ, MAT = {"X": X, "Y": Y}, {"data": X, "target": Y.T}


class Trap:
    """Object whose unpickling would raise SystemExit."""

    def __reduce__(self):
        return (exit, (3,))


FILES = {
    "data.csv": [
        ("a,sea\n1,0\nred,1\n", r"line 3: 'red' in column 'a' is not a number.*TablePreprocessor"),
        ("0.5,1,0\n1.5,0,1\n", r"the first line contains numbers, 0\.5, 1, 0 \.\.\., instead of column names"),
        ("a,a,b,b\n", r"'a' occurs more than once \(and 1 others\)"),
        ("a,sea\n1,maybe\n", "line 2: 'maybe' in column 'sea' is not a number"),
        ("a,sea\n1,0\n\n2,2\n", "line 4: 2 in column 'sea'; a label must be 0, 1 or missing"),
        ("a,sea\n1,0\n1\n", "line 3: 1 values, but there are 2 columns"),
        ("a,sea\ninf,0\n", r"line 2: infinite \(or too large\) value in column 'a'"),
        ("a,sea\n1,0\n1e39,0\n", "line 3: infinite"),
        (",a,sea\n7,2,0\n", "column 1 is named ''.*index=False"),
        ('a,sea\n"1,0\n', "line 2: not a valid CSV row"),
        ("a,sea\n1_0,1\n", "1_0"),  # Python reads 1_0 as 10
        ("", "the file is empty"),
        ("a,sea\n", "has no rows of data"),
        ("a,sky\n1,0\n", "there is no label column"),
    ],
    "data.arff": [
        (f"{ARFF}@data\n1,0\nred,0\n", "line 6: 'red' in column 'a' is not a number"),
        (f"{ARFF}@data\n1,0\n1\n", "line 6: 1 values, but there are 2 columns"),
        (f"{ARFF}@data\n1,2\n", r"line 5: 2 in column 'sea'; its values are declared as \{0,1\}"),
        (ARFF.replace("{0,1}", "numeric") + "@data\n1,0\n1,7\n", "line 6: 7 in column 'sea'; a label must be 0, 1"),
        (f"{ARFF}@data\n1e99,0\n", "line 5: infinite"),
        (f"{ARFF}@data\n1_0,1\n", "1_0"),
        (f"{ARFF}@data\n1,0\n{{0 1}}\n", "line 6: a sparse row, in braces, among dense rows"),
        (f"{ARFF}@data\n{{0 1}}\n1,0\n", "line 6: a row of a sparse file must be in braces"),
        (f"{ARFF}@data\n{{0 1, 1 1\n", "line 5: .*is the file incomplete"),
        (f"{ARFF}@data\n{{0 1}}\n{{2 1}}\n", "line 6: attribute 2 is out of range: there are 2"),
        (f"{ARFF}@data\n{{-1 1}}\n", "line 5: '-1 1' is not an attribute number"),
        (f"{ARFF}@data\n{{0 1, 0 2}}\n", r"line 5: column 0 \(from 0\) is given twice"),
        (f"{ARFF}@data\n{{{'9' * 5000} 1}}\n", "line 5: attribute 9999.* is out of range"),
        (ARFF.replace("{0,1}", "{1,0}") + "@data\n{0 1}\n", "line 3: in a sparse file an omitted value is the first"),
        (ARFF, "has no @data line: it is incomplete"),
        (f"{ARFF}@data\n", "has no rows after @data"),
        ("a,sea\n1,0\n", "line 1: expected @relation"),
        ("@relation x\n@attribute a\n@data\n1\n", "line 2: attribute 'a' is declared as nothing"),
        ("@relation x\n@attribute a string\n@data\n1\n", "line 2: attribute 'a' is declared as string, not as numbers"),
        ("@relation x\n@attribute a {0,1_0}\n", "1_0"),
        (f"{ARFF}@attribute a real\n@data\n1,0,1\n", "'a' occurs more than once; column names must be unique"),
        (ARFF.replace("sea", "see") + "@data\n1,0\n", "there is no label column '.*'; did you mean 'see'"),
    ],
    "data.svm": [
        ("0 1:1\n0 1:x\n", "line 2: '1:x' is not feature:value"),
        ("0 1:1\n0 0:1\n", "line 2: feature 0 is out of range; features are numbered from 1"),
        ("0 9999999999:1\n", "line 1: feature 9999999999 is out of range"),
        ("0 1:1 1:2\n", "line 1: feature 1 is given twice"),
        ("0,0 1:1\n", "line 1: a label of '0,0' is given twice"),
        ("-1 1:1\n", "line 1: '-1' is not a label number"),
        ("0 1:1_0\n", "1_0"),
        ("1500 103 14\n0 1:1\n", "line 1: '103' is not feature:value.*is this line a header"),
        ("0 1:1\n0 2:1e39\n", r"line 2: feature 2 is infinite \(or too large\)"),
        ("# nothing\n", "has no rows"),
    ],
    "data.parquet": [
        ({"a": ["red"], "sea": [0]}, "row 1: 'red' in column 'a' is not a number.*TablePreprocessor"),
        ({"a": [[1.0]], "sea": [0]}, r"row 1: '\[1\.?\]' in column 'a' is not a number"),
        ({"a": pa.array([0], pa.timestamp("s")), "sea": [0]}, "row 1: '1970-01-01 00:00:00' in column 'a'"),
        ({"a": [1.0, 2.0], "sea": [0, 3]}, "row 2: 3 in column 'sea'"),
        ({"a": [np.inf], "sea": [0]}, "row 1: infinite"),
        ({"__index_level_0__": [5], "sea": [0]}, "index=False"),
        ({"a": pa.array([], pa.float32()), "sea": pa.array([], pa.int8())}, "has no rows"),
    ],
    "data.npz": [
        ({}, "the arrays 'X' and 'Y' are missing; found nothing"),
        (NPZ | {"Y": np.array([[Trap()]], dtype=object)}, "not a complete NPZ file of plain arrays"),
        (NPZ | {"label_names": np.array(7)}, "one name per label"),
        (NPZ | {"label_names": np.array([0x110000], np.uint32).view("U1")}, "not a complete NPZ file of plain arrays"),
        ({"X_data": np.ones(1), "Y": Y}, "the sparse matrix X lacks X_indices, X_indptr, X_shape"),
        (CSR | {"X_indices": np.array([9], np.int32)}, "indices|index"),
        (CSR | {"X_indptr": np.array([0, 1], np.int32)}, "the parts of the sparse matrix X"),
        (CSR | {"X_indptr": np.array([0, 3, 1, 1], np.int32)}, "ind"),
        (CSR | {"X_indptr": np.array([0, 1, 1, 0], np.int32)}, "indptr decreases"),
        (CSR | {"X_shape": np.array(3)}, "sparse matrix X|Y must|X must"),
        (CSR | {"X_shape": np.array(["a", "b"])}, "must have whole numbers"),
        (CSR | {"X_data": np.array(["a"])}, "X must contain numbers|sparse matrix X"),
    ],
    "data.mat": [
        ({"data": X}, "the variable 'target' is missing; expected .* found data"),
        (
            MAT | {"target": np.zeros((3, 2))},
            r"target must be q x n with n = 3.*row per sample: save target' instead",
        ),
        (MAT | {"target": np.zeros((2, 4))}, r"target must be q x n with n = 3, the rows of data; got \(2, 4\)"),
        (MAT | {"target": np.array([[1, 0, -1], [0, 0, 0]])}, r"0 and 1 only, or -1 and \+1 only; got \[-1, 0, 1\]"),
        (MAT | {"data": np.array([["a", "b"]] * 3, dtype=object)}, "data must be a matrix of numbers; got object"),
        (MAT | {"data": np.ones((3, 2, 2))}, "data must be a matrix; got shape"),
        (MAT | {"partial_labels": np.ones((2, 4))}, "partial_labels must be q x n"),
        (b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM\x89HDF\r\n\x1a\n", r"version 7\.3 .*-v7"),
    ],
    "data.json": [
        ("{", "not JSON"),
        ("3", "expected a list of objects"),
        ("[" * 100_000, "nested too deeply"),
        ('[{"data": {"text": "a"}, "annotations": []}]', "no annotation with a choice"),
        ('[{"data": {"text": "a"}, "annotations": [3]}]', "structure of a known tool"),
        ('[{"responses": [1], "fields": {}}]', "structure of a known tool"),
        ('[{"text": "a", "meta": {"x": 1}}]', "'meta' contains objects"),
    ],
    "data.jsonl": [
        ('{"text": "a"}\n{', "line 2"),
        ('{"text": "a", "labels": ["\\ud800"]}', "half of a character"),
        ('{"text": "a", "labels": [1' + "0" * 5000 + "]}", "digits"),
        ('{"age": 1' + "0" * 400 + ', "labels": ["x"]}\n{"age": 2, "labels": []}\n', "too large"),
    ],
}


@pytest.mark.parametrize(
    ("name", "content", "message"), [(name, *case) for name, cases in FILES.items() for case in cases]
)
def test_malformed(write, name, content, message):
    path = write(name, content)
    with pytest.raises(ValueError, match=message) as caught:
        read_file(path, ["sea"] if path.suffix in (".csv", ".arff", ".parquet") else None)
    assert str(path) in str(caught.value)


def test_damaged_footer_of_parquet_is_reported_in_one_line(write):
    path = write("data.parquet", {"a": [1.0], "sea": [0]})
    content = bytearray(path.read_bytes())
    content[-60:-8] = b"\xff" * 52
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is not a complete Parquet file") as caught:
        read_file(path, -1)
    assert "\n" not in str(caught.value)


# -- Selections of labels

XML = '<labels xmlns="http://mulan.sourceforge.net/labels"><label name="label_sky"/><label name="age"></label></labels>'
ENTITIES = """<?xml version="1.0"?>
<!DOCTYPE labels [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>
<labels><label name="&b;"/></labels>"""
EXTERNAL = """<!DOCTYPE labels [<!ENTITY x SYSTEM "file:///etc/passwd">]><labels><label name="a"/>&x;</labels>"""


@pytest.fixture
def columns(write):
    """CSV file with the columns age, label_sea, label_sky and size."""
    return write("data.csv", "age,label_sea,label_sky,size\n1,0,1,0\n0,0,0,1\n")


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["label_sky", "age"], ("age", "label_sky")),  # the order of the file, not of the list
        ([], ()),
        ("size", ("size",)),
        ("label_*", ("label_sea", "label_sky")),
        (2, ("age", "label_sea")),
        (-1, ("size",)),
        (np.int64(-4), ("age", "label_sea", "label_sky", "size")),
        (("labels.xml", XML), ("age", "label_sky")),
        (("labels.txt", "label_sky\nage\n\n"), ("age", "label_sky")),
    ],
)
def test_labels(columns, write, labels, names):
    labels = str(write(*labels)) if isinstance(labels, tuple) else labels
    assert read_file(columns, labels).label_names == names


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (None, "specify which columns are labels"),
        (["label_see"], "no label column '.*'; did you mean 'label_sea'"),
        (["xyz"], "no label column '.*'; the columns are 'age', 'label_sea'"),
        ("tag_*", r"no column matches labels='tag_\*'"),
        (0, "labels=0 must count columns"),
        (-5, "there are 4"),
        (2.5, "labels must be names, a pattern, a count or a file; got 2.5"),
        (Path("names.doc"), "ends in .xml"),
        (("labels.xml", ENTITIES), "labels.xml declares a document type"),
        (("labels.xml", EXTERNAL), "declares a document type"),
        (("labels.xml", '<labels>\n<label name="a">\n</labels>'), "labels.xml, line 3: not valid XML"),
        (("labels.xml", "<labels/>"), "contains no label name"),
        (("labels.xml", "<labels>\n<label/></labels>"), "line 2: this label has no name"),
        (("labels.xml", '<labels><label name="a"/><label name="a"/></labels>'), "'a' occurs more than once"),
        (("labels.xml", '<?xml version="1.0" encoding="klingon"?><labels/>'), "not valid XML"),
        (("labels.txt", "a\n\nb\n"), "labels.txt, line 2 is blank"),
    ],
)
def test_rejected_labels(columns, write, labels, message):
    labels = write(*labels) if isinstance(labels, tuple) else labels
    with pytest.raises(ValueError, match=message):
        read_file(columns, labels)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (1, "number 1 .from 0., but labels is 1"),
        (["sea"], "but labels is 1"),
        (0, "labels must be an integer of at least 1"),
        ("label_*", "a file of label names ends in .xml"),
    ],
)
def test_rejected_labels_of_libsvm(write, labels, message):
    with pytest.raises(ValueError, match=message):
        read_file(write("data.txt", "0,1 1:0.5\n"), labels)


def test_failed_writes(small, write):
    from dataclasses import replace

    path = write("data.csv", "old content")
    with pytest.raises(ValueError, match="together: the column name 'sea' occurs more than once; column names"):
        write_file(replace(small, feature_names=["sea", "b"]), path)
    with pytest.raises(ValueError, match=r"write an .npz file"):
        write_file(replace(small, candidates=small.Y), path)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        write_file(small, path.parent / "nowhere" / "data.csv")
    assert path.read_text() == "old content"
    assert list(path.parent.iterdir()) == [path]
