"""Helpers of several test modules: processes without optional libraries, and scripts loaded as modules."""

import hashlib
import importlib.util
import inspect
import json
import os
import subprocess
import sys
import zipfile
from math import inf
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors.numpy import load, save
from torch.utils._python_dispatch import TorchDispatchMode

import ccmn

ROOT = Path(__file__).parents[1]

_REJECT = """
import sys
class Reject:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"pandas", "typer", "rich", "matplotlib", "pyarrow", "pooch"}:
            raise ImportError(f"{name} is not available")
sys.meta_path.insert(0, Reject())
"""


def run_bare(code: str, *arguments: str) -> str:
    """Return what the code prints; optional libraries cannot be imported in its process."""
    command = [sys.executable, "-c", _REJECT + code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def sklearn_checks(estimators: list[Any], expected_failures: dict[str, str]) -> Any:
    """Parametrize a test by the estimator checks of scikit-learn; an expected failure that passes fails.

    Before version 1.8, scikit-learn cannot report expected failures that pass, and uses labels such as 1 and 2.
    """
    from sklearn.utils import estimator_checks

    strict = "xfail_strict" in inspect.signature(estimator_checks.parametrize_with_checks).parameters
    options = {"xfail_strict": True} if strict else {}
    if not strict:
        original = estimator_checks._enforce_estimator_tags_y

        def zero_one(estimator: Any, y: Any) -> Any:
            found = original(estimator, y)
            return (y > y.min()).astype(y.dtype).reshape(found.shape) if (abs(y) < inf).all() else found

        estimator_checks._enforce_estimator_tags_y = zero_one
    return estimator_checks.parametrize_with_checks(
        estimators, expected_failed_checks=lambda _: expected_failures, **options
    )


def load_script(path: str) -> ModuleType:
    """Return the script at a path below the repository root as a module, without changing ``sys.path``."""
    name = Path(path).stem
    spec = importlib.util.spec_from_file_location(name, ROOT / path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up their module
    spec.loader.exec_module(module)
    return module


_PEAK = """
def peak(call):
    def status(key):
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) / 1024 for line in file if line.startswith(key))
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = status("VmRSS")
    call()
    return status("VmHWM") - before
"""


def run_measured(code: str, *arguments: str) -> str:
    """Return what the code prints; it can call ``peak(f)`` for the largest growth of memory during f(), in MB.

    Large blocks are returned to the system at once, so that only used memory is counted.
    """
    command = [sys.executable, "-c", _PEAK + code, *arguments]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "1000000"}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout


class ReviewProcess:
    """``ccmn review`` in a process of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(Path(ccmn.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "ccmn", "review", *arguments, "--json"]
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True, "env": environment}
        self.process = subprocess.Popen(command, cwd=folder, **options)
        self.url = json.loads(self.process.stdout.readline())["url"]

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


class Largest(TorchDispatchMode):
    """Dispatch mode that records the largest number of entries of any tensor that an operation returns."""

    entries = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        tensors = result if isinstance(result, (tuple, list)) else (result,)
        self.entries = max([self.entries, *(t.numel() for t in tensors if isinstance(t, torch.Tensor))])
        return result


ONE_COLUMN = "multilabel only: the check expects a 1-d answer to a target of one column"
TWO_VALUES = "labels are 0/1: the check's one column holds 1 and 2"
LABELS_ONLY = {
    "check_classifiers_classes": "multilabel only: the check fits a 1-d target",
    "check_decision_proba_consistency": "multilabel only: the check fits a 1-d target",
    "check_classifiers_train": ONE_COLUMN,
    "check_estimator_sparse_array": ONE_COLUMN,
    "check_estimator_sparse_matrix": ONE_COLUMN,
    "check_estimators_dtypes": TWO_VALUES,
    "check_classifier_data_not_an_array": TWO_VALUES,
    "check_fit2d_1feature": TWO_VALUES,
    "check_sample_weights_pandas_series": TWO_VALUES,
    "check_sample_weights_not_an_array": TWO_VALUES,
    "check_sample_weights_shape": TWO_VALUES,
    "check_sample_weights_not_overwritten": TWO_VALUES,
    "check_sample_weight_equivalence_on_dense_data": TWO_VALUES,
    "check_sample_weight_equivalence_on_sparse_data": TWO_VALUES,
}
"""Checks of scikit-learn that classifiers of label matrices do not pass, with the reason."""


def slope_of(phi, t):
    """Return the derivative of a surrogate."""
    leaf = t.detach().requires_grad_()
    return torch.autograd.grad(phi(leaf).sum(), leaf)[0]


def rewrite_model(path: Path, change: Any) -> None:
    """Change description and weights of a saved model, and write it again with valid checksums."""
    with zipfile.ZipFile(path) as archive:
        description, arrays = json.loads(archive.read("model.json")), load(archive.read("weights.safetensors"))
    change(description, arrays)
    write_parts(path, {"model.json": json.dumps(description).encode(), "weights.safetensors": save(arrays)})


def write_parts(path: Path, parts: dict[str, bytes]) -> None:
    """Write the parts of a model with their checksums."""
    checks = {name: hashlib.sha256(content).hexdigest() for name, content in parts.items()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**parts, "checksums.json": json.dumps(checks).encode()}.items():
            archive.writestr(name, content)
