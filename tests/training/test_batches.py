"""Features in memory, from which batches are gathered."""

from __future__ import annotations

import subprocess
import sys


def test_features_that_cannot_be_written_to_are_taken_without_a_word():
    # In a process of its own: torch speaks of it once in the life of a process.
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
