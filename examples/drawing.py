"""Shared code of the examples: command-line options, figure style, output files."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Colors of the palette of Okabe and Ito, which color-blind readers can distinguish.
BLUE, ORANGE, GRAY = "#0072B2", "#D55E00", "#666666"


def arguments(description: str | None) -> argparse.Namespace:
    """Parse the options --out and --quick."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "docs" / "figures", metavar="DIR")
    parser.add_argument("--quick", action="store_true", help="run a small version as a test")
    return parser.parse_args()


def pyplot() -> Any:
    """Return matplotlib.pyplot, set up to draw into files."""
    try:
        import matplotlib
    except ImportError:
        raise SystemExit("this example requires matplotlib; install it with: pip install matplotlib") from None
    matplotlib.use("Agg")
    matplotlib.rcParams.update(
        {
            "font.size": 10,
            "axes.titlesize": 10,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.color": "#e6e6e6",
            "legend.frameon": False,
            "figure.dpi": 105,
        }
    )
    import matplotlib.pyplot as plt

    return plt


def save(figure: Any, rows: Sequence[dict[str, object]], out: Path, name: str) -> None:
    """Write the figure as PNG and its numbers as CSV; create the folder if necessary."""
    out.mkdir(parents=True, exist_ok=True)
    figure.savefig(out / f"{name}.png")
    with (out / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"wrote {out / name}.png and .csv")
