"""Training on Parquet shards that exceed the memory limit: growth of memory and rows per second.

    python benchmarks/streaming.py            (2 GB of shards on disk, memory limit 500 MB)
    python benchmarks/streaming.py --quick    (200 MB, memory limit 50 MB)

The baseline reads the same shards batch by batch with the scanner of pyarrow and does not train: a lower bound of the
time. Growth is the peak of resident memory minus the resident memory after a first, small fit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from harness import Result, parser, report

D, Q = 200, 50

CODE = """
import json, sys, time
from pathlib import Path
import numpy as np, pyarrow as pa, pyarrow.dataset as ds, pyarrow.parquet as pq
from ccmn import CCMNClassifier, ClassConditionalNoise
folder, files, memory, d, q = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
def write(folder, files, rows):
    folder.mkdir()
    rng = np.random.default_rng(0)
    for i in range(files):
        x = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(rows * d, dtype=np.float32)), d)
        y = pa.FixedSizeListArray.from_arrays(pa.array((rng.random(rows * q) < 0.2).astype(np.uint8)), q)
        pq.write_table(pa.table({"x": x, "y": y}), folder / f"{i:03}.parquet", row_group_size=8192,
                       use_dictionary=False)
def fit(folder):
    noise = ClassConditionalNoise(0.1, 0.1, n_labels=q)
    clf = CCMNClassifier(noise, loss="hamming", surrogate="logistic", lr=1e-3, epochs=1, random_state=0)
    clf.fit_stream(folder, labels=["y"], memory=memory)
def status(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith(key))
write(folder / "small", 1, 3000)
fit(folder / "small")
write(folder / "large", files, 32768)
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
before, start = status("VmRSS"), time.perf_counter()
fit(folder / "large")
seconds, growth = time.perf_counter() - start, status("VmHWM") - before
start = time.perf_counter()
scanner = ds.dataset(folder / "large").scanner(batch_size=8192, batch_readahead=2, fragment_readahead=1)
for batch in scanner.to_batches():
    x, y = (batch.column(i).flatten().to_numpy().reshape(len(batch), -1) for i in (0, 1))
reading = time.perf_counter() - start
size = sum(file.stat().st_size for file in (folder / "large").iterdir()) / 2**20
print(json.dumps({"size": size, "growth": growth, "seconds": seconds, "reading": reading, "rows": files * 32768}))
"""


def main() -> None:
    options = parser(__doc__.splitlines()[0]).parse_args()
    files, memory = (8, "50MB") if options.quick else (80, "500MB")
    with tempfile.TemporaryDirectory() as folder:
        arguments = [str(Path(folder)), str(files), memory, str(D), str(Q)]
        environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
        done = subprocess.run(
            [sys.executable, "-c", CODE, *arguments], capture_output=True, text=True, check=True, env=environment
        )
    found = json.loads(done.stdout)
    name = f"one epoch, {found['rows']} rows x ({D} features, {Q} labels)"
    ratio = found["reading"] / found["seconds"]
    notes = {
        "shards, MB": round(found["size"]),
        "memory limit": memory,
        "growth of memory, MB": round(found["growth"]),
        "rows/s, including sampling and validation": round(found["rows"] / found["seconds"]),
    }
    report([Result(name, found["seconds"], "reading only", found["reading"], ratio)], notes, options.json)


if __name__ == "__main__":
    main()
