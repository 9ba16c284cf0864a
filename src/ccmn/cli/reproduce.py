"""``ccmn reproduce`` and ``ccmn report``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ccmn.cli.options import DataDir, Force, Json, Seed, check_device, check_free
from ccmn.cli.output import print_json, show

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from ccmn.experiments.runner import GroupFinished
    from ccmn.experiments.summary import Summary

_ALL = "all"


def _tables(value: str) -> str:
    from ccmn.experiments.paper_tables import TABLES

    if value != _ALL and value not in TABLES:
        raise typer.BadParameter(f"{value!r} is none of {', '.join((*TABLES, _ALL))}")
    return value


def _engine(value: str) -> str:
    from ccmn.experiments.runner import ENGINES

    if value not in ENGINES:
        raise typer.BadParameter(f"{value!r} is none of {', '.join(ENGINES)}")
    return value


def reproduce(
    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE",
            callback=_tables,
            help="table1 | table2 | table3 | journal1 | journal2, or all: the first three.",
            show_default=False,
        ),
    ],
    datasets: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DATA", help="This data set or data file alone; repeat it for several. 'digits' is bundled."
        ),
    ] = None,
    methods: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="This method alone; repeat it for several.")
    ] = None,
    protocol: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="literal | moderate (tables 1, 2), injected | real (table 3); default: all."),
    ] = None,
    store: Annotated[Path, typer.Option(metavar="FILE", help="Where results are kept, and taken up again.")] = Path(
        "results.db"
    ),
    engine: Annotated[
        str, typer.Option(metavar="NAME", callback=_engine, help="Where it runs: local | ray.")
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="The Ray cluster to run on (ray engine); else one is started here."),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, metavar="N", help="Processes at once (local engine).")] = 1,
    device: Annotated[
        str, typer.Option(metavar="NAME", callback=check_device, help="cpu | cuda | auto: a GPU if there is one.")
    ] = "auto",
    small: Annotated[
        bool, typer.Option("--small", help="Two repeats of ten epochs on bundled digits: a minute on a laptop.")
    ] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run cells again that failed before.")] = False,
    seed: Seed = 0,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Run a table of the paper: what is in the store already is not run again.

    Stop it at any moment, with Ctrl-C or worse, and start it again: it goes on where it was. Data sets that are not
    at hand are left out, and named.

    Examples: ccmn reproduce table1 --datasets yeast --protocol moderate, or ccmn reproduce table1 --small
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    from ccmn.cli.output import error_console
    from ccmn.experiments.result_store import ResultStore
    from ccmn.experiments.runner import prepare
    from ccmn.experiments.runner import run_table as run
    from ccmn.experiments.summary import summarize

    chosen = ["table1", "table2", "table3"] if table == _ALL else [table]
    found = prepare(chosen, datasets=datasets, protocols=protocol, data_dir=data_dir, small=small, random_state=seed)
    for name, reason in found.absent.items():
        typer.echo(f"ccmn: note: {name} is left out: {reason}", err=True)
    console = error_console()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with (
        ResultStore(store) as results,
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress,
    ):
        task = progress.add_task(chosen[0], total=None)
        run(
            found.columns,
            results,
            methods=methods,
            engine=engine,
            device=_device(device),
            jobs=jobs,
            address=address,
            retry_failed=retry_failed,
            callback=lambda done: _advance(progress, task, done),
        )
        _print(summarize(results.results()), as_json)
    typer.echo(f"results are in {store}; ccmn report {store} --out report.html makes a page of them", err=True)


def report(
    source: Annotated[
        Path,
        typer.Argument(metavar="RESULTS", help="A file that ccmn reproduce wrote, or a .csv that ccmn report wrote."),
    ],
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="A page of everything (.html).")] = None,
    latex: Annotated[Path | None, typer.Option(metavar="FILE", help="The tables as LaTeX (.tex).")] = None,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Every value, one a line (.csv).")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """What stored results come to: tables here, one self-contained page, LaTeX, CSV.

    Example: ccmn report results.db --out report.html --csv cells.csv
    """
    from ccmn._files import check_file
    from ccmn.experiments.result_store import ResultStore, read_cells, write_cells
    from ccmn.experiments.summary import summarize
    from ccmn.report.results_tables import latex_tables, results_page

    check_file(source)
    wanted = [path for path in (out, latex, csv) if path is not None]
    for path in wanted:
        check_free(path, force)
    if source.suffix == ".csv":
        found = read_cells(source)
    else:
        with ResultStore(source) as results:
            found = list(results.results())
    if not found:
        raise ValueError(f"{source} holds no results yet: ccmn reproduce fills it")
    summaries = summarize(found)
    if csv is not None:
        write_cells(found, csv)
    if latex is not None:
        _write(latex, latex_tables(summaries))
    if out is not None:
        _write(out, results_page(summaries, found))
    _print(summaries, as_json)
    for path in wanted:
        typer.echo(f"wrote {path}", err=True)


def _write(path: Path, text: str) -> None:
    from ccmn._files import atomic_write

    with atomic_write(path) as stream:
        stream.write(text.encode())


def _device(name: str) -> str:
    import torch

    return ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name


def _advance(progress: Progress, task: TaskID, done: GroupFinished) -> None:
    column = done.group.column
    what = f"{column.table.name} {column.protocol.name} {column.dataset}"
    progress.update(task, completed=done.cost, total=done.total, description=what)


def _print(summaries: Sequence[Summary], as_json: bool) -> None:
    from ccmn.report.results_tables import results_tables

    if as_json:
        print_json([_as_dict(summary) for summary in summaries])
        return
    for summary in summaries:
        show(results_tables(summary))


def _as_dict(summary: Summary) -> dict[str, object]:
    near, judged = summary.near_printed()
    wins, ties, losses = summary.wins()
    return {
        "table": summary.table.name,
        "protocol": summary.protocol,
        "selection": summary.selection,
        "near_printed": near,
        "with_printed": judged,
        "wins": wins,
        "ties": ties,
        "losses": losses,
        "seconds": summary.seconds,
        "failures": list(summary.failures),
        "entries": [
            {
                "dataset": e.dataset,
                "method": e.method,
                "metric": e.metric,
                "n": e.n,
                "mean": e.mean,
                "std": e.std,
                "best": e.best,
                "mark": e.mark,
                "printed": e.printed and e.printed.mean,
            }
            for e in summary.entries
        ],
    }
