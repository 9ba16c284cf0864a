"""Tables of cells: the terminal prints them, and HTML reports show the same ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ccmn.metrics import METRICS
from ccmn.noise import ClassConditionalNoise, NoiseModel, TransitionNoise

if TYPE_CHECKING:  # not imported at run time: each command needs only one of them
    import pandas as pd

    from ccmn.app.demo_task import DemoModel, DemoTask
    from ccmn.app.issues import Suspicions
    from ccmn.app.report.facts import MetricRow
    from ccmn.data.catalog import Dataset, PaperRow
    from ccmn.data.dataset import Characteristics
    from ccmn.estimation import NoiseRates

MAX_NAMED_LABELS = 5
"""A warning that concerns more labels names the first ones."""
ANNOTATOR_MEANS = ("agreement", "share_positive", "rho_pos", "rho_neg")
"""Columns of ``InferredLabels.annotators`` of which a table shows the mean over the votes of an annotator."""
DEMO_MODELS = {
    "clean": "true labels",
    "plain": "noisy labels",
    "unbiased": "noisy labels, true rates",
    "estimated": "noisy labels, estimated rates",
}
"""What the models of the demo are trained on."""

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
_LOCATIONS = {"folder": "in the folder", "cache": "in the cache", "": "-"}


class TableData(NamedTuple):
    """Cells of a table, with texts above and below it. The first cell of each row is its heading."""

    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    title: str = ""
    caption: str = ""


def decimals(value: float | None) -> str:
    """Return a number with three decimals; a dash if it is unknown."""
    return "–" if value is None or math.isnan(value) else f"{value:.3f}"


def plain_number(value: float | None) -> str:
    """Return an integer as it is, and a float with at most three decimals."""
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.3f}".rstrip("0").rstrip(".")


def label_names(noise: NoiseModel | NoiseRates) -> tuple[str, ...]:
    """Return the names of the labels, or their numbers."""
    return noise.label_names or tuple(map(str, range(noise.n_labels)))


def datasets_table(rows: Mapping[str, Dataset], places: Mapping[str, str]) -> TableData:
    """Return a table of all datasets with their sizes and whether they are on this machine."""
    cells = []
    for name, row in rows.items():
        sizes = (str(size) for size in (row.n, row.paper.d, row.paper.q))
        here = "no features" if not row.sources and not places[name] else _LOCATIONS[places[name]]
        cells.append((name, row.domain, *sizes, here, row.note))
    head = ("name", "domain", "rows", "features", "labels", "here", "note")
    return TableData(head, cells, caption="datasets that are not on this machine are downloaded when they are used")


def characteristics_table(described: Sequence[tuple[Characteristics, PaperRow | None]]) -> TableData:
    """Return the characteristics of datasets, with the values in the paper where they differ."""
    rows = []
    for field, meaning in _CHARACTERISTICS.items():
        cells = []
        for measured, paper in described:
            value, printed = getattr(measured, field), getattr(paper, field, None)
            # The paper truncates cardinalities after two decimals.
            same = printed is None or (int(value * 100) / 100 if isinstance(value, float) else value) == printed
            cells.append(plain_number(value) if same else f"{plain_number(value)} ({printed})")
        if any(cells):
            rows.append((meaning, *cells))
    caption = "in parentheses: the value in the paper, if it differs" if any(paper for _, paper in described) else ""
    return TableData(("", *(measured.name for measured, _ in described)), rows, caption=caption)


def rates_table(noise: NoiseModel | NoiseRates, true: ClassConditionalNoise | None = None) -> TableData:
    """Return the noise rates of every label, with intervals if they are estimated, or a transition matrix."""
    from ccmn.estimation import NoiseRates

    names = label_names(noise)
    if isinstance(noise, TransitionNoise):
        rows = [(name, *map(decimals, line)) for name, line in zip(names, noise.T.tolist())]
        return TableData(("true class", *names), rows, f"transition noise, {noise.n_labels} classes")
    if not isinstance(noise, (ClassConditionalNoise, NoiseRates)):
        raise TypeError(f"Expected ClassConditionalNoise or TransitionNoise; got {type(noise).__name__}")
    columns: dict[str, Sequence[str]] = {"label": names}
    for word, side in (("missing", "pos"), ("added", "neg")):
        columns[word] = [f"{rate:.3f}" for rate in getattr(noise, f"rho_{side}")]
        if isinstance(noise, NoiseRates):
            columns[f"{word}: interval"] = [f"{low:.2f} to {high:.2f}" for low, high in getattr(noise, f"ci_{side}")]
        if true is not None:
            columns[f"{word}: true"] = [f"{rate:.3f}" for rate in getattr(true, f"rho_{side}")]
    caption = "missing: rho_pos, true labels that are not given; added: rho_neg, absent labels that are given"
    if not isinstance(noise, NoiseRates):
        title = f"{noise.kind.replace('_', '-')} noise, {noise.n_labels} labels"
        return TableData(tuple(columns), list(zip(*columns.values())), title, caption)
    columns["given share"] = [f"{share:.3f}" for share in noise.n_pos / (noise.n_pos + noise.n_neg).clip(1)]
    columns["true share"] = [f"{share:.3f}" for share in noise.prior]
    caption += "; 90 % intervals, if errors depend only on the label"
    return TableData(tuple(columns), list(zip(*columns.values())), f"estimated noise, {noise.n_labels} labels", caption)


def rate_warnings(rates: NoiseRates) -> tuple[str, ...]:
    """Return the warnings about rates, one for all labels that they concern."""
    names, concerned = label_names(rates), dict[tuple[str, str], list[str]]()
    for flag in rates.flags:
        concerned.setdefault((flag.code, flag.note), []).append(
            "all labels" if flag.label is None else names[flag.label]
        )
    found = []
    for (code, note), labels in concerned.items():
        more = len(labels) - MAX_NAMED_LABELS
        named = ", ".join(labels[:MAX_NAMED_LABELS]) + (f" and {more} more" if more > 0 else "")
        found.append(f"{named}: {note} [{code}]")
    return tuple(found)


def agreement_table(agreement: pd.DataFrame) -> TableData:
    """Return how well annotators agree on each label."""
    rows = [
        (
            str(line["label"]),
            f"{line['votes']:,}",
            f"{line['share_positive']:.2f}",
            decimals(line["alpha"]),
            f"{100 * line['ties']:.0f} %",
        )
        for line in agreement.to_dict("records")
    ]
    caption = "Krippendorff's alpha: 1 perfect, 0 by chance; ties: equally many votes for and against"
    return TableData(("label", "votes", "share of 1", "alpha", "ties"), rows, "agreement", caption)


def annotator_table(annotators: pd.DataFrame) -> TableData:
    """Return the annotators of ``InferredLabels.annotators``, with means over their votes on all labels."""
    rows = []
    for name, lines in annotators.groupby("annotator", sort=False):
        weights = lines.votes / max(lines.votes.sum(), 1)
        means = (float((lines[column] * weights).sum()) for column in ANNOTATOR_MEANS)
        rows.append((str(name), f"{lines.votes.sum():,}", *(f"{mean:.3f}" for mean in means)))
    head = ("annotator", "votes", "agreement", "share of 1", "missing", "added")
    caption = "means over votes on all labels; agreement: expected share of votes that equal the true label"
    return TableData(head, rows, f"{len(rows)} annotators", caption)


def metric_title(name: str) -> str:
    """Return the name of a metric in words.

    >>> metric_title("hamming_loss"), metric_title("average_precision")
    ('Hamming loss', 'label ranking average precision')
    """
    if name in _METRIC_TITLES:
        return _METRIC_TITLES[name]
    words = {"hamming": "Hamming", "f1": "F1", "auc": "AUC"}
    return " ".join(words.get(word, word) for word in name.split("_"))


def directed_title(name: str) -> str:
    """Return the name of a metric in words, with an arrow in the direction of improvement."""
    return f"{metric_title(name)} {'↑' if METRICS[name].greater_is_better else '↓'}"


def metrics_table(columns: Sequence[MetricRow], caption: str = "") -> TableData:
    """Return a line per metric and a column per model; values outside the range of a metric have an asterisk."""
    rows = [(directed_title(name), *(column.values[name].text() for column in columns)) for name in columns[0].values]
    return TableData(("metric", *(column.name for column in columns)), rows, caption=caption)


def fit_summary(result: Mapping[str, Any]) -> str:
    """Return the result of ``ccmn fit`` as three or four lines of text.

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
    lines = [", ".join(f"{number} {noun}{'' if number == 1 else 's'}" for noun, number in counted.items())]
    lines.append(f"noise: {_fit_noise(result['noise'], result['noise_is_estimated'])}")
    if selected := result["validation"]:
        criterion = metric_title(selected["criterion"].replace("_and_", "_+_"))
        how = f"learning rate {selected['lr']:g}, epoch {selected['epoch']} of {selected['epochs']}"
        lines.append(f"validation {criterion} {selected['value']:.3f} ({how})")
    return "\n".join([*lines, f"saved to {result['model']}"])


def _fit_noise(noise: Mapping[str, Any], estimated: bool) -> str:
    kind = f"{noise['kind'].replace('_', '-')}, {'estimated' if estimated else 'as given'}"
    if "rho_pos" not in noise:
        return kind
    if not any((*noise["rho_pos"], *noise["rho_neg"])):
        return "none; labels are used without noise correction"
    ranges = []
    for rates in (noise["rho_pos"], noise["rho_neg"]):
        low, high = f"{min(rates):.2f}", f"{max(rates):.2f}"
        ranges.append(low if low == high else f"{low} to {high}")
    return f"{kind}; missing-label rate {ranges[0]}, added-label rate {ranges[1]}"


def expected_table(found: Suspicions, names: Sequence[str]) -> TableData | None:
    """Return the expected numbers of wrong labels; None if error probabilities are not known."""
    expected = found.expected()
    if expected is None:
        return None
    rows = []
    for j, (name, false, missing) in enumerate(zip(names, *expected)):
        given, absent = ((found.given[:, j] == value).sum() for value in (1, 0))
        rows.append((name, f"{given:,}", f"{false:.0f}", f"{absent:,}", f"{missing:.0f}"))
    head = ("label", "given", "false", "not given", "missing")
    return TableData(head, rows, "expected number of wrong labels", "sums of the error probabilities")


def rows_table(shown: pd.DataFrame, sets: Sequence[Mapping[str, Any]], title: str) -> TableData:
    """Return one line per row: its labels, and what is suspicious in the order of suspicion."""
    rows = []
    for line in sets:
        issues = shown[shown.row == line["row"]].to_dict("records")
        marks = (
            f"{'-' if issue['given'] else '+'} {issue['label']}"
            + ("" if math.isnan(issue["p_wrong"]) else f" {issue['p_wrong']:.2f}")
            for issue in issues
        )
        identifier = [str(issues[0]["id"])] if "id" in shown.columns else []
        rows.append((str(line["row"]), *identifier, ", ".join(line["given"]) or "–", "\n".join(marks)))
    head = ("row", *(["id"] if "id" in shown.columns else []), "labels given", "suspicious")
    return TableData(head, rows, title, "- label: given, perhaps false; + label: not given, perhaps missing")


def demo_description(task: DemoTask) -> str:
    """Return a description of the data of the demo."""
    noise = task.noise
    return (
        f"{len(task.X)} training pictures with several handwritten digits each, {len(task.X_test)} test pictures "
        f"by other writers.\n{task.wrong_labels:.0%} of the training labels are wrong: missing-label rates "
        f"{noise.rho_pos.min():g} to {noise.rho_pos.max():g}, added-label rates {noise.rho_neg.min():g} to "
        f"{noise.rho_neg.max():g}.\n"
    )


def demo_table(rows: Sequence[DemoModel]) -> TableData:
    """Return the comparison of the models of the demo."""
    cells = []
    for row in rows:
        values = (row.hamming_loss, row.ranking_loss, row.average_precision)
        cells.append((row.loss, DEMO_MODELS[row.strategy], *map(decimals, values)))
    caption = "on true test labels; the linear models differ only in the labels and the noise rates used for training"
    head = ("loss", "trained on", "Hamming\nloss ↓", "ranking\nloss ↓", "average\nprecision ↑")
    return TableData(head, cells, caption=caption)
