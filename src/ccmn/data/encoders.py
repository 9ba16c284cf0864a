"""Frozen encoders: images and texts become vectors, batch by batch, by networks of other libraries.

An encoder is a function from a list of images (``PIL.Image``) or texts to a tensor with one vector per item. It is
named as on the command line, for example "torchvision:resnet50".
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccmn._files import PathLike, atomic_write, check_file, fingerprint
from ccmn._pictures import parse_size
from ccmn._registry import Registry
from ccmn._validation import check_choice, check_count

ITEM_KINDS = ("image", "text")
"""Kinds of items that can be encoded."""
HEADS = ("fc", "classifier", "head", "heads")
"""Names of the last layer in the networks of torchvision; it is removed."""
BATCHES_PER_PART = 16
"""Batches that are computed between two writes of a resumable run."""

Encoder = Callable[[list[Any]], Any]


def load_encoder(name: str, kind: str, device: str = "cpu") -> Encoder:
    """Return the encoder of a name "LIBRARY:NAME", a function from a list of items to a tensor or array (items, e).

    Names are "torchvision:resnet50" (images), "transformers:NAME" (images or texts) and "sentence-transformers:NAME"
    (texts), where NAME may be a local folder, "pixels:16x16" (images), the colors of a small copy of the image, which
    needs no network, or "MODULE:FUNCTION": a function of your own with the arguments ``kind`` and ``device`` that
    returns an encoder. The kind is "image" or "text".

    >>> load_encoder("resnet50", "image")
    Traceback (most recent call last):
    ValueError: an encoder is named LIBRARY:NAME, such as torchvision:resnet50; got 'resnet50'
    """
    library, colon, model = name.partition(":")
    if not (library and colon and model):
        raise ValueError(f"an encoder is named LIBRARY:NAME, such as torchvision:resnet50; got {name!r}")
    check_choice(kind, "kind", ITEM_KINDS)
    if library in ENCODERS:
        try:
            return ENCODERS[library](model, kind, device)
        except ImportError as error:
            raise ImportError(
                f'{library} encoders require further packages: pip install "ccmn[encoders]" ({error})'
            ) from None
    folder = str(Path.cwd())
    added = folder not in sys.path
    if added:
        sys.path.insert(0, folder)  # as for python -m
    try:
        make = getattr(importlib.import_module(library), model, None)
    finally:
        if added:
            sys.path.remove(folder)
    if not callable(make):
        raise ValueError(f"module {library!r} has no function {model!r}")
    encoder: Encoder = make(kind=kind, device=device)
    return encoder


def _torchvision(model: str, kind: str, device: str) -> Encoder:
    """Return an image classifier without its last layer, with its published weights."""
    if kind != "image":
        raise ValueError(f"torchvision encodes images; got kind={kind!r}")
    import torch
    from torchvision import models

    weights = models.get_model_weights(model).DEFAULT
    network, prepare = models.get_model(model, weights=weights), weights.transforms()
    head = next((name for name in HEADS if hasattr(network, name)), None)
    if head is None:
        raise ValueError(f"torchvision:{model} is not a classifier with a layer named {', '.join(HEADS)}")
    setattr(network, head, torch.nn.Identity())
    network.eval().to(device)

    def encode(images: list[Any]) -> Any:
        with torch.inference_mode():
            return network(torch.stack([prepare(image) for image in images]).to(device)).flatten(1)

    return encode


def _pixels(model: str, kind: str, device: str) -> Encoder:
    """Return an encoder without a network: the colors of a small copy of the image, for a first try offline."""
    if kind != "image":
        raise ValueError(f"pixels encodes images; got kind={kind!r}")
    height, width = parse_size(model)[:2]

    def encode(images: list[Any]) -> Any:
        return np.array([np.asarray(image.resize((width, height)), np.float32).ravel() / 255 for image in images])

    return encode


def _transformers(model: str, kind: str, device: str) -> Encoder:
    """Return a transformer: the mean over the tokens of a text, or the pooled output of an image."""
    import torch
    import transformers

    network = transformers.AutoModel.from_pretrained(model).eval().to(device)
    if kind == "text":
        tokenizer = transformers.AutoTokenizer.from_pretrained(model)
        settings = {"padding": True, "truncation": True, "return_tensors": "pt"}
    else:
        processor = transformers.AutoImageProcessor.from_pretrained(model)

    def encode(items: list[Any]) -> Any:
        with torch.inference_mode():
            if kind == "text":
                inputs = tokenizer(items, **settings).to(device)
                states = network(**inputs).last_hidden_state
                mask = inputs["attention_mask"].unsqueeze(-1).to(states.dtype)
                return (states * mask).sum(1) / mask.sum(1).clamp_min(1)
            outputs = network(**processor(items, return_tensors="pt").to(device))
            pooled = getattr(outputs, "pooler_output", None)
            return (outputs.last_hidden_state.mean(1) if pooled is None else pooled).flatten(1)

    return encode


def _sentence_transformers(model: str, kind: str, device: str) -> Encoder:
    """Return a sentence encoder."""
    if kind != "text":
        raise ValueError(f"sentence-transformers encodes texts; got kind={kind!r}")
    from sentence_transformers import SentenceTransformer

    network = SentenceTransformer(model, device=device)
    return lambda texts: network.encode(texts, convert_to_numpy=True, show_progress_bar=False)


ENCODERS: Registry[Callable[[str, str, str], Encoder]] = Registry(
    "encoder",
    {
        "torchvision": _torchvision,
        "transformers": _transformers,
        "sentence-transformers": _sentence_transformers,
        "pixels": _pixels,
    },
)
"""Libraries of encoders by the first part of a name."""


def open_images(paths: Sequence[PathLike], folder: PathLike) -> Callable[[int], Any]:
    """Return a function that opens image i in RGB; relative paths are relative to ``folder``."""
    try:
        from PIL import Image
    except ImportError:
        raise ImportError('reading images requires pillow: pip install "ccmn[encoders]"') from None

    def open_image(i: int) -> Any:
        path = check_file(Path(folder) / paths[i])
        try:
            with Image.open(path) as image:
                return image.convert("RGB")
        except MemoryError:
            raise
        except Exception as error:  # damaged or hostile content can make the decoder fail in any way
            raise ValueError(f"row {i + 1}: {path} is not a readable image ({error})") from None

    return open_image


def encode_rows(
    encoder: Encoder,
    item: Callable[[int], Any],
    n: int,
    *,
    batch_size: int = 64,
    parts: PathLike | None = None,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> NDArray[np.float32]:
    """Return the vectors of n items, a float32 array (n, e).

    ``item(i)`` returns item i. ``parts`` is a folder for parts of the result: a further call with this folder continues
    after the last part. ``on_rows`` is called with the number of items that were encoded or read since the last call.

    >>> encode_rows(lambda texts: np.array([[len(text)] for text in texts]), ["a", "bcd"].__getitem__, 2)
    array([[1.],
           [3.]], dtype=float32)
    """
    size = check_count(batch_size, "batch_size") * BATCHES_PER_PART
    if parts is not None:
        Path(parts).mkdir(parents=True, exist_ok=True)
    blocks = []
    for start in range(0, n, size):
        rows = range(start, min(start + size, n))
        file = None if parts is None else Path(parts) / f"{start // size:06d}.npy"
        block = None if file is None else _read_part(file, len(rows))
        if block is not None:
            on_rows(len(rows))
        else:
            batches = [rows[first : first + batch_size] for first in range(0, len(rows), batch_size)]
            block = np.concatenate([_encode_batch(encoder, item, batch, on_rows) for batch in batches])
            if file is not None:
                with atomic_write(file) as stream:
                    np.save(stream, block)
        blocks.append(block)
    return np.concatenate(blocks) if blocks else np.empty((0, 0), np.float32)


def _read_part(file: Path, rows: int) -> NDArray[np.float32] | None:
    """Return the vectors in a file; None if it does not exist or is damaged, so that they are computed again."""
    if not file.is_file():  # a pipe would block
        return None
    try:
        block = np.load(file, mmap_mode="r", allow_pickle=False)  # never larger than the file
    except Exception:  # damaged content can make the parser fail in any way
        return None
    valid = block.ndim == 2 and len(block) == rows and block.dtype == np.float32 and np.isfinite(block).all()
    return np.array(block) if valid else None


def _encode_batch(
    encoder: Encoder, item: Callable[[int], Any], rows: Sequence[int], on_rows: Callable[[int], None]
) -> NDArray[np.float32]:
    """Return the vectors of some rows after a check of their shape and values."""
    vectors = encoder([item(i) for i in rows])
    array = np.asarray(vectors.float().cpu() if hasattr(vectors, "cpu") else vectors, dtype=np.float32)
    if array.ndim != 2 or len(array) != len(rows):
        raise ValueError(f"the encoder must return one vector per item, shape ({len(rows)}, e); got {array.shape}")
    if not np.isfinite(array).all():
        row = rows[int(np.flatnonzero(~np.isfinite(array).all(1))[0])]
        raise ValueError(f"row {row + 1}: the encoder returned NaN or infinity")
    on_rows(len(rows))
    return array


def parts_folder(out: PathLike, *identity: Any) -> Path:
    """Return the folder for the parts of a result file; it depends on the encoder and the items.

    >>> parts_folder("vectors.parquet", "resnet") == parts_folder("vectors.parquet", "vit")
    False
    """
    path = Path(out)
    return path.with_name(f"{path.name}.{fingerprint(*identity)}")


def remove_parts(folder: Path) -> None:
    """Delete the parts of a complete result, and nothing else in the folder."""
    for entry in os.scandir(folder):
        if re.fullmatch(r"\d{6}\.npy|\.\d{6}\.npy\.[0-9a-f]{8}", entry.name):
            os.unlink(entry.path)
    if not any(folder.iterdir()):
        shutil.rmtree(folder)
