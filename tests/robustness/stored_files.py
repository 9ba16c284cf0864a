"""Files of annotation tools, verified rows, other kinds of noise and models, embeddings, pictures and caches."""

from __future__ import annotations

import io
import json
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from robustness.campaign import Failure
from robustness.formats import ZIP, Format, table, unpack_zip, write

NAMES = ["sea", "sky"]
N_ROWS = 12


def _data() -> Any:
    from ccmn.data import MultiLabelData

    X, Y = table()
    return MultiLabelData(X, Y, label_names=NAMES, ids=[f"r{i}" for i in range(N_ROWS)])


# -- Annotation tools


def _argilla() -> bytes:
    """Return records of Argilla 2 with two users, one of whom has discarded a record."""

    def respond(user: int, value: list[str]) -> dict[str, Any]:
        return {"user_id": f"u{user}", "value": value, "status": "submitted" if user else "discarded"}

    sets = [["sea"], ["sea", "sky"], ["sky"]]
    records = [
        {
            "id": f"r{i}",
            "fields": {"text": f"red boat {i}"},
            "responses": {"labels": [respond(i % 3, sets[i % 3]), respond(1, sets[(i + 1) % 3])]},
        }
        for i in range(6)
    ]
    return json.dumps(records).encode()


def _argilla_1() -> bytes:
    rows = [
        {"inputs": {"text": f"blue boat {i}"}, "annotation": ["sea"], "annotation_agent": "a", "status": "Validated"}
        for i in range(4)
    ]
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def _doccano() -> bytes:
    rows = [{"id": i, "data": f"blue boat {i}", "label": [["sea"], ["sky"], []][i % 3]} for i in range(6)]
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def _label_studio_min() -> bytes:
    rows = [{"id": i, "text": f"boat {i}", "labels": {"choices": ["sea", "sky"]} if i % 2 else "sea"} for i in range(4)]
    return json.dumps(rows).encode()


def _parquet(columns: dict[str, Any], key: bytes, declared: Any) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    stream = io.BytesIO()
    pq.write_table(pa.table(columns).replace_schema_metadata({key: json.dumps(declared)}), stream)
    return stream.getvalue()


def _hugging_face() -> bytes:
    columns = {"text": [f"red boat {i}" for i in range(6)], "labels": [[0], [0, 1], [], [1], [0], [1]]}
    feature = {"feature": {"names": NAMES, "_type": "ClassLabel"}, "_type": "Sequence"}
    return _parquet(columns, b"huggingface", {"info": {"features": {"labels": feature}}})


def _embedded() -> bytes:
    """Return an output of ``ccmn embed``: vectors, tags and files, with declared roles."""
    from ccmn.data.column_roles import ColumnRoles
    from ccmn.data.parquet import ROLES_KEY

    columns = {
        "file": [f"{i}.png" for i in range(6)],
        "tags": ["sea", "sky", "sea;sky", "sea", "", "sky"],
        "e0": np.arange(6, dtype=np.float32),
        "e1": np.ones(6, np.float32) / 3,
    }
    return _parquet(columns, ROLES_KEY, ColumnRoles(tags="tags", image="file").to_dict())


def _unpack_parquet(content: bytes) -> dict[str, bytes]:
    import pyarrow.parquet as pq

    return {key.decode(): value for key, value in pq.read_schema(io.BytesIO(content)).metadata.items()}


def _pack_parquet(original: bytes, parts: dict[str, bytes]) -> bytes:
    import pyarrow.parquet as pq

    stream = io.BytesIO()
    pq.write_table(pq.read_table(io.BytesIO(original)).replace_schema_metadata(parts), stream)
    return stream.getvalue()


def _read_training_data(path: Path) -> Any:
    from ccmn.data.columns import Columns

    data = Columns.from_training_data(path)[1]
    if not np.isfinite(data.X.toarray() if hasattr(data.X, "toarray") else data.X).all():
        raise Failure("not finite", "features of an accepted table")


# -- Verified rows, and noise


def _trusted_npz() -> bytes:
    stream = io.BytesIO()
    rows = np.array([0, 3, 5])
    np.savez(stream, rows=rows, Y=table()[1][rows], random=np.array([True, True, False]), label_names=np.array(NAMES))
    return stream.getvalue()


def _answers() -> bytes:
    lines = [f"r{i},{i},{label},{'yes' if i % 2 else 'no'},{i % 2}" for i in range(4) for label in NAMES]
    return ("id,row,label,answer,counts_for_rates\n" + "\n".join(lines) + "\n").encode()


def _trusted_csv() -> bytes:
    return b"row,sea,sky\n0,1,0\n3,,1\n5,0,0\n"


def _read_trusted(path: Path) -> Any:
    from ccmn.data.trusted_files import read_trusted
    from ccmn.estimation.evidence import read_trusted as check

    rows, labels, random = read_trusted(path, _data())
    check((rows, labels), N_ROWS, len(NAMES))
    if random.shape != rows.shape or random.dtype != bool:
        raise Failure("misread", "rows of a random sample")


def _noise(kind: str) -> bytes:
    from ccmn.noise import ClassConditionalNoise, GroupedNoise, TransitionNoise

    members = [ClassConditionalNoise([0.1 * k, 0.2], [0.05, 0.1], label_names=NAMES) for k in range(3)]
    models: dict[str, Any] = {
        "groups": lambda: GroupedNoise(dict(zip("abc", members))),
        "transition": lambda: TransitionNoise([[0.9, 0.1], [0.2, 0.8]]),
    }
    return json.dumps(models[kind]().to_dict()).encode()


def _read_noise(path: Path) -> None:
    """Read a description of noise; the commands accept only kinds without further inputs per row."""
    from ccmn._files import prefix_errors
    from ccmn.app.rates_files import read_estimate
    from ccmn.noise import GroupedNoise

    if path.name == "transition.json":
        json.dumps(read_estimate(path).to_dict())
        return
    with prefix_errors(path):
        GroupedNoise.from_dict(json.loads(path.read_text("utf-8")))


# -- Models, folds, vectors and pictures


@cache
def _model(kind: str) -> bytes:
    """Return a default model, one with a hidden layer, or one with noise that depends on groups."""
    import tempfile

    import pandas as pd

    from ccmn import CCMNClassifier, CorrectedClassifier
    from ccmn.noise import GroupedNoise

    X = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    options: dict[str, Any] = {
        "mlp": {"model": "mlp", "epochs": 2, "lr": 0.1},
        "groups": {"loss": "hamming", "epochs": 2, "lr": 0.1},
    }
    noise = GroupedNoise.from_dict(json.loads(_noise("groups"))) if kind == "groups" else None
    groups = None if noise is None else list("abc" * 20)
    Y = pd.DataFrame((X[:, :2] > 0).astype(int), columns=NAMES)
    if kind == "corrected":
        classifier: Any = CorrectedClassifier(random_state=0).fit(X, Y)
    else:
        classifier = CCMNClassifier(noise, random_state=0, **options[kind]).fit(X, Y, groups=groups)
    with tempfile.TemporaryDirectory() as place:
        classifier.save(Path(place) / "m.ccmn")
        return (Path(place) / "m.ccmn").read_bytes()


def _read_model(path: Path) -> Any:
    from ccmn import load_model

    with np.errstate(all="ignore"):
        loaded = load_model(path)
        if not np.isfinite(loaded.decision_function(table()[0])).all():
            raise Failure("not finite", "predictions of an accepted model")
        proba = loaded.predict_proba(table()[0])
    if not ((proba >= 0) & (proba <= 1)).all():
        raise Failure("not finite", "probabilities of an accepted model")


def _unpacked(path: Path, name: str) -> Path:
    """Return a new folder with the parts that the container of a case holds."""
    folder = path.parent / name
    folder.mkdir()
    for part, content in unpack_zip(path.read_bytes()).items():
        write(folder, part, content)
    return folder


def _cross_fit(folder: Path) -> Any:
    import torch

    from ccmn import cross_fit_proba

    X, Y = table()
    torch.manual_seed(0)
    layer = torch.nn.Linear(4, 2)
    return cross_fit_proba(lambda: layer, X, Y, n_folds=2, epochs=1, device="cpu", checkpoint=folder)


@cache
def _fold() -> bytes:
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        _cross_fit(Path(place))
        return (Path(place) / "fold-0.safetensors").read_bytes()


def _read_fold(path: Path) -> Any:
    result = _cross_fit(path.parent)
    if (
        not ((result.pred_proba >= 0) & (result.pred_proba <= 1)).all()
        or not np.isfinite(result.embeddings if result.embeddings is not None else 0).all()
    ):
        raise Failure("not finite", "results of an accepted fold")


def _photo() -> bytes:
    from ccmn._pictures import encode_png

    return encode_png(np.arange(8 * 8 * 3, dtype=np.uint8).reshape(8, 8, 3))


def _read_photo(path: Path) -> Any:
    from ccmn.app.report.instances import image_files
    from ccmn.data.encoders import encode_rows, load_encoder, open_images

    image_files([path.name], path.parent)(0, 0)
    return encode_rows(load_encoder("pixels:4x4", "image"), open_images([path.name], path.parent), 1)


FORMATS = (
    Format("argilla.json", _argilla, _read_training_data),
    Format("argilla.jsonl", _argilla_1, _read_training_data),
    Format("doccano.jsonl", _doccano, _read_training_data),
    Format("min.json", _label_studio_min, _read_training_data),
    Format(
        "rows.parquet",
        _hugging_face,
        _read_training_data,
        None,
        (_unpack_parquet, lambda parts: _pack_parquet(_hugging_face(), parts)),
    ),
    Format(
        "vectors.parquet",
        _embedded,
        _read_training_data,
        None,
        (_unpack_parquet, lambda parts: _pack_parquet(_embedded(), parts)),
    ),
    Format("trusted.npz", _trusted_npz, _read_trusted, None, ZIP),
    Format("trusted.csv", _trusted_csv, _read_trusted),
    Format("answers.csv", _answers, _read_trusted),
    Format("groups.json", partial(_noise, "groups"), _read_noise),
    Format("transition.json", partial(_noise, "transition"), _read_noise),
    Format("corrected.ccmn", partial(_model, "corrected"), _read_model, None, ZIP),
    Format("mlp.ccmn", partial(_model, "mlp"), _read_model, None, ZIP),
    Format("groups.ccmn", partial(_model, "groups"), _read_model, None, ZIP),
    Format("fold-0.safetensors", _fold, _read_fold),
    Format("photo.png", _photo, _read_photo),
)
