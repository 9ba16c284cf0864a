"""``ccmn audit``: list the labels that are probably wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccmn.app.cli.noise_commands import describe_rates, read_noise_option
from ccmn.app.cli.options import (
    Candidates,
    Data,
    DataDir,
    Force,
    Ignore,
    Image,
    Json,
    Labels,
    RandomState,
    RowId,
    Separator,
    Tags,
    Text,
    Trusted,
    Votes,
    check_output,
    label_frame,
    next_command,
    print_next,
    read_roles,
    read_trusted,
    read_vote_columns,
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

    from ccmn.app.cli.options import Verified
    from ccmn.audit import Audit
    from ccmn.data import MultiLabelData
    from ccmn.estimation import NoiseRates
    from ccmn.votes import InferredLabels

DEFAULT_MIN_P_WRONG = 0.5
"""Labels with at least this error probability are more likely wrong than correct."""


def audit(
    context: typer.Context,
    source: Data,
    labels: Labels = None,
    tags: Tags = None,
    sep: Separator = ";",
    noise: Annotated[
        str,
        typer.Option(
            "--noise",
            metavar="NOISE",
            help="Noise of the labels: both | partial (labels only added) | missing (labels only removed), or a "
            "JSON file of noise rates, known or from ccmn noise estimate.",
        ),
    ] = "both",
    min_p_wrong: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            metavar="P",
            help="List labels with at least this error probability (default: 0.5 or, if no label reaches it, the most "
            "suspicious ones, as many as the rates imply).",
        ),
    ] = None,
    trusted: Trusted = None,
    diverse: Annotated[bool, typer.Option("--diverse", help="Mix the labels in the list.")] = False,
    top: Annotated[int, typer.Option(min=1, metavar="K", help="Show the K most suspicious labels.")] = 20,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write all listed labels to this file: .csv, or .json with tasks for Label Studio, whose predictions "
            "have the error probability as score.",
        ),
    ] = None,
    cleanlab: Annotated[
        Path | None,
        typer.Option(metavar="CSV", help="Write one line per row as cleanlab does: is_label_issue and label_score."),
    ] = None,
    report: ReportFile = None,
    picture: PictureSize = None,
    text: Text = None,
    image: Image = None,
    row_id: RowId = None,
    ignore: Ignore = None,
    votes: Votes = None,
    annotator: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of the annotator who labeled the row. Error probabilities depend on it. Requires --trusted.",
        ),
    ] = None,
    candidates: Candidates = False,
    random_state: RandomState = 0,
    data_dir: DataDir = None,
    cache: CacheFolder = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """List the labels that are probably wrong, most suspicious first, and count them per label.

    The error probability of every given label is computed from out-of-fold predictions, the noise rates and, with
    --trusted, verified rows. Without verified rows and without evidence for class-conditional noise it stays below
    0.5, but the order is still meaningful. Verified rows of a random sample also improve the rates. With --votes, the
    labels are the majority of the votes, their rates are estimated from the votes, and the report describes the
    annotators; with --trusted, error probabilities also depend on the share of dissenting votes. DATA is not changed.

    Example: ccmn audit train.csv --labels 'label_*' --noise partial --out issues.csv
    """
    from ccmn.data.columns import Columns

    size = read_picture_size(picture)
    if out is not None and out.suffix.lower() not in (".csv", ".json"):
        raise typer.BadParameter(f"--out must end in .csv or .json; got {out.name!r}")
    for path in (out, cleanlab, report):
        if path is not None:
            check_output(path, force)
    voted = read_vote_columns(votes)
    annotators = _read_annotators(source, annotator, trusted, votes)
    used = ",".join(name for name in (ignore, annotator) if name) or None
    context.params["ignore"] = used  # the next command must not use the annotator as a feature
    roles = read_roles(labels, tags, sep, text, image, row_id, used)
    columns, data = Columns.from_training_data(source, roles=roles, data_dir=data_dir, votes=voted)
    Y = label_frame(data, candidates)
    rates = read_noise_option(noise, data.label_names, data.q)
    verified = read_trusted(trusted, data, row_id)
    results = ResultCache(cache, random_state)
    if isinstance(rates, str):
        rates = _estimate(data, Y, rates, verified, results)
    known = None if verified is None else verified[:2]
    given = _GivenLabels(data, Y, known, annotators)
    probabilities = results.probabilities(data.X, Y)
    audited, below = _find_issues(given, rates, probabilities, min_p_wrong, diverse, random_state)
    threshold = DEFAULT_MIN_P_WRONG if min_p_wrong is None else min_p_wrong
    _export(audited, given, out, cleanlab)
    if report is not None:
        from ccmn.app.report.builders import REVIEW_PORT, audit_report

        display = row_display(data, Y, size, Path(source).parent, columns.table)
        note = f"No error probability reaches {threshold:g}: these are the most suspicious labels." if below else ""
        command = next_command(
            context, "review", source, noise=None if noise == "both" else noise, picture=picture, port=REVIEW_PORT
        )
        inferred = _infer(data, random_state)
        write_report(audit_report(data, Y, audited, display, top, inferred, note, command), report)
    shown = _described(audited.issues.head(top), data, texts=False)
    sets = _label_sets(audited, Y, shown.row.unique())
    if as_json:
        summary = {"noise": describe_rates(audited.noise), "summary": audited.summary.to_dict("records")}
        listed = {"found": len(audited.issues), "issues": shown.to_dict("records"), "rows": sets}
        files = {"out": out and str(out)} if report is None else {"out": out and str(out), "report": str(report)}
        print_json({"n": data.n, "q": data.q, "min_p_wrong": 0.0 if below else threshold, **summary, **listed, **files})
        return
    from ccmn.app.report.console import audit_tables

    print_table(audit_tables(audited, shown, sets))
    typer.echo(_explain(threshold, len(shown), below, trusted), nl=False)
    if out is not None:
        typer.echo(f"{out}: {len(audited.issues)} labels")
    if report is not None:
        typer.echo(f"report written to {report}")
    known_noise = None if noise == "both" else noise
    if trusted is None:
        command = next_command(context, "review", source, noise=known_noise, picture=picture)
        print_next(command, "verify rows and correct labels")
        return
    known_noise = None if data.votes is not None else known_noise  # models of votes estimate the rates themselves
    print_next(next_command(context, "fit", source, noise=known_noise, trusted=trusted, out=unused_name("model.ccmn")))


@dataclass(frozen=True)
class _GivenLabels:
    """Given labels, and what is known about them."""

    data: MultiLabelData
    Y: Any
    trusted: Any
    """Verified rows and their labels, or None."""
    annotators: list[Any] | None
    """Annotator of every row, or None."""

    @property
    def knowledge(self) -> dict[str, Any]:
        """Keyword arguments of ``find_label_issues`` and ``audit_labels``."""
        votes = None if self.trusted is None else self.data.votes
        return {"trusted": self.trusted, "groups": self.annotators, "votes": votes}


def _find_issues(
    given: _GivenLabels, rates: Any, probabilities: Any, min_p_wrong: float | None, diverse: bool, random_state: int
) -> tuple[Audit, bool]:
    """Return the audit, and whether it lists the most suspicious labels because none is probably wrong."""
    from ccmn.audit import audit_labels

    X, Y, settings = given.data.X, given.Y, {**given.knowledge, "diverse": diverse, "pred_proba": probabilities}
    threshold = DEFAULT_MIN_P_WRONG if min_p_wrong is None else min_p_wrong
    audited = audit_labels(X, Y, rates, threshold, random_state, **settings)
    expected = round(float(audited.summary[["false", "missing"]].to_numpy().sum()))
    if min_p_wrong is not None or len(audited.issues) or not expected:
        return audited, False
    audited = audit_labels(X, Y, audited.noise, 0.0, random_state, **settings)
    suspicious = audited.issues.head(expected)
    return replace(audited, issues=suspicious.assign(suggested=1 - suspicious.given)), True


def _explain(threshold: float, n_shown: int, below: bool, trusted: Path | None) -> str:
    """Return a line that explains a list of labels that are not probably wrong, or an empty list."""
    if below:
        return (
            f"No error probability reaches {threshold:g}: the most suspicious labels are listed, as many as the "
            "rates imply. To learn the error probabilities, verify rows with ccmn review and pass --trusted.\n"
        )
    if n_shown or trusted is not None:
        return ""
    return (
        f"No error probability reaches {threshold:g}. To list the most suspicious labels use --min-p-wrong 0; to "
        "learn the error probabilities verify rows with ccmn review and pass --trusted.\n"
    )


def _read_annotators(source: str, column: str | None, trusted: Path | None, votes: str | None) -> list[Any] | None:
    """Return the annotator of every row of a table; None if no column is named."""
    if column is None:
        return None
    if votes is not None:
        raise ValueError("--annotator names who labeled a row; with --votes the annotators are known")
    if trusted is None:
        raise ValueError("--annotator has no effect without verified rows; pass --trusted as well")
    from ccmn.data.formats import is_table, read_table

    if not is_table(source):
        raise ValueError(f"{source}: --annotator requires a table (CSV, Parquet, JSON)")
    frame = read_table(source).frame
    if column not in frame.columns:
        raise ValueError(f"{source} has no column {column!r} (--annotator)")
    return [str(value) for value in frame[column]]


def _export(audited: Audit, given: _GivenLabels, out: Path | None, cleanlab: Path | None) -> None:
    """Write the issues as CSV or as tasks for Label Studio, and the rows in the form of cleanlab."""
    from ccmn._files import atomic_write

    data = given.data
    if out is not None and out.suffix.lower() == ".json":
        from ccmn.data.exchange import write_label_studio

        write_label_studio(data, out, audited.issues)
    elif out is not None:
        with atomic_write(out) as stream:
            _described(audited.issues, data).to_csv(stream, index=False, float_format="%.6g")
    if cleanlab is not None:
        from ccmn.audit import find_label_issues

        entries = find_label_issues(given.Y, audited.pred_proba, audited.noise, min_p_wrong=0, **given.knowledge)
        worst = entries.groupby("row").p_wrong.max().reindex(range(data.n), fill_value=0.0)
        listed = set(audited.issues.row.tolist())
        rows = worst.rename("label_score").rsub(1).reset_index()
        rows.insert(1, "is_label_issue", [row in listed for row in rows.row])
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


def _estimate(data: MultiLabelData, Y: Any, noise: str, verified: Verified | None, results: ResultCache) -> NoiseRates:
    """Estimate the rates from the votes, or with the verified rows of the random sample."""
    from ccmn.estimation import estimate_noise

    if data.votes is not None:
        return estimate_noise(Y_noisy=Y, noise_type=noise, votes=data.votes)
    sample = None
    if verified is not None and verified[2].any():
        rows, true, random = verified
        sample = (rows[random], true[random])
    return results.rates(data.X, Y, noise, sample)


def _infer(data: MultiLabelData, random_state: int) -> InferredLabels | None:
    """Infer the labels and the rates of the annotators from the votes; None without votes."""
    if data.votes is None:
        return None
    from ccmn.votes import infer_labels

    return infer_labels(data.votes, data.X, random_state)


def _label_sets(audited: Audit, Y: Any, rows: Any) -> list[dict[str, Any]]:
    """Return the given and the suggested label sets of some rows."""
    from ccmn._containers import is_dataframe, to_dense_array

    if not len(rows):
        return []
    labels = [str(name) for name in audited.summary.label]
    given = to_dense_array(Y.iloc[rows] if is_dataframe(Y) else Y[rows])
    suggested = given.copy()
    position = {int(row): i for i, row in enumerate(rows)}
    column = {name: j for j, name in enumerate(labels)}
    issues = audited.issues[audited.issues.row.isin(rows)]
    for row, label, value in zip(issues.row.tolist(), issues.label.tolist(), issues.suggested):
        suggested[position[row], column[str(label)]] = value

    def names(values: Any) -> list[str]:
        return [name for name, value in zip(labels, values) if value == 1]

    return [
        {"row": int(row), "given": names(before), "suggested": names(after)}
        for row, before, after in zip(rows, given, suggested)
    ]
