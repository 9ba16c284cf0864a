"""``ccmn demo``, ``ccmn reproduce`` and ``ccmn report``: run the demo or the tables of the paper, summarize results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ccmn.app.cli import options as opt
from ccmn.app.cli.output import draw_progress, print_json, print_table, write_report
from ccmn.app.files import write_text

if TYPE_CHECKING:
    from ccmn.paper.runner import GroupFinished
    from ccmn.paper.summary import Summary

DEMO_FIGURES = ("loss", "strategy", "hamming_loss", "ranking_loss", "average_precision")
"""What the JSON output of the demo contains of each model."""
ALL_TABLES = "all"
"""Value of TABLE that stands for the three tables of the paper."""
SMALL_BESIDE = "yeast"
"""Dataset whose printed values --small shows beside its own: all tables of the paper contain it."""


def demo(
    quick: Annotated[bool, typer.Option("--quick", help="Use a quarter of the data and fewer epochs.")] = False,
    random_state: opt.RandomState = 0,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for report.html.")] = Path("ccmn-demo"),
    as_json: opt.Json = False,
) -> None:
    """Train on noisy labels with four strategies and compare them on true test labels.

    The data are pictures with several handwritten digits; the labels are the digits in a picture. Every training label
    is flipped with its own rates. Models are trained on the true labels, on the noisy labels without noise correction,
    and with noise correction by the true and by the estimated rates. The demo takes less than a minute and
    writes an HTML report, which overwrites the report of an earlier run.

    Example: ccmn demo --random-state 1
    """
    from ccmn.app.demo_task import DEMO_LOSSES, STRATEGIES, make_demo, run_demo
    from ccmn.app.report.builders import demo_report

    out.mkdir(parents=True, exist_ok=True)  # first: an error must not appear after the training
    report = out / "report.html"
    task = make_demo(2000 if quick else 8000, random_state)
    trained, n_models = [], len(STRATEGIES) * len(DEMO_LOSSES)
    with draw_progress() as on_progress:
        for model in run_demo(task, epochs=10 if quick else 30, random_state=random_state):
            trained.append(model)
            on_progress("training", len(trained), n_models)
    write_report(demo_report(task, trained), report)
    if as_json:
        result = {
            "n_train": len(task.X),
            "n_test": len(task.X_test),
            "wrong_labels": task.wrong_labels,
            "noise": task.noise.to_dict(),
            "results": [{name: getattr(model, name) for name in DEMO_FIGURES} for model in trained],
            "report": str(report),
        }
        print_json(result)
        return
    from ccmn.app.report.tables import demo_description, demo_table

    typer.echo(demo_description(task))
    print_table(demo_table(trained))
    typer.echo(f"report written to {report}")
    same = f" --random-state {random_state}" if random_state else ""
    typer.echo(f"to review the labels of these pictures and retrain, run: ccmn review --demo{same}")


def reproduce(
    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE",
            help="table1 | table2 | table3 | journal1 | journal2, or all for the first three.",
            show_default=False,
        ),
    ],
    datasets: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DATA",
            help="Run only this dataset or data file; repeat the option for several. 'digits' is bundled.",
        ),
    ] = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Run only this method; repeat the option for several."),
    ] = None,
    protocol: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="literal | moderate (tables 1, 2), injected | real (table 3); default: all."),
    ] = None,
    store: Annotated[Path, typer.Option(metavar="FILE", help="SQLite file of the results.")] = Path("results.db"),
    jobs: Annotated[int, typer.Option(min=1, metavar="N", help="Number of processes.")] = 1,
    device: Annotated[
        str, typer.Option(metavar="NAME", callback=opt.check_device, help="auto | cpu | cuda | ...")
    ] = "auto",
    small: Annotated[
        bool, typer.Option("--small", help="Run two repeats of ten epochs on the bundled digits: about a minute.")
    ] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run cells again that failed before.")] = False,
    random_state: opt.RandomState = 0,
    data_dir: opt.DataDir = None,
    as_json: opt.Json = False,
) -> None:
    """Reproduce a table of the paper; cells that are already stored are not run again.

    The run can be interrupted at any time. The same command resumes it. Datasets that are not available are listed and
    skipped.

    Examples: ccmn reproduce table1 --datasets yeast --protocol moderate, or ccmn reproduce table1 --small
    """
    import torch

    from ccmn._files import prefix_errors
    from ccmn._validation import check_device
    from ccmn.paper.result_store import ResultStore
    from ccmn.paper.runner import prepare, run_columns
    from ccmn.paper.summary import summarize
    from ccmn.paper.tables import TABLES

    if table not in (*TABLES, ALL_TABLES):
        opt.reject(f"{table!r} is not one of {', '.join((*TABLES, ALL_TABLES))}")
    tables = ["table1", "table2", "table3"] if table == ALL_TABLES else [table]
    prepared = prepare(
        tables, datasets=datasets, protocols=protocol, data_dir=data_dir, small=small, random_state=random_state
    )
    for name, reason in prepared.absent.items():
        typer.echo(f"ccmn: note: dataset {name} is skipped: {reason}", err=True)
    with ResultStore(store) as results, draw_progress() as on_progress:

        def show(finished: GroupFinished) -> None:
            column = finished.group.column
            details = f"{column.table.name} {column.protocol.name} {column.dataset}"
            on_progress("running", finished.cost, finished.total, details)

        run_columns(
            prepared.columns,
            results,
            methods=methods,
            device=check_device(device, torch.cuda.is_available()),
            jobs=jobs,
            retry_failed=retry_failed,
            on_progress=show,
        )
        stored = list(results.results())
        with prefix_errors(store):
            _print_summaries(summarize(stored), as_json, beside=SMALL_BESIDE if small and not datasets else "")
    if small and not as_json:
        typer.echo(
            "--small trains for ten epochs on pictures of digits. This only shows that the code runs: the values "
            f"cannot be compared with the printed ones, which are those of {SMALL_BESIDE}."
        )
    typer.echo(f"results are in {store}; run ccmn report {store} --out report.html for an HTML page", err=True)


def report(
    source: Annotated[
        Path,
        typer.Argument(metavar="RESULTS", help="Result store of ccmn reproduce, or CSV file of ccmn report --csv."),
    ],
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write an HTML page (.html).")] = None,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write every value, one per line (.csv).")] = None,
    force: opt.Force = False,
    as_json: opt.Json = False,
) -> None:
    """Summarize stored results as tables, HTML or CSV.

    Example: ccmn report results.db --out report.html --csv cells.csv
    """
    with opt.all_mistakes() as check:
        check(opt.check_inputs, source)
        for path in (out, csv):
            check(opt.check_output, path, force)
    from ccmn._files import prefix_errors
    from ccmn.app.report.results_tables import results_page
    from ccmn.paper.result_store import ResultStore, read_cells, write_cells
    from ccmn.paper.summary import summarize

    if source.suffix == ".csv":
        stored = read_cells(source)
    else:
        with ResultStore(source) as results:
            stored = list(results.results())
    if not stored:
        raise ValueError(f"{source} contains no results; run ccmn reproduce first")
    with prefix_errors(source):
        summaries = summarize(stored)
    if csv is not None:
        write_cells(stored, csv)
    if out is not None:
        write_text(out, results_page(summaries))
    _print_summaries(summaries, as_json)
    for path in filter(None, (out, csv)):
        typer.echo(f"wrote {path}", err=True)


def _print_summaries(summaries: Sequence[Summary], as_json: bool, beside: str = "") -> None:
    """Print summaries as tables or as JSON."""
    from ccmn.app.report.results_tables import headline, result_statements, results_tables

    if as_json:
        print_json([_summary_dict(summary) for summary in summaries])
        return
    for summary in summaries:
        typer.echo(headline(summary))
        for table in results_tables(summary, beside):
            print_table(table)
        typer.echo("\n".join([*result_statements(summary), ""]))


def _summary_dict(summary: Summary) -> dict[str, object]:
    """Return the JSON form of a summary."""
    counts = zip(("within_printed", "near_printed", "with_printed"), summary.near_printed())
    comparisons = zip(("wins", "ties", "losses"), summary.wins())
    fields = ("dataset", "method", "metric", "n", "mean", "std", "best", "mark")
    return {
        **{"table": summary.table.name, "protocol": summary.protocol, "selection": summary.selection},
        **dict(counts),
        **dict(comparisons),
        **{"seconds": summary.seconds, "failures": list(summary.failures)},
        "entries": [
            {**{name: getattr(entry, name) for name in fields}, "printed": entry.printed and entry.printed.mean}
            for entry in summary.entries
        ],
    }
