"""Support tickets with wrong tags, for the tutorials
===================================================

Writes tickets.csv: generated tickets whose tags were entered in a hurry. A quarter of the tags is missing, and one in
twenty of the absent ones was added. The file true_tags.csv has the tags that the texts are about, to check results.

Run time: a second. Usage: python examples/tickets.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from ccmn import ClassConditionalNoise

SENTENCES = {
    "billing": [
        "The invoice shows a wrong amount.",
        "I was charged twice this month.",
        "My card was declined although it is valid.",
        "Please send the receipt for March.",
        "The price on the invoice is not the one I agreed to.",
    ],
    "login": [
        "My password is rejected.",
        "The account is locked after three attempts.",
        "I never receive the code to sign in.",
        "The reset link has expired.",
        "Signing in sends me back to the start page.",
    ],
    "speed": [
        "Every page takes ten seconds to load.",
        "The report runs into a timeout.",
        "Search has become very slow.",
        "The app freezes while it loads the list.",
        "Saving takes forever since yesterday.",
    ],
    "export": [
        "The export is empty.",
        "Columns are missing in the CSV file.",
        "I cannot open the downloaded spreadsheet.",
        "Dates are wrong in the exported file.",
        "The PDF has blank pages.",
    ],
    "mobile": [
        "It happens on my phone only.",
        "The buttons are too small on a tablet.",
        "The Android app closes by itself.",
        "Notifications do not arrive on my iPhone.",
        "The screen does not rotate.",
    ],
}
OTHER = [
    "Hello.",
    "Could you have a look, please?",
    "This is urgent for us.",
    "I have tried it in two browsers.",
    "We have used your product for two years.",
    "Thanks for your help.",
    "A colleague has the same problem.",
]
NOISE = ClassConditionalNoise(rho_pos=0.25, rho_neg=0.05, n_labels=len(SENTENCES), label_names=list(SENTENCES))


def make_tickets(n: int = 2000, random_state: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return tickets with the columns id, body and tags, and the true tags with the columns id and tags."""
    rng = np.random.default_rng(random_state)
    Y = (rng.random((n, len(SENTENCES))) < 0.25).astype(int)
    Y_noisy = NOISE.corrupt(Y, random_state=rng)
    tags = np.array(list(SENTENCES))
    bodies = []
    for row in Y:
        about = [str(rng.choice(SENTENCES[tag])) for tag in tags[row == 1]]
        about += [str(sentence) for sentence in rng.choice(OTHER, 2, replace=False)]
        about.append(f"We use version {rng.integers(1, 9)}.{rng.integers(99)} in team {rng.integers(100, 999)}.")
        bodies.append(" ".join(about[k] for k in rng.permutation(len(about))))
    ids = [f"T{k:04}" for k in range(n)]
    noisy, true = ([";".join(tags[row == 1]) for row in matrix] for matrix in (Y_noisy, Y))
    return pd.DataFrame({"id": ids, "body": bodies, "tags": noisy}), pd.DataFrame({"id": ids, "tags": true})


def write_tickets(folder: Path, n: int = 2000) -> None:
    """Write tickets.csv and true_tags.csv."""
    for name, table in zip(("tickets.csv", "true_tags.csv"), make_tickets(n)):
        table.to_csv(folder / name, index=False)


if __name__ == "__main__":
    write_tickets(Path(*sys.argv[1:2]))
