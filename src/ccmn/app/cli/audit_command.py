"""``ccmn audit``: list the rows whose labels are most suspicious."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccmn.app.cli.noise_commands import check_noise, describe_rates, estimate_rates, read_noise_option
from ccmn.app.cli.options import (
    NOISE_TYPES,
    Candidates,
    Data,
    DataDir,
    DeclaredNoise,
    Force,
    Ignore,
    Image,
    Items,
    Json,
    Labels,
    RandomState,
    RowId,
    Separator,
    Tags,
    Text,
    Trusted,
    Votes,
    all_mistakes,
    check_inputs,
    check_output,
    check_source,
    label_frame,
    next_command,
    print_next,
    unused_name,
)
from ccmn.app.cli.output import (
    CacheFolder,
    PictureSize,
    ReportFile,
    ResultCache,
    print_json,
    print_table,
    read_picture_size,
    row_display,
    write_report,
)

if TYPE_CHECKING:
    from pandas import DataFrame

    from ccmn.app.issues import Suspicions
    from ccmn.data import MultiLabelData
    from ccmn.votes import InferredLabels


def audit(
    context: typer.Context,
    source: Data,
    labels: Labels = None,
    tags: Tags = None,
    sep: Separator = ";",
    text: Text = None,
    image: Image = None,
    row_id: RowId = None,
    ignore: Ignore = None,
    votes: Votes = None,
    items: Items = None,
    groups: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column with the source of the labels of a row, such as an annotator. Error probabilities depend on "
            "it. Requires --trusted.",
        ),
    ] = None,
    trusted: Trusted = None,
    candidates: Candidates = False,
    noise: DeclaredNoise = None,
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
    cleanlab: Annotated[
        Path | None,
        typer.Option(metavar="CSV", help="Write one line per row as cleanlab does: is_label_issue and label_score."),
    ] = None,
    report: ReportFile = None,
    picture: PictureSize = None,
    random_state: RandomState = 0,
    data_dir: DataDir = None,
    cache: CacheFolder = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """List the rows whose labels are most suspicious.

    A model predicts the labels of rows it was not trained on. Rows are listed by how much their labels contradict it.
    With --noise, or with verified rows (--trusted), the probability of an error is known for every label, all labels
    from --min-p-wrong on are listed, and errors are counted. Without them, the list only ranks: it would also exist if
    all labels were right. With --votes, the labels are the majority of the votes. DATA is not changed.

    Example: ccmn audit train.csv --labels 'label_*' --noise partial --out issues.csv
    """
    used = ",".join(name for name in (ignore, groups) if name) or None
    context.params["ignore"] = used  # the next command must not use the groups as a feature
    with all_mistakes() as check:
        file = check(check_source, source, labels, tags, sep, text, image, row_id, used, votes, items, data_dir)
        check(check_noise, noise)
        check(_check_groups, groups, trusted, votes, noise)
        size = check(read_picture_size, picture)
        check(check_inputs, trusted)
        check(check_output, out, force, suffixes=(".csv", ".json"))
        check(check_output, cleanlab, force)
        check(check_output, report, force)
    from ccmn.app.duplicates import count_duplicates
    from ccmn.app.issues import find_suspicions, label_sets
    from ccmn.data.trusted_files import read_trusted

    sources = _read_groups(source, groups)
    columns, data = file.read()
    file.require_features(data)
    Y = label_frame(data, candidates)
    verified = read_trusted(trusted, data, row_id)
    results = ResultCache(cache, random_state)
    rates: Any = read_noise_option(noise or NOISE_TYPES[0], data.label_names, data.q)
    known = noise is not None or verified is not None
    if isinstance(rates, str):
        rates = None if not known else _estimate(data, Y, rates, verified, results)
    names = [str(name) for name in data.label_names or range(data.q)]
    pred_proba = results.probabilities(data.X, Y)
    knowledge = {
        "trusted": None if verified is None else verified[:2],
        "groups": sources,
        "votes": None if noise is not None and verified is None else data.votes,
    }
    found = find_suspicions(Y, pred_proba, None if noise is None else rates, known=known, **knowledge)
    issues, repeated = found.issues(names, top, min_p_wrong), count_duplicates(data)
    _export(issues, found, data, out, cleanlab)
    if report is not None:
        from ccmn.app.report.builders import REVIEW_PORT, audit_report

        display = row_display(data, Y, size, Path(source).parent, columns.table)
        command = next_command(context, "review", source, noise=noise, picture=picture, port=REVIEW_PORT)
        page = audit_report(data, found, issues, rates, display, top, _infer(data, random_state), repeated, command)
        write_report(page, report)
    rows = issues.row.unique()[:top].tolist()
    shown = _described(issues[issues.row.isin(rows)], data, texts=False)
    sets = label_sets(issues, found.given, names, rows)
    if as_json:
        expected = found.expected()
        counts = expected and [
            {"label": name, "false": float(false), "missing": float(missing)}
            for name, false, missing in zip(names, *expected)
        ]
        print_json(
            {
                **{"n": data.n, "q": data.q, "probabilities": known, "noise": rates and describe_rates(rates)},
                **{"expected": counts, "duplicates": repeated._asdict(), "found": len(issues)},
                **{"issues": shown.to_dict("records"), "rows": sets},
                **{"out": out and str(out), "report": report and str(report)},
            }
        )
        return
    from ccmn.app.report.console import audit_tables

    print_table(audit_tables(found, shown, sets, names, len(issues)))
    if note := repeated.note(data.n):
        typer.echo(note)
    if out is not None:
        typer.echo(f"{out}: {len(issues)} labels")
    if report is not None:
        typer.echo(f"report written to {report}")
    if trusted is None:
        command = next_command(context, "review", source, noise=noise, picture=picture)
        print_next(command, "verify rows and correct labels")
        return
    print_next(next_command(context, "fit", source, noise=noise, trusted=trusted, out=unused_name("model.ccmn")))


def _check_groups(column: str | None, trusted: Path | None, votes: str | None, noise: str | None) -> None:
    """Reject ``--groups`` where it has no effect."""
    if column is not None and votes is not None:
        raise typer.BadParameter("--groups names who labeled a row; with --votes the annotators are known")
    if column is not None and noise is not None and trusted is None:
        raise typer.BadParameter("--groups has no effect on --noise without verified rows; pass --trusted as well")


def _read_groups(source: str, column: str | None) -> list[Any] | None:
    """Return the group of every row of a table; None if no column is named."""
    if column is None:
        return None
    from ccmn.data.formats import is_table, read_table

    if not is_table(source):
        raise ValueError(f"{source}: --groups requires a table (CSV, Parquet, JSON)")
    return [str(value) for value in read_table(source).frame[column]]


def _export(
    issues: DataFrame, found: Suspicions, data: MultiLabelData, out: Path | None, cleanlab: Path | None
) -> None:
    """Write the issues as CSV or as tasks for Label Studio, and the rows in the form of cleanlab."""
    import numpy as np
    import pandas as pd

    from ccmn._files import atomic_write

    if out is not None and out.suffix.lower() == ".json":
        from ccmn.data.exchange import write_label_studio

        write_label_studio(data, out, issues)
    elif out is not None:
        with atomic_write(out) as stream:
            _described(issues, data).to_csv(stream, index=False, float_format="%.6g")
    if cleanlab is not None:
        row = np.arange(data.n)
        wrong = np.isin(row, issues.row[issues.suggested != issues.given])
        score = 1 - np.nan_to_num(found.score).max(1)
        rows = pd.DataFrame({"row": row, "is_label_issue": wrong, "label_score": score})
        with atomic_write(cleanlab) as stream:
            _described(rows, data, texts=False).to_csv(stream, index=False, float_format="%.6g")


def _described(issues: DataFrame, data: MultiLabelData, *, texts: bool = True) -> DataFrame:
    """Return the issues with the identifiers and the texts of their rows."""
    rows = issues["row"].tolist()
    described = issues.copy()
    if data.ids is not None:
        described.insert(1, "id", [data.ids[row] for row in rows])
    if texts and data.texts is not None:
        described["text"] = [data.texts[row] for row in rows]
    return described


def _estimate(data: MultiLabelData, Y: Any, noise: str, verified: Any, results: ResultCache) -> Any:
    """Estimate the rates from the votes, or with the verified rows of the random sample."""
    from ccmn.estimation import estimate_noise

    if data.votes is not None:
        return estimate_noise(Y_noisy=Y, noise_type=noise, votes=data.votes)
    return estimate_rates(data, Y, noise, verified, results)


def _infer(data: MultiLabelData, random_state: int) -> InferredLabels | None:
    """Infer the labels and the rates of the annotators from the votes; None without votes."""
    if data.votes is None:
        return None
    from ccmn.votes import infer_labels

    return infer_labels(data.votes, data.X, random_state)
