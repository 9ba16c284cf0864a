"""``ccmn audit``: list the rows whose labels are most suspicious."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccmn.app.cli import options as opt
from ccmn.app.cli import output
from ccmn.app.files import write_csv

if TYPE_CHECKING:
    from pandas import DataFrame

    from ccmn.app.issues import Suspicions
    from ccmn.data import MultiLabelData


def audit(
    context: typer.Context,
    source: opt.Data,
    labels: opt.Labels = None,
    tags: opt.Tags = None,
    sep: opt.Separator = ";",
    text: opt.Text = None,
    image: opt.Image = None,
    row_id: opt.RowId = None,
    ignore: opt.Ignore = None,
    votes: opt.Votes = None,
    items: opt.Items = None,
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column with the source of the labels of a row, such as an annotator. Error probabilities depend on "
            "it. With --noise, requires --trusted.",
        ),
    ] = None,
    trusted: opt.Trusted = None,
    noise: opt.DeclaredNoise = None,
    min_p_wrong: Annotated[
        float, typer.Option(min=0.0, max=1.0, metavar="P", help="List labels with at least this error probability.")
    ] = 0.5,
    top: Annotated[int, typer.Option(min=1, metavar="K", help="Show the K most suspicious rows.")] = 20,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write all listed labels to this file: .csv, or .json with tasks for Label Studio.",
        ),
    ] = None,
    report: output.ReportFile = None,
    picture: output.PictureSize = None,
    random_state: opt.RandomState = 0,
    data_dir: opt.DataDir = None,
    force: opt.Force = False,
    as_json: opt.Json = False,
) -> None:
    """List the rows whose labels are most suspicious.

    A model predicts the labels of rows it was not trained on. Rows are listed by how much their labels contradict it.
    With --noise, or with verified rows (--trusted), the probability of an error is known for every label, all labels
    from --min-p-wrong on are listed, and errors are counted. Without them, the list only ranks: it would also exist if
    all labels were right. With --votes, the labels are the majority of the votes. DATA is not changed.

    Example: ccmn audit train.csv --labels 'label_*' --noise partial --out issues.csv
    """
    if groups is not None:  # neither this command nor the next one must use the groups as a feature
        context.params["ignore"] = ",".join(name for name in (ignore, groups) if name)
    with opt.all_mistakes() as check:
        file = check(opt.check_source, source, context.params)
        check(opt.check_noise, noise)
        if groups is not None and votes is not None:
            check(opt.reject, "--groups names who labeled a row; with --votes the annotators are known")
        if groups is not None and noise is not None and trusted is None:
            check(opt.reject, "--groups has no effect on --noise without verified rows; pass --trusted as well")
        size = check(output.read_picture_size, picture)
        check(opt.check_inputs, trusted)
        check(opt.check_output, out, force, suffixes=(".csv", ".json"))
        check(opt.check_output, report, force)
    from ccmn.app.issues import RANKING_NOTE, audit_data, duplicates_note, label_sets
    from ccmn.app.report.tables import expected_table, rows_table
    from ccmn.audit.label_issues import DEFAULT_MIN_P_WRONG
    from ccmn.data.dataset import duplicate_rows
    from ccmn.data.trusted_files import read_trusted

    sources = None if groups is None else _read_groups(source, groups)
    columns, data = file.read()
    file.require_features(data)
    declared = None if noise is None else opt.read_noise(noise, data)
    with output.draw_progress() as on_progress:
        verified = read_trusted(trusted, data, row_id)
        found, rates = audit_data(data, declared, verified, sources, random_state, on_progress)
    if min_p_wrong != DEFAULT_MIN_P_WRONG and not found.known:
        raise ValueError(
            "--min-p-wrong requires error probabilities: declare --noise or pass verified rows (--trusted)"
        )
    names = [str(name) for name in data.label_names or range(data.q)]
    issues, repeated = found.issues(names, top, min_p_wrong), duplicate_rows(data.X)
    if out is not None:
        _export(issues, data, out)
    if report is not None:
        from ccmn.app.report.builders import audit_report
        from ccmn.app.report.instances import row_display

        display = row_display(data, data.Y, size, Path(source).parent, columns.table)
        review = opt.next_command(context, "review", source, noise=noise, picture=picture, port=opt.REVIEW_PORT)
        page = audit_report(data, found, issues, rates, display, top, random_state, repeated, review)
        output.write_report(page, report)
    rows = issues.row.unique()[:top].tolist()
    shown = _described(issues[issues.row.isin(rows)], data)
    sets = label_sets(issues, found.given, names, rows)
    if as_json:
        output.print_json(_result(found, rates, names, repeated, len(issues), shown, sets, out, report))
        return
    if summary := expected_table(found, names):
        output.print_table(summary)
    if not rows:
        typer.echo("no label has an error probability as large as asked for (--min-p-wrong)")
    else:
        listed = f"first {len(rows)} rows with {len(issues):,} listed labels"
        title = listed if found.known else f"the {len(rows)} most suspicious rows"
        output.print_table(rows_table(shown, sets, title))
    written = out and f"{out}: {len(issues)} labels", report and f"report written to {report}"
    for line in filter(None, (not found.known and RANKING_NOTE, duplicates_note(repeated, data.n), *written)):
        typer.echo(line)
    if trusted is None:
        command = opt.next_command(context, "review", source, noise=noise, picture=picture)
        opt.print_next(command, "verify rows and correct labels")
        return
    model = opt.unused_name("model.ccmn")
    opt.print_next(opt.next_command(context, "fit", source, noise=noise, trusted=trusted, out=model))


def _result(
    found: Suspicions,
    rates: Any,
    names: list[str],
    repeated: int,
    n_listed: int,
    shown: DataFrame,
    sets: list[dict[str, Any]],
    out: Path | None,
    report: Path | None,
) -> dict[str, Any]:
    """Return the JSON form of an audit."""
    from ccmn.app.rates_files import describe_rates

    expected = found.expected()
    counts = expected and [
        {"label": name, "false": float(false), "missing": float(missing)}
        for name, false, missing in zip(names, *expected)
    ]
    n, q = found.given.shape
    return {
        **{"n": n, "q": q, "probabilities": found.known, "noise": rates and describe_rates(rates)},
        **{"expected": counts, "duplicates": repeated, "found": n_listed},
        **{"issues": shown.to_dict("records"), "rows": sets, "out": out and str(out), "report": report and str(report)},
    }


def _read_groups(source: str, column: str) -> list[str]:
    """Return the group of every row of a table."""
    from ccmn.data.formats import is_table, read_table

    if not is_table(source):
        raise ValueError(f"{source}: --groups requires a table (CSV, Parquet, JSON)")
    return [str(value) for value in read_table(source).frame[column]]


def _export(issues: DataFrame, data: MultiLabelData, out: Path) -> None:
    """Write the issues as CSV or as tasks for Label Studio."""
    if out.suffix.lower() == ".json":
        from ccmn.data.exchange import write_label_studio

        write_label_studio(data, out, issues)
        return
    table = _described(issues, data)
    if data.texts is not None:
        table["text"] = [data.texts[row] for row in issues.row]
    write_csv(table, out, "%.6g")


def _described(issues: DataFrame, data: MultiLabelData) -> DataFrame:
    """Return the issues with the identifiers of their rows."""
    described = issues.copy()
    if data.ids is not None:
        described.insert(1, "id", [data.ids[row] for row in issues.row])
    return described
