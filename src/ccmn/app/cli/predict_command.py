"""``ccmn predict`` and ``ccmn evaluate``: apply a saved model to data, with columns matched by name."""

from __future__ import annotations

import csv
import io
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from ccmn.app.cli.noise_commands import check_rates_file, read_matching
from ccmn.app.cli.options import (
    Data,
    DataDir,
    Force,
    Json,
    Labels,
    Model,
    RatesFile,
    RowId,
    Separator,
    Tags,
    all_mistakes,
    check_fraction,
    check_output,
    check_source,
    read_roles,
)
from ccmn.app.cli.output import (
    PictureSize,
    ReportFile,
    print_json,
    print_table,
    read_picture_size,
    row_display,
    write_report,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ccmn.app.report.facts import MetricValue
    from ccmn.data import MultiLabelData
    from ccmn.data.columns import Columns
    from ccmn.metrics import RiskControl
    from ccmn.models import CCMNClassifier, CorrectedClassifier
    from ccmn.noise import NoiseModel

BLOCK_ENTRIES = 1 << 22
"""Predictions are made in blocks of rows with this number of probabilities, which bounds the memory."""
OTHER_FORMATS = (".xlsx", ".xls", ".parquet", ".json", ".jsonl", ".npz")
"""Endings of files that other programs would not read as CSV."""
MAX_STANDARD_ERRORS = 4
"""An estimated loss this many standard errors below zero is reported as inconsistent with the noise rates."""


def predict(
    model: Model,
    source: Data,
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
            help="Select the threshold that guarantees a metric on clean labels: recall=0.9, precision=0.8, fnr=0.1 or "
            "hamming=0.1. Requires --calibration.",
        ),
    ] = None,
    calibration: Annotated[
        str | None, typer.Option(metavar="DATA", help="Labeled rows for --control that the model was not trained on.")
    ] = None,
    labels: Labels = None,
    tags: Tags = None,
    sep: Separator = ";",
    row_id: RowId = None,
    noise: RatesFile = None,
    confidence: Annotated[
        float,
        typer.Option(metavar="P", callback=check_fraction, help="Probability that the target of --control is met."),
    ] = 0.9,
    data_dir: DataDir = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Predict labels and their probabilities with a saved model.

    The output has one line per row: every label as 0 or 1, then the probability p(label) of every label. Feature
    columns are matched by the names in the training data; other columns, such as labels, are ignored. Identifiers
    (--id, here or in ccmn fit) are copied to the output.

    With --control, a label is predicted if its probability is at least a threshold that is selected on the rows of
    --calibration. If the target cannot be guaranteed, nothing is predicted.

    Example: ccmn predict model.ccmn new.csv --out predictions.csv
    """
    with all_mistakes() as check:
        check(check_model, model)
        check(check_source, source, row_id=row_id, data_dir=data_dir)
        target = check(_read_control, control, calibration, labels, noise)
        check(check_rates_file, noise)
        check(_check_csv, out)
        check(check_output, out, force)
        if calibration is not None:
            rows_file = check(check_source, calibration, labels, tags, sep, data_dir=data_dir)
    from ccmn._files import atomic_write

    classifier, columns = _load(model)
    guarantee = None
    if target is not None and calibration is not None:
        rows = columns.read_labeled(calibration, roles=rows_file.roles, data_dir=data_dir)
        guarantee = _control(classifier, rows, noise, target, confidence)
        typer.echo(f"ccmn: note: {guarantee}", err=True)
    data = columns.read_rows(source, roles=read_roles(row_id=row_id), data_dir=data_dir)
    blocks = _predict_blocks(
        classifier, data, None if guarantee is None else guarantee.threshold, row_id or columns.roles.id or "id"
    )
    described = {} if guarantee is None else {"control": guarantee.to_dict()}
    if out is not None:
        with atomic_write(out) as stream:
            for block in blocks:
                block.write(stream, top)
        printed = {"out": str(out), "rows": data.n, **described}
        print_json(printed) if as_json else typer.echo(f"{out}: {data.n} rows")
    elif as_json:
        parts = list(blocks)
        cut = 0.5 if guarantee is None else guarantee.threshold
        predicted = [row for block in parts for row in block.to_dicts(top)]
        print_json({"labels": list(parts[0].label_names), "cut": cut, **described, "rows": predicted})
    else:
        for block in blocks:
            block.write(sys.stdout.buffer, top)


def evaluate(
    model: Model,
    source: Data,
    labels: Labels = None,
    tags: Tags = None,
    sep: Separator = ";",
    row_id: RowId = None,
    noise: RatesFile = None,
    report: ReportFile = None,
    picture: PictureSize = None,
    data_dir: DataDir = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Evaluate a saved model with all metrics.

    With --noise, the labels in DATA are noisy: the metrics on true labels are estimated, with standard errors. Label
    columns, or the column of tags, are matched by the names in the training data unless --labels or --tags is given.

    Example: ccmn evaluate model.ccmn test.csv
    """
    with all_mistakes() as check:
        check(check_model, model)
        file = check(check_source, source, labels, tags, sep, row_id=row_id, data_dir=data_dir)
        size = check(read_picture_size, picture)
        check(check_rates_file, noise)
        check(check_output, report, force)
    from ccmn._files import prefix_errors
    from ccmn.app.duplicates import count_duplicates
    from ccmn.app.report.facts import measure, out_of_range_note, rows_with_labels

    classifier, columns = _load(model)
    data = columns.read_labeled(source, roles=file.roles, data_dir=data_dir)
    rates = None if noise is None else read_matching(noise, columns.label_names, data.q)
    with prefix_errors(source):
        data = _observed_rows(data) if rates is None else data
    scores = classifier.decision_function(data.X).reshape(data.n, data.q)
    repeated = count_duplicates(data)
    figures = measure(data.Y, scores, rates)
    _warn_if_negative(figures["hamming_loss"])
    values = {
        name: figure.value if rates is None else {**asdict(figure), "out_of_range": figure.out_of_range}
        for name, figure in figures.items()
    }
    if report is not None:
        from ccmn.app.report.builders import evaluation_report

        display = row_display(data, data.Y, size, Path(source).parent, columns.table)
        write_report(evaluation_report(data, classifier, scores, rates, display, repeated), report)
    if as_json:
        result = {
            "n": data.n,
            "q": data.q,
            "noise": rates and rates.to_dict(),
            "duplicates": repeated._asdict(),
            "metrics": values,
        }
        print_json(result if report is None else {**result, "report": str(report)})
        return
    from ccmn.app.report.console import metrics_table

    print_table(metrics_table(values, data.n, int(rows_with_labels(data.Y).sum()), corrected=rates is not None))
    for bounds in sorted({figure.bounds for figure in figures.values() if figure.out_of_range}):
        typer.echo(out_of_range_note(bounds))
    if rates is None and not _is_clean(classifier.noise_):
        typer.echo(
            "If these labels are as noisy as the training labels, add --noise RATES.json (written by ccmn noise "
            "estimate --out): the metrics on the true labels are then estimated."
        )
    if note := repeated.note(data.n):
        typer.echo(note)
    if report is not None:
        typer.echo(f"report written to {report}")


def _is_clean(noise: NoiseModel) -> bool:
    """Return whether a noise model changes no label."""
    from ccmn.noise import ClassConditionalNoise

    return isinstance(noise, ClassConditionalNoise) and not (noise.rho_pos.any() or noise.rho_neg.any())


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


def check_model(path: Path) -> None:
    """Reject a model that does not exist."""
    if not path.exists():
        raise FileNotFoundError(f"model {path} does not exist")


def _check_csv(out: Path | None) -> None:
    if out is not None and out.suffix.lower() in OTHER_FORMATS:
        raise typer.BadParameter(f"--out writes CSV; got {out.name!r}. Use a name that ends in .csv")


def store_columns(classifier: CCMNClassifier, columns: Columns) -> None:
    """Store the names, roles and preprocessing of the columns with a model."""
    classifier.extra_["feature_names"] = None if columns.feature_names is None else list(columns.feature_names)
    if columns.table is not None:
        classifier.extra_["table"] = columns.table.to_dict()
        classifier.extra_["roles"] = columns.roles.to_dict()


def _load(path: Path) -> tuple[CCMNClassifier | CorrectedClassifier, Columns]:
    """Return a saved model and the columns that it reads from a file."""
    from ccmn._files import prefix_errors
    from ccmn.models import load_model

    classifier = load_model(path)
    with prefix_errors(path):
        return classifier, model_columns(classifier)


def model_columns(classifier: CCMNClassifier | CorrectedClassifier) -> Columns:
    """Return the columns that a model reads from a file."""
    from ccmn._validation import check_feature_names
    from ccmn.data.column_roles import ColumnRoles
    from ccmn.data.columns import Columns
    from ccmn.data.preprocessing import TablePreprocessor

    extra = classifier.extra_
    table = TablePreprocessor.from_dict(extra["table"]) if "table" in extra else None
    if table is not None:
        width, n_labels = len(table.feature_names_out_), classifier.noise_.n_labels
        if width != classifier.n_features_in_:
            raise ValueError(f"the model is damaged: it has {classifier.n_features_in_} features but {width} columns")
        roles = ColumnRoles.from_dict(extra.get("roles"))
        return Columns(width, n_labels, None, classifier.label_names_, table=table, roles=roles)
    names = extra.get("feature_names", getattr(classifier, "feature_names_in_", None))
    return Columns(
        n_features=classifier.n_features_in_,
        n_labels=classifier.noise_.n_labels,
        feature_names=check_feature_names(names, classifier.n_features_in_),
        label_names=classifier.label_names_,
    )


def _read_control(
    control: str | None, calibration: str | None, labels: str | None, noise: Path | None
) -> tuple[str, float] | None:
    """Return the metric and the target of ``--control``; None if it is not given."""
    if control is None:
        if calibration is not None or labels is not None or noise is not None:
            raise typer.BadParameter("--calibration, --labels and --noise require --control")
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
    classifier: CCMNClassifier | CorrectedClassifier, data: MultiLabelData, threshold: float | None, id_name: str
) -> Iterator[Predictions]:
    """Yield the predicted labels (or classes) and probabilities of consecutive blocks of rows.

    With ``threshold``, labels are predicted by their probability.
    """
    from ccmn._containers import to_dense_array

    X, size = data.X, max(1, BLOCK_ENTRIES // classifier.noise_.n_labels)
    for start in range(0, X.shape[0], size):
        rows = X[start : start + size]
        labels, p = to_dense_array(classifier.predict(rows)), classifier.predict_proba(rows)
        if labels.ndim == 1:
            names, predicted = list(classifier.classes_), labels[:, None] == classifier.classes_
        else:
            names, predicted = list(classifier.label_names_ or classifier.classes_), labels == 1
        if threshold is not None:
            predicted = p >= threshold
        ids = None if data.ids is None else data.ids[start : start + size]
        yield Predictions([str(name) for name in names], p, predicted, start, ids, id_name)


def _warn_if_negative(hamming: MetricValue) -> None:
    """Print a note if an estimated Hamming loss is significantly negative."""
    if hamming.se is not None and hamming.value < -MAX_STANDARD_ERRORS * hamming.se:
        typer.echo(
            f"ccmn: note: the estimated Hamming loss {hamming.value:.3f} (± {hamming.se:.3f}) is clearly below 0: "
            "the labels contain less noise than --noise states. If they are clean, omit --noise.",
            err=True,
        )


@dataclass(frozen=True)
class Predictions:
    """Predicted labels and probabilities of consecutive rows, to be written as CSV lines or JSON.

    Parameters
    ----------
    label_names : sequence of str
        Names of the q labels.
    probabilities : array of shape (n, q)
        Probability of every label.
    predicted : array of bool, shape (n, q)
        Labels that the model predicts, at its thresholds.
    first : int, default=0
        Number of the first row, if the rows are part of a larger table.
    ids : sequence of str, default=None
        Identifiers of the rows.
    id_name : str, default="id"
        Name of the column of identifiers.
    """

    label_names: Sequence[str]
    probabilities: NDArray[np.float64]
    predicted: NDArray[np.bool_]
    first: int = 0
    ids: Sequence[str] | None = None
    id_name: str = "id"

    def wide(self) -> Iterator[list[Any]]:
        """Yield a header and a line per row: every label as 0 or 1, then the probability of every label."""
        yield [*self._key_names, *self.label_names, *(f"p({name})" for name in self.label_names)]
        pairs = zip(self.predicted.astype(int).tolist(), self.probabilities.tolist())
        for row, (labels, p) in enumerate(pairs):
            yield [*self._keys(row), *labels, *(f"{value:.6g}" for value in p)]

    def top(self, k: int) -> Iterator[list[Any]]:
        """Yield a header and k lines per row: its most probable labels in descending order."""
        yield [*self._key_names, "rank", "label", "probability", "predicted"]
        for row, best in enumerate(self._order(k)):
            for rank, j in enumerate(best, start=1):
                p, predicted = self.probabilities[row, j], int(self.predicted[row, j])
                yield [*self._keys(row), rank, self.label_names[j], f"{p:.6g}", predicted]

    def to_dicts(self, k: int | None = None) -> list[dict[str, Any]]:
        """Return for every row its predicted labels and the probabilities of all or of the k most probable labels."""
        return [
            {
                **dict(zip(self._key_names, self._keys(row))),
                "predicted": [self.label_names[j] for j in best if self.predicted[row, j]],
                "probability": {self.label_names[j]: float(self.probabilities[row, j]) for j in best},
            }
            for row, best in enumerate(self._order(k))
        ]

    def write(self, stream: IO[bytes], k: int | None = None) -> None:
        """Write CSV in UTF-8, all labels or the k most probable ones; the header only if ``first`` is 0."""
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
        lines = self.wide() if k is None else self.top(k)
        if self.first:
            next(lines)
        csv.writer(text, lineterminator="\n").writerows(lines)
        text.flush()
        text.detach()

    @property
    def _key_names(self) -> list[str]:
        """Names of the columns that identify a row."""
        return ["row"] if self.ids is None else ["row", "id" if self.id_name == "row" else self.id_name]

    def _keys(self, row: int) -> list[Any]:
        """Return the number of a row, and its identifier if it is known."""
        return [self.first + row] if self.ids is None else [self.first + row, self.ids[row]]

    def _order(self, k: int | None) -> NDArray[np.intp]:
        """Return the k most probable labels of every row, ties in the order of the labels; all labels without ``k``."""
        import numpy as np

        if k is None:
            return np.tile(np.arange(len(self.label_names)), (len(self.probabilities), 1))
        return np.argsort(-self.probabilities, axis=1, kind="stable")[:, :k]
