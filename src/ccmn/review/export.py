"""What was decided, as files: trusted rows, corrected labels and rates, each whole or not there at all."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ccmn.data.files import whole_file
from ccmn.data.npz import write_npz
from ccmn.estimation import NoiseRates
from ccmn.review.session import Session
from ccmn.review.store import Entry
from ccmn.review.trusted import corrected_labels, trusted_rows


def export(session: Session) -> list[Path]:
    """Write everything that was decided into the folder of the review, in place of what was written before.

    ``trusted.csv``: an answer a line. ``trusted.npz``: ``rows``, ``Y`` (NaN: not known) and ``random``, the rows
    that were drawn by lot and answered in full, which alone are fit for estimating rates. ``corrected.npz``: the data
    with the labels put right, for ``ccmn fit``. ``rates.json``: the rates by all that is known, for ``--noise``.
    ``review.json``: what is what.
    """
    folder, entries = session.folder, session.store.entries()
    sampled = set(session.store.sampled_rows())
    trusted = trusted_rows(entries, session.subject.data.q)
    corrected = corrected_labels(session.subject.given, trusted)
    files = [folder / name for name in ("trusted.csv", "trusted.npz", "corrected.npz", "rates.json", "review.json")]
    _write_csv(session, entries, sampled, files[0])
    with whole_file(files[1]) as stream:
        random = np.isin(trusted.rows, list(sampled))
        names = np.array(session.subject.label_names, dtype=str)
        np.savez_compressed(stream, allow_pickle=False, label_names=names, random=random, **trusted._asdict())
    write_npz(replace(session.subject.data, Y=corrected), files[2])
    _write_json(described(session.rates()), files[3])
    changed = int((corrected != session.subject.given)[~np.isnan(corrected)].sum())
    about = {**session.subject.facts, **session.store.progress(), "labels_changed": changed}
    _write_json({**about, "files": [path.name for path in files[:-1]]}, files[4])
    return files


def described(rates: NoiseRates) -> dict[str, Any]:
    """Rates as ``--noise FILE`` takes them: the noise model, and under "estimate" what else is known."""
    model = rates.noise.to_dict()
    same = ("rho_pos", "rho_neg", "label_names")
    return {**model, "estimate": {name: value for name, value in rates.to_dict().items() if name not in same}}


def _write_csv(session: Session, entries: list[Entry], sampled: set[int], path: Path) -> None:
    given, names = session.subject.given, session.subject.label_names
    with whole_file(path) as stream, io.TextIOWrapper(stream, encoding="utf-8", newline="") as text:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["row", "label", "given", "answer", "counts_for_rates"])
        for row, label, answer in entries:
            before = given[row, label]
            cell = "" if np.isnan(before) else int(before)
            writer.writerow([row, names[label], cell, answer, int(row in sampled)])


def _write_json(content: dict[str, Any], path: Path) -> None:
    with whole_file(path) as stream:
        stream.write(json.dumps(content, indent=2, ensure_ascii=False).encode() + b"\n")
