"""How the examples draw and write: one look for all figures, numbers beside them as CSV."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Okabe and Ito's colours, which colour-blind readers can tell apart.
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#666666"


def arguments(description: str | None) -> argparse.Namespace:
    """--out and --quick, the same for every example."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "docs" / "figures", metavar="DIR")
    parser.add_argument("--quick", action="store_true", help="a small version, to see that it runs")
    return parser.parse_args()


def pyplot() -> Any:
    """matplotlib.pyplot, set up to draw into files."""
    try:
        import matplotlib
    except ImportError:
        raise SystemExit(
            "this example draws with matplotlib, which is not installed: pip install 'ccmn[plots]'"
        ) from None
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
    """The figure as PNG and its numbers as CSV, into a folder made if need be."""
    out.mkdir(parents=True, exist_ok=True)
    figure.savefig(out / f"{name}.png")
    with (out / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"wrote {out / name}.png and .csv")
