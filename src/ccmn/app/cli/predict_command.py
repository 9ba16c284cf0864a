"""``ccmn predict`` and ``ccmn evaluate``: apply a saved model to data, with columns matched by name."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ccmn.app.cli import options as opt
from ccmn.app.cli import output

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pandas import DataFrame

    from ccmn.data import MultiLabelData
    from ccmn.data.columns import Columns
    from ccmn.metrics import RiskControl
    from ccmn.models import CCMNClassifier, CorrectedClassifier

BLOCK_ENTRIES = 1 << 22
"""Predictions are made in blocks of rows with this number of probabilities, which bounds the memory."""
DEFAULT_CONFIDENCE = 0.9
"""Default probability that the target of ``--control`` is met."""
OTHER_FORMATS = (".xlsx", ".xls", ".parquet", ".json", ".jsonl", ".npz")
"""Endings of files that other programs would not read as CSV."""


def predict(
    context: typer.Context,
    model: opt.Model,
    source: opt.Data,
    out: Annotated[
        Path | None, typer.Option(metavar="CSV", help="CSV file to write (default: standard output).")
    ] = None,
    top: Annotated[
        int | None, typer.Option(min=1, metavar="K", help="Write the K most probable labels of each row, one per line.")
    ] = None,
    control: Annotated[
        str | None,
        typer.Option(
            metavar="METRIC=TARGET",
            help="Select the threshold that guarantees a metric on clean labels: recall=0.9, precision=0.8 or "
            "hamming=0.1. Requires --calibration.",
        ),
    ] = None,
    calibration: Annotated[
        str | None, typer.Option(metavar="DATA", help="Labeled rows for --control that the model was not trained on.")
    ] = None,
    labels: opt.Labels = None,
    tags: opt.Tags = None,
    sep: opt.Separator = ";",
    row_id: opt.RowId = None,
    noise: opt.RatesFile = None,
    confidence: Annotated[
        float,
        typer.Option(metavar="P", min=0.001, max=0.999, help="Probability that the target of --control is met."),
    ] = DEFAULT_CONFIDENCE,
    data_dir: opt.DataDir = None,
    force: opt.Force = False,
    as_json: opt.Json = False,
) -> None:
    """Predict labels and their probabilities with a saved model.

    The output has one line per row: every label as 0 or 1, then the probability p(label) of every label. Feature
    columns are matched by the names in the training data; other columns, such as labels, are ignored. Identifiers
    (--id, here or in ccmn fit) are copied to the output.

    With --control, a label is predicted if its probability is at least a threshold that is selected on the rows of
    --calibration. If the target cannot be guaranteed, nothing is predicted.

    Example: ccmn predict model.ccmn new.csv --out predictions.csv
    """
    with opt.all_mistakes() as check:
        check(opt.check_inputs, model)
        check(opt.check_source, source, {"row_id": row_id, "data_dir": data_dir})
        given = calibration, labels, tags, noise, None if confidence == DEFAULT_CONFIDENCE else confidence
        target = check(_read_control, control, *given)
        check(opt.check_noise, noise, ())
        if out is not None and out.suffix.lower() in OTHER_FORMATS:
            check(opt.reject, f"--out writes CSV; got {out.name!r}. Use a name that ends in .csv")
        check(opt.check_output, out, force)
        if calibration is not None:
            rows_file = check(opt.check_source, calibration, {**context.params, "row_id": None})
    from ccmn._files import atomic_write

    classifier, columns = load_columns(model, fast=control is None)
    guarantee = None
    if target is not None and calibration is not None:
        rows = columns.read_labeled(calibration, roles=rows_file.roles, data_dir=data_dir)
        guarantee = _control(classifier, rows, noise, target, confidence)
        typer.echo(f"ccmn: note: {guarantee}", err=True)
    data = columns.read_rows(source, roles=opt.read_roles({"row_id": row_id}), data_dir=data_dir)
    cut = None if guarantee is None else guarantee.threshold
    blocks = _predict_blocks(classifier, data, cut, row_id or columns.roles.id or "id")
    described = {} if guarantee is None else {"control": guarantee.to_dict()}
    if out is not None:
        with atomic_write(out) as stream:
            _write(blocks, stream, top)
        printed = {"out": str(out), "rows": data.n, **described}
        output.print_json(printed) if as_json else typer.echo(f"{out}: {data.n} rows")
    elif as_json:
        parts = list(blocks)
        predicted = [row for block in parts for row in block.records(top)]
        output.print_json(
            {"labels": parts[0].names, "cut": 0.5 if cut is None else cut, **described, "rows": predicted}
        )
    else:
        _write(blocks, sys.stdout.buffer, top)


def _write(blocks: Iterator[Predictions], stream: IO[bytes], top: int | None) -> None:
    """Write CSV in UTF-8, all labels or the most probable ones; a header only before the first row."""
    for number, block in enumerate(blocks):
        block.table(top).to_csv(stream, index=False, header=not number, float_format="%.6g", lineterminator="\n")


def evaluate(
    context: typer.Context,
    model: opt.Model,
    source: opt.Data,
    labels: opt.Labels = None,
    tags: opt.Tags = None,
    sep: opt.Separator = ";",
    row_id: opt.RowId = None,
    noise: opt.RatesFile = None,
    report: output.ReportFile = None,
    data_dir: opt.DataDir = None,
    force: opt.Force = False,
    as_json: opt.Json = False,
) -> None:
    """Evaluate a saved model with all metrics.

    With --noise, the labels in DATA are noisy: the metrics on true labels are estimated, with standard errors. Label
    columns, or the column of tags, are matched by the names in the training data unless --labels or --tags is given.

    Example: ccmn evaluate model.ccmn test.csv
    """
    with opt.all_mistakes() as check:
        check(opt.check_inputs, model)
        file = check(opt.check_source, source, context.params)
        check(opt.check_noise, noise, ())
        check(opt.check_output, report, force)
    from ccmn._files import prefix_errors
    from ccmn.app.issues import duplicates_note
    from ccmn.app.rates_files import read_matching
    from ccmn.app.report.facts import AS_GIVEN, CORRECTED, MetricRow, measure, out_of_range_notes, rows_with_labels
    from ccmn.app.report.tables import metrics_table
    from ccmn.data.dataset import duplicate_rows
    from ccmn.noise import ClassConditionalNoise

    classifier, columns = load_columns(model)
    data = columns.read_labeled(source, roles=file.roles, data_dir=data_dir)
    rates = None if noise is None else read_matching(noise, columns.label_names, data.q)
    with prefix_errors(source):
        data = _observed_rows(data) if rates is None else data
    scores = classifier.decision_function(data.X).reshape(data.n, data.q)
    repeated, figures = duplicate_rows(data.X), measure(data.Y, scores, rates)
    if report is not None:
        from ccmn.app.report.builders import evaluation_report

        output.write_report(evaluation_report(data, classifier, scores, rates, repeated), report)
    if as_json:
        values = {
            name: figure.value if rates is None else {**vars(figure), "out_of_range": figure.out_of_range}
            for name, figure in figures.items()
        }
        result = {"n": data.n, "q": data.q, "noise": rates and rates.to_dict(), "duplicates": repeated}
        output.print_json({**result, "metrics": values, "report": report and str(report)})
        return
    row = MetricRow(AS_GIVEN if rates is None else CORRECTED, figures)
    labeled = int(rows_with_labels(data.Y).sum())
    caption = f"{data.n:,} rows"
    if rates is not None:
        caption += (
            ", estimated for the true labels from noisy labels; ±: standard error. A row without labels has no order: "
            "it counts as correct, in one error as wrong"
        )
    elif labeled < data.n:
        caption += f"; metrics of the order of labels: the {labeled:,} rows with a label"
    output.print_table(metrics_table([row], caption))
    notes = [*out_of_range_notes([row]), duplicates_note(repeated, data.n)]
    trained = classifier.noise_
    clean = isinstance(trained, ClassConditionalNoise) and not (trained.rho_pos.any() or trained.rho_neg.any())
    if rates is None and not clean:
        notes.append(
            "If these labels are as noisy as the training labels, add --noise RATES.json (written by ccmn noise "
            "estimate --out): the metrics on the true labels are then estimated."
        )
    for note in filter(None, notes):
        typer.echo(note)
    if report is not None:
        typer.echo(f"report written to {report}")


def _observed_rows(data: MultiLabelData) -> MultiLabelData:
    """Return the rows of which all labels were observed; metrics on the labels as given need them."""
    import numpy as np

    from ccmn._containers import is_sparse

    if is_sparse(data.Y) or not np.isnan(data.Y).any():
        return data
    rows = np.flatnonzero(~np.isnan(data.Y).any(1))
    if not len(rows):
        raise ValueError("no row has all labels observed; metrics need rows without missing labels")
    typer.echo(f"ccmn: note: {data.n - len(rows)} of {data.n} rows with missing labels are left out", err=True)
    return data.take(rows)


def store_columns(classifier: CCMNClassifier, columns: Columns) -> None:
    """Store the names, roles and preprocessing of the columns with a model."""
    classifier.extra_["feature_names"] = None if columns.feature_names is None else list(columns.feature_names)
    if columns.table is not None:
        classifier.extra_["table"] = columns.table.to_dict()
        classifier.extra_["roles"] = columns.roles.to_dict()


def load_columns(path: Path, *, fast: bool = False) -> tuple[Any, Columns]:
    """Return a saved model and the columns that it reads from a file; with ``fast``, it only predicts."""
    from ccmn._files import prefix_errors
    from ccmn.models.model_file import load_default

    classifier: Any = load_default(path) if fast else None
    if classifier is None:
        from ccmn.models import load_model

        classifier = load_model(path)
    with prefix_errors(path):
        return classifier, _model_columns(classifier)


def _model_columns(classifier: Any) -> Columns:
    from ccmn._validation import check_names
    from ccmn.data.column_roles import ColumnRoles
    from ccmn.data.columns import Columns
    from ccmn.data.fitted_table import FittedTable

    extra = classifier.extra_
    width, n_labels = classifier.n_features_in_, len(classifier.classes_)
    if "table" not in extra:
        given = extra.get("feature_names", getattr(classifier, "feature_names_in_", None))
        return Columns(width, n_labels, check_names(given, width, "feature"), classifier.label_names_)
    table, roles = FittedTable.from_dict(extra["table"]), ColumnRoles.from_dict(extra.get("roles"))
    if width != len(table.feature_names_out_):
        raise ValueError(f"the model is damaged: it has {width} features but {len(table.feature_names_out_)} columns")
    return Columns(width, n_labels, None, classifier.label_names_, table=table, roles=roles)


def _read_control(
    control: str | None, calibration: str | None, *others: str | Path | float | None
) -> tuple[str, float] | None:
    """Return the metric and the target of ``--control``; None if it is not given."""
    if control is None:
        if any(value is not None for value in (calibration, *others)):
            raise typer.BadParameter("--calibration, --labels, --tags, --noise and --confidence require --control")
        return None
    if calibration is None:
        raise typer.BadParameter("--control requires --calibration, a file of labeled rows")
    from ccmn.metrics.risk_control import CONTROLLED

    metric, _, value = control.partition("=")
    try:
        target = float(value)
    except ValueError:
        target = -1.0
    if metric not in CONTROLLED or not 0 < target < 1:
        raise typer.BadParameter(
            f"--control must be {', '.join(f'{name}=TARGET' for name in CONTROLLED)} with a target between 0 and 1; "
            f"got {control!r}"
        )
    return metric, target


def _control(
    classifier: CCMNClassifier | CorrectedClassifier,
    data: MultiLabelData,
    noise: Path | None,
    target: tuple[str, float],
    confidence: float,
) -> RiskControl:
    """Return the threshold of the probabilities that guarantees the target; an error if there is none."""
    from ccmn._containers import to_dense_array
    from ccmn.app.rates_files import read_matching
    from ccmn.metrics import control_risk

    if to_dense_array(classifier.predict(data.X[:1])).ndim == 1:
        raise ValueError("--control requires a multi-label model; this model predicts one class per row")
    rates = None if noise is None else read_matching(noise, classifier.label_names_, data.q)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*cannot be guaranteed")  # raised as an error below
        result = control_risk(data.Y, classifier.predict_proba(data.X), rates, *target, confidence)
    if not result.guaranteed:
        raise ValueError(str(result))
    return result


def _predict_blocks(
    classifier: Any, data: MultiLabelData, threshold: float | None, id_name: str
) -> Iterator[Predictions]:
    """Yield the predicted labels (or classes) and probabilities of consecutive blocks of rows.

    With ``threshold``, labels are predicted by their probability.
    """
    import pandas as pd

    from ccmn._containers import to_dense_array

    size = max(1, BLOCK_ENTRIES // len(classifier.classes_))
    for start in range(0, data.n, size):
        rows = data.X[start : start + size]
        labels, p = to_dense_array(classifier.predict(rows)), classifier.predict_proba(rows)
        if labels.ndim == 1:
            names, labels = classifier.classes_, labels[:, None] == classifier.classes_
        else:
            names = classifier.label_names_ or classifier.classes_
        keys = pd.DataFrame({"row": range(start, start + len(p))})
        if data.ids is not None:
            keys["id" if id_name == "row" else id_name] = list(data.ids[start : start + size])
        yield Predictions(keys, [str(name) for name in names], p, labels == 1 if threshold is None else p >= threshold)


class Predictions(NamedTuple):
    """Identifiers, probabilities and predicted labels of consecutive rows."""

    keys: DataFrame
    names: list[str]
    p: NDArray[np.floating[Any]]
    predicted: NDArray[np.bool_]

    def table(self, k: int | None = None) -> DataFrame:
        """Return a line per row: every label as 0 or 1, then the probability of every label; or one per rank up to k.

        The lines of ranks are the most probable labels in descending order, ties in the order of the labels.
        """
        import numpy as np
        import pandas as pd

        if k is None:
            labels = pd.DataFrame(self.predicted.astype(int), columns=self.names)
            probabilities = pd.DataFrame(self.p, columns=[f"p({name})" for name in self.names])
            return pd.concat([self.keys, labels, probabilities], axis=1)
        order = np.argsort(-self.p, axis=1, kind="stable")[:, :k]
        row = np.repeat(np.arange(len(order)), order.shape[1])
        return self.keys.iloc[row].assign(
            rank=np.tile(np.arange(1, order.shape[1] + 1), len(order)),
            label=np.array(self.names, dtype=object)[order.ravel()],
            probability=self.p[row, order.ravel()],
            predicted=self.predicted[row, order.ravel()].astype(int),
        )

    def records(self, k: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield for every row its predicted labels and the probabilities of all or of the k most probable labels."""
        for keys, predicted, p in zip(self.keys.to_dict("records"), self.predicted, self.p):
            best = range(len(p)) if k is None else (-p).argsort(kind="stable")[:k]
            chosen = [self.names[j] for j in best if predicted[j]]
            probability = {self.names[j]: float(p[j]) for j in best}
            yield {**{str(key): value for key, value in keys.items()}, "predicted": chosen, "probability": probability}
