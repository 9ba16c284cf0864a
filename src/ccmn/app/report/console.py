"""Tables and summaries that the commands print in a terminal, as rich renderables or text."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import markup
from rich.console import Group
from rich.table import Table

from ccmn.metrics import METRICS
from ccmn.noise import ClassConditionalNoise, NoiseModel, TransitionNoise

if TYPE_CHECKING:  # not imported at run time: each command needs only one of them
    import pandas as pd

    from ccmn.app.demo_task import DemoRow, DemoTask
    from ccmn.app.issues import Suspicions
    from ccmn.data.catalog import Dataset, PaperRow
    from ccmn.data.dataset import Characteristics
    from ccmn.estimation import NoiseRates

MAX_FLAGS = 5
"""Number of warnings about noise rates that are printed below a table."""
ANNOTATOR_MEANS = ("agreement", "share_positive", "rho_pos", "rho_neg")
"""Columns of ``InferredLabels.annotators`` of which a table shows the mean over the votes of an annotator."""

_CHARACTERISTICS = {
    "n": "rows",
    "d": "features",
    "q": "labels",
    "cardinality": "labels per row",
    "label_density": "share of labels that are 1",
    "feature_density": "share of features that are not 0",
    "candidate_size": "candidates per row",
    "positives_min": "positives of the rarest label",
    "positives_median": "positives of the median label",
    "positives_max": "positives of the most frequent label",
    "rows_without_features": "rows whose features are all 0",
    "duplicate_rows": "rows with the same features as an earlier row",
}
_METRIC_TITLES = {
    "average_precision": "label ranking average precision",
    "mean_average_precision": "mean average precision of the labels",
}
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_LOCATIONS = {"folder": "in the folder", "cache": "in the cache", "": "-"}
_CRITERIA = {
    "hamming_loss": "Hamming loss",
    "ranking_and_hamming_loss": "ranking + Hamming loss",
    "one_error": "one-error",
}
_DEMO_MODELS = {
    "clean": "true labels",
    "plain": "noisy labels",
    "unbiased": "noisy, unbiased",
    "estimated": "noisy, rates estimated",
}


def escape(text: str) -> str:
    r"""Return text from data so that neither rich nor the terminal interprets it.

    Markup of rich is escaped. Control characters, which could change the terminal, and characters that change the
    direction of text are shown by their codes.

    >>> escape("[red]\x1b[2Jsea")
    '\\[red]\\x1b[2Jsea'
    """
    return markup.escape(_CONTROLS.sub(lambda found: repr(found[0])[1:-1], text))


def datasets_table(rows: Mapping[str, Dataset], places: Mapping[str, str]) -> Table:
    """Return a table of all datasets with their sizes and whether they are on this machine."""
    table = Table(caption="datasets that are not on this machine are downloaded when they are used")
    for column in ("name", "domain"):
        table.add_column(column, no_wrap=True)
    for column in ("rows", "features", "labels"):
        table.add_column(column, justify="right")
    table.add_column("here", no_wrap=True)
    table.add_column("note")
    for name, row in rows.items():
        sizes = (str(size) for size in (row.n, row.paper.d, row.paper.q))
        here = "no features" if not row.sources and not places[name] else _LOCATIONS[places[name]]
        table.add_row(name, row.domain, *sizes, here, row.note)
    return table


def appendix_table(described: Sequence[tuple[Characteristics, PaperRow | None]]) -> Table:
    """Return the appendix table of the paper, a row per dataset, with the printed values where they differ."""
    table = Table(caption="measured; in parentheses: the value in the paper, if it differs")
    table.add_column("data", no_wrap=True)
    table.add_column("domain")
    for column in ("n", "d", "q", "labels\nper row", "candidates\nper row"):
        table.add_column(column, justify="right")
    for measured, paper in described:
        cells = []
        for field in ("n", "d", "q", "cardinality"):
            value, printed = getattr(measured, field), getattr(paper, field, None)
            # The paper truncates cardinalities after two decimals.
            same = printed is None or (int(value * 100) / 100 if isinstance(value, float) else value) == printed
            cells.append(_number(value) if same else f"{_number(value)} ({printed})")
        table.add_row(escape(measured.name), measured.domain, *cells, _number(measured.candidate_size))
    return table


def characteristics_table(measured: Characteristics, paper: PaperRow | None) -> Table:
    """Return all characteristics of one dataset, next to those printed in the paper."""
    table = Table(title=escape(measured.name) if measured.name else None)
    table.add_column("")
    table.add_column("measured", justify="right")
    if paper is not None:
        table.add_column("printed", justify="right")
    for field, meaning in _CHARACTERISTICS.items():
        value = getattr(measured, field)
        printed = [_number(getattr(paper, field, None))] if paper is not None else []
        if value is not None:
            table.add_row(meaning, _number(value), *printed)
    return table


def _number(value: float | None) -> str:
    """Return an integer as it is, and a float with at most three decimals."""
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.3f}".rstrip("0").rstrip(".")


def noise_table(noise: NoiseModel) -> Table:
    """Return the rates of every label, or the transition matrix of classes."""
    if isinstance(noise, TransitionNoise):
        return _transition_table(noise)
    if not isinstance(noise, ClassConditionalNoise):
        raise TypeError(f"Expected ClassConditionalNoise or TransitionNoise; got {type(noise).__name__}")
    table = Table(title=f"{noise.kind.replace('_', '-')} noise, {noise.n_labels} labels")
    table.add_column("label", no_wrap=True)
    for column in ("missing\nrho_pos", "added\nrho_neg", "signal\n1 - sum"):
        table.add_column(column, justify="right")
    for name, rho_pos, rho_neg in zip(_names(noise), noise.rho_pos, noise.rho_neg):
        table.add_row(escape(name), f"{rho_pos:.3f}", f"{rho_neg:.3f}", f"{1 - rho_pos - rho_neg:.3f}")
    return table


def _transition_table(noise: TransitionNoise) -> Table:
    names = [escape(name) for name in _names(noise)]
    table = Table(title=f"transition noise, {noise.n_labels} classes", caption="rows: true class")
    table.add_column("", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right")
    for name, row in zip(names, noise.T):
        table.add_row(name, *(f"{p:.3f}" for p in row))
    return table


def estimate_table(rates: NoiseRates) -> Group:
    """Return estimated rates with confidence intervals, followed by the first warnings about them."""
    names = _names(rates)
    table = Table(
        title=f"estimated noise, {rates.n_labels} labels",
        caption="in parentheses: 90 % intervals, if errors depend only on the label",
    )
    table.add_column("label", no_wrap=True)
    for column in ("given\nshare", "missing\nrho_pos", "", "added\nrho_neg", "", "true\nshare"):
        table.add_column(column, justify="right", no_wrap=True)
    share = rates.n_pos / (rates.n_pos + rates.n_neg).clip(1)
    for j, name in enumerate(names):
        rho_pos, rho_neg = f"{rates.rho_pos[j]:.3f}", f"{rates.rho_neg[j]:.3f}"
        cells = (f"{share[j]:.3f}", rho_pos, _interval(rates.ci_pos[j]), rho_neg, _interval(rates.ci_neg[j]))
        table.add_row(escape(name), *cells, f"{rates.prior[j]:.3f}")
    notes = [
        f"! {'all labels' if flag.label is None else names[flag.label]}: {flag.note} [{flag.code}]"
        for flag in rates.flags[:MAX_FLAGS]
    ]
    rest = len(rates.flags) - len(notes)
    notes += [f"! ... and {rest} more (use --json to print all of them)"] if rest else []
    return Group(table, *(escape(note) for note in notes))


def agreement_table(agreement: pd.DataFrame) -> Table:
    """Return how well annotators agree on each label."""
    table = Table(
        title="agreement",
        caption="Krippendorff's alpha: 1 perfect, 0 by chance; ties: equally many votes for and against",
    )
    table.add_column("label", no_wrap=True)
    for column in ("votes", "share of 1", "alpha", "ties"):
        table.add_column(column, justify="right", no_wrap=True)
    for line in agreement.to_dict("records"):
        table.add_row(
            escape(line["label"]),
            f"{line['votes']:,}",
            f"{line['share_positive']:.2f}",
            _decimals(line["alpha"]),
            f"{100 * line['ties']:.0f} %",
        )
    return table


def annotator_table(annotators: pd.DataFrame) -> Table:
    """Return the annotators of ``InferredLabels.annotators``, with means over their votes on all labels."""
    table = Table(title=f"{annotators.annotator.nunique()} annotators", caption="means over votes on all labels")
    table.add_column("annotator", no_wrap=True)
    for column in ("votes", "agreement", "share of 1", "missing\nrho_pos", "added\nrho_neg"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, lines in annotators.groupby("annotator", sort=False):
        weights = lines.votes / max(lines.votes.sum(), 1)
        means = (float((lines[column] * weights).sum()) for column in ANNOTATOR_MEANS)
        table.add_row(escape(str(name)), f"{lines.votes.sum():,}", *(f"{mean:.3f}" for mean in means))
    return table


def _interval(ends: Sequence[float]) -> str:
    return "" if ends[0] == ends[1] else f"({ends[0]:.2f}, {ends[1]:.2f})"


def _names(noise: NoiseModel | NoiseRates) -> tuple[str, ...]:
    return noise.label_names or tuple(str(j) for j in range(noise.n_labels))


def metric_title(name: str) -> str:
    """Return the name of a metric in words.

    >>> metric_title("hamming_loss"), metric_title("average_precision")
    ('Hamming loss', 'label ranking average precision')
    """
    if name in _METRIC_TITLES:
        return _METRIC_TITLES[name]
    words = {"hamming": "Hamming", "f1": "F1", "auc": "AUC"}
    return " ".join(words.get(word, word) for word in name.split("_"))


def metrics_table(values: Mapping[str, Any], n: int, n_labeled: int, *, corrected: bool) -> Table:
    """Return a table of metrics with arrows in the direction of improvement.

    A value is a number or, if ``corrected``, a mapping with "value", "se", "status", "bounds" and "out_of_range".
    Values outside the range of their metric are marked with an asterisk, which ``out_of_range_note`` explains.
    """
    kind = (
        "estimated for the true labels from noisy labels; ±: standard error" if corrected else "on the labels as given"
    )
    ranked = f"; metrics of the order of labels: the {n_labeled:,} rows with a label" if n_labeled < n else ""
    table = Table(caption=f"{n:,} rows, {kind}{'' if corrected else ranked}")
    table.add_column("metric", no_wrap=True)
    table.add_column("value", justify="right")
    if corrected:
        table.add_column("±", justify="right")
        table.add_column("estimate")
    for name, value in values.items():
        title = f"{metric_title(name)} {'↑' if METRICS[name].greater_is_better else '↓'}"
        if corrected:
            mark = "*" if value["out_of_range"] else ""
            table.add_row(title, _decimals(value["value"], mark), _decimals(value["se"]), value["status"])
        else:
            table.add_row(title, _decimals(value))
    return table


def fit_summary(result: Mapping[str, Any]) -> str:
    """Return the result of ``ccmn fit`` as four lines of text.

    >>> noise = {"kind": "partial", "rho_pos": [0.0, 0.0], "rho_neg": [0.1, 0.3]}
    >>> validation = {"criterion": "hamming_loss", "value": 0.25, "lr": 0.05, "epoch": 7, "epochs": 20}
    >>> print(fit_summary({"model": "m.ccmn", "n": 9, "d": 3, "q": 2, "noise": noise, "noise_is_estimated": True,
    ...                    "validation": validation}))
    9 rows, 3 features, 2 labels
    noise: partial, estimated; missing-label rate 0.00, added-label rate 0.10 to 0.30
    validation Hamming loss 0.250 (learning rate 0.05, epoch 7 of 20)
    saved to m.ccmn
    """
    counted = {"row": result["n"], "feature": result["d"], "label": result["q"]}
    size = ", ".join(f"{number} {noun}{'' if number == 1 else 's'}" for noun, number in counted.items())
    noise = _fit_noise(result["noise"], result["noise_is_estimated"])
    return f"{size}\nnoise: {noise}\n{_fit_validation(result['validation'])}saved to {result['model']}"


def _decimals(value: float | None, mark: str = "") -> str:
    return "–" if value is None or math.isnan(value) else f"{value:.3f}{mark}"


def _fit_validation(selected: Mapping[str, Any] | None) -> str:
    """Return the criterion of the selected configuration, see ``CCMNClassifier.selected_``."""
    if not selected:
        return ""
    how = ""
    if "lr" in selected:
        how = f" (learning rate {selected['lr']:g}, epoch {selected['epoch']} of {selected['epochs']})"
    return f"validation {_CRITERIA[selected['criterion']]} {selected['value']:.3f}{how}\n"


def _fit_noise(noise: Mapping[str, Any], estimated: bool) -> str:
    kind = f"{noise['kind'].replace('_', '-')}, {'estimated' if estimated else 'as given'}"
    if "rho_pos" not in noise:
        return kind
    if not any((*noise["rho_pos"], *noise["rho_neg"])):
        return "none; labels are used without noise correction"
    rates = f"missing-label rate {_range(noise['rho_pos'])}, added-label rate {_range(noise['rho_neg'])}"
    return f"{kind}; {rates}"


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"


def audit_tables(
    found: Suspicions, shown: pd.DataFrame, sets: Sequence[Mapping[str, Any]], names: Sequence[str], n_listed: int
) -> Group:
    """Return the expected number of wrong labels, if it is known, and the first rows with suspicious labels."""
    from ccmn.app.issues import RANKING_NOTE

    expected = found.expected()
    if expected is None:
        return Group(_rows_table(shown, sets, f"the {len(sets)} most suspicious rows"), RANKING_NOTE)
    summary = Table(title="expected number of wrong labels", caption="sums of the error probabilities")
    summary.add_column("label", no_wrap=True)
    for column in ("given", "false", "not given", "missing"):
        summary.add_column(column, justify="right", no_wrap=True)
    for j, (name, false, missing) in enumerate(zip(names, *expected)):
        given, absent = ((found.given[:, j] == value).sum() for value in (1, 0))
        summary.add_row(escape(name), f"{given:,}", f"{false:.0f}", f"{absent:,}", f"{missing:.0f}")
    if not len(shown):
        return Group(summary, "no label has an error probability as large as asked for (--min-p-wrong)")
    return Group(summary, _rows_table(shown, sets, f"first {len(sets)} rows with {n_listed:,} listed labels"))


def _rows_table(shown: pd.DataFrame, sets: Sequence[Mapping[str, Any]], title: str) -> Table:
    """Return one line per row: its labels, and what is suspicious in the order of suspicion."""
    table = Table(title=title, caption="- label: given, perhaps false; + label: not given, perhaps missing")
    table.add_column("row", justify="right")
    if "id" in shown.columns:
        table.add_column("id", no_wrap=True)
    table.add_column("labels given")
    table.add_column("suspicious")
    for line in sets:
        issues = shown[shown.row == line["row"]].to_dict("records")
        marks = []
        for issue in issues:
            p = "" if math.isnan(issue["p_wrong"]) else f" {issue['p_wrong']:.2f}"
            marks.append(f"{'-' if issue['given'] else '+'} {escape(str(issue['label']))}{p}")
        identifier = [escape(str(issues[0]["id"]))] if "id" in shown.columns else []
        given = escape(", ".join(line["given"])) or "–"
        table.add_row(str(line["row"]), *identifier, given, "\n".join(marks))
    return table


def demo_table(task: DemoTask, rows: Sequence[DemoRow]) -> Group:
    """Return the comparison of the demo, preceded by a description of the data."""
    noise = task.noise
    head = (
        f"{len(task.X)} training pictures with several handwritten digits each, {len(task.X_test)} test pictures "
        f"by other writers.\n{task.wrong_labels:.0%} of the training labels are wrong: missing-label rates "
        f"{noise.rho_pos.min():g} to {noise.rho_pos.max():g}, added-label rates {noise.rho_neg.min():g} to "
        f"{noise.rho_neg.max():g}.\n"
    )
    caption = "on true test labels; the linear models differ only in the labels and the noise rates used for training"
    table = Table(caption=caption)
    table.add_column("loss")
    table.add_column("trained on", no_wrap=True)
    for column in ("Hamming\nloss ↓", "ranking\nloss ↓", "average\nprecision ↑"):
        table.add_column(column, justify="right")
    first, *_, last = _DEMO_MODELS
    for row in rows:
        table.add_row(
            row.loss if row.strategy == first else "",
            _DEMO_MODELS[row.strategy],
            *(f"{value:.3f}" for value in (row.hamming_loss, row.ranking_loss, row.average_precision)),
            style="bold" if row.strategy == "unbiased" else None,
            end_section=row.strategy == last,
        )
    return Group(head, table)
