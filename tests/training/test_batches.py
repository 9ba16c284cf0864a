"""Features from which batches are gathered."""

from __future__ import annotations

import subprocess
import sys


def test_no_warning_for_read_only_features():
    # In a separate process, because torch warns only once per process.
    code = """
import warnings
import numpy as np
from ccmn.training.batches import Features
warnings.simplefilter("error")
X = np.arange(6, dtype=np.float32).reshape(3, 2)
X.flags.writeable = False
import torch
print(Features(X).gather(torch.tensor([[2, 0]])).tolist())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[[[4.0, 5.0], [0.0, 1.0]]]"
