"""Fixtures of the data tests: real files, if available, and small synthetic ones."""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import scipy.io
from numpy.testing import assert_array_equal

from ccmn.data import MultiLabelData
from data.samples import dense


@pytest.fixture(scope="session")
def original(real_data: Path) -> Path:
    """Folder of the source files of these datasets."""
    return real_data / "original"


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, Any], Path]:
    r"""Write a small file of a text, of bytes, or of arrays: ``write("data.csv", "a,b\n1,0\n")``."""

    def writer(name: str, content: Any) -> Path:
        path = tmp_path / name
        if isinstance(content, dict):
            arrays = {
                ".npz": lambda: np.savez(path, **content),
                ".mat": lambda: scipy.io.savemat(path, content),
                ".parquet": lambda: pyarrow.parquet.write_table(pyarrow.table(content), path),
            }
            arrays[path.suffix]()
        else:
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return writer


class QuietHandler(SimpleHTTPRequestHandler):
    """Handler that serves files and logs nothing."""

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """Folder and the local address under which its files are served."""
    folder = tmp_path / "served"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def same() -> Callable[[MultiLabelData, MultiLabelData], None]:
    """Assert that two datasets contain the same matrices, sparse or dense."""

    def check(found: MultiLabelData, expected: MultiLabelData) -> None:
        assert_array_equal(dense(found.X), dense(expected.X))
        assert_array_equal(dense(found.Y), dense(expected.Y))
        assert (found.candidates is None) == (expected.candidates is None)
        if found.candidates is not None:
            assert_array_equal(dense(found.candidates), dense(expected.candidates))

    return check


@pytest.fixture
def small() -> MultiLabelData:
    """Three rows, two features, two labels."""
    return MultiLabelData(
        X=np.array([[0.1, 0], [0, -2.5], [1e-7, 0]], dtype=np.float32),
        Y=[[1, 0], [0, 0], [1, 1]],
        feature_names=["length", "width"],
        label_names=["sea", "sky"],
        name="small",
    )
