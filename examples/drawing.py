"""Shared code of the examples: command-line options, figure style, output files."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# Places in the color cycle of the theme that is drawn.
BLUE, ORANGE, GRAY = "C0", "C1", "C2"

# The colors of the first theme are from the palette of Okabe and Ito, which color-blind readers can distinguish. Those
# of the second have a similar contrast to a dark page.
THEMES = {
    "": {"colors": ["#0072B2", "#D55E00", "#666666"], "text": "black", "page": "white", "grid": "#e6e6e6"},
    "-dark": {"colors": ["#56B4E9", "#F28E4B", "#A0A0A0"], "text": "#e0e0e0", "page": "#131416", "grid": "#333538"},
}
"""Themes by the end of the file name."""


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
            "legend.frameon": False,
            "figure.dpi": 105,
        }
    )
    import matplotlib.pyplot as plt

    return plt


def theme_parameters(colors: list[str], text: str, page: str, grid: str) -> dict[str, Any]:
    """Return the parameters of matplotlib for a theme."""
    from matplotlib import cycler

    foreground = ("text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color")
    return {
        "axes.prop_cycle": cycler(color=colors),
        "grid.color": grid,
        **dict.fromkeys(foreground, text),
        **dict.fromkeys(("figure.facecolor", "axes.facecolor"), page),
    }


def save(draw: Callable[[Any], Any], rows: Sequence[dict[str, object]], out: Path, name: str) -> None:
    """Draw the figure for light and dark pages (PNG) and write its numbers as CSV; create the folder if necessary."""
    plt = pyplot()
    out.mkdir(parents=True, exist_ok=True)
    for ending, theme in THEMES.items():
        with plt.rc_context(theme_parameters(**theme)):
            figure = draw(plt)
            figure.savefig(out / f"{name}{ending}.png")
            plt.close(figure)
    with (out / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"wrote {out / name}.png, -dark.png and .csv")
