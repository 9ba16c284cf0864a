"""``ccmn votes``: consensus labels from the votes of several annotators."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ccmn.app.cli import options as opt
from ccmn.app.cli import output
from ccmn.app.files import write_csv

if TYPE_CHECKING:
    from pandas import DataFrame

    from ccmn.data import MultiLabelData
    from ccmn.vote_table import VoteTable
    from ccmn.votes import InferredLabels


def votes(
    context: typer.Context,
    source: Annotated[
        str, typer.Argument(metavar="VOTES", help="Table with one line per vote (CSV, Parquet).", show_default=False)
    ],
    columns: Annotated[
        str,
        typer.Option(
            "--votes",
            metavar="COLUMNS",
            help="Columns ITEM,ANNOTATOR,LABEL or ITEM,ANNOTATOR,LABEL,VALUE. Without VALUE, every line is an assigned "
            "label.",
        ),
    ] = "item,annotator,label",
    items: opt.Items = None,
    text: opt.Text = None,
    image: opt.Image = None,
    row_id: opt.RowId = None,
    ignore: opt.Ignore = None,
    out: Annotated[
        Path | None, typer.Option(metavar="CSV", help="Write the consensus labels and their probabilities.")
    ] = None,
    random_state: opt.RandomState = 0,
    force: opt.Force = False,
    as_json: opt.Json = False,
) -> None:
    """Infer consensus labels, and the error rates of the annotators, from votes.

    The consensus weighs every vote by the estimated error rates of its annotator, and by a model of the features if
    there are any. It also prints how well the annotators agree on each label.

    Example: ccmn votes votes.csv --votes item,worker,emotion --out consensus.csv
    """
    with opt.all_mistakes() as check:
        file = check(opt.check_source, source, {**context.params, "votes": columns})
        check(opt.check_output, out, force, suffixes=(".csv",))
    from ccmn.app.report.tables import agreement_table, annotator_table
    from ccmn.votes import infer_labels

    _, data = file.read()
    inferred = infer_labels(data.votes, data.X if data.d else None, random_state)
    agreement, table = label_agreement(inferred.votes), _consensus(data, inferred)
    if out is not None:
        write_csv(table, out, "%.4g")
    n, n_annotators, q = inferred.votes.shape
    counts = {"n": n, "annotators": n_annotators, "q": q, "votes": int(inferred.votes.value.size)}
    if as_json:
        listed = {"agreement": agreement.to_dict("records"), "annotator_rates": inferred.annotators.to_dict("records")}
        output.print_json({**counts, **listed, "out": out and str(out)})
        return
    typer.echo("{n:,} items, {annotators:,} annotators, {q:,} labels, {votes:,} votes".format(**counts))
    output.print_table(agreement_table(agreement))
    output.print_table(annotator_table(inferred.annotators))
    if out is None:
        opt.print_next(opt.shell_command("votes", source, votes=columns, out=opt.unused_name("consensus.csv")))
        return
    typer.echo(f"{out}: {n:,} items; columns {', '.join(map(repr, table.columns[:3]))} ...")


def label_agreement(votes: VoteTable) -> DataFrame:
    r"""Return how well the annotators agree on each label: Krippendorff's alpha and the share of ties.

    With m_u >= 2 votes on item u, of which n_u0 and n_u1 are 0 and 1, and their sums N, N_0 and N_1 over items,

    .. math:: \alpha = 1 - \frac{\sum_u n_{u0} n_{u1} / (m_u - 1)}{N_0 N_1 / (N - 1)}

    Votes that are probabilities are rounded. Alpha is 1 for perfect agreement and 0 for agreement by chance.
    """
    import numpy as np
    import pandas as pd

    n, _, q = votes.shape
    ones = np.bincount(votes.cell, votes.value > 0.5, n * q).reshape(n, q)
    total = votes.count()
    shared = total >= 2
    zeros = total - ones
    observed = np.where(shared, zeros * ones / np.maximum(total - 1, 1), 0).sum(0)
    n_zeros, n_ones = (np.where(shared, part, 0).sum(0) for part in (zeros, ones))
    expected = n_zeros * n_ones / np.maximum(n_zeros + n_ones - 1, 1)
    alpha = np.where(expected > 0, 1 - observed / np.where(expected > 0, expected, 1), np.nan)
    ties = np.where(shared & (ones == zeros), 1, 0).sum(0) / np.maximum(shared.sum(0), 1)
    columns = {"votes": total.sum(0), "share_positive": ones.sum(0) / np.maximum(total.sum(0), 1)}
    names = [str(name) for name in votes.label_names or range(q)]
    return pd.DataFrame({"label": names, **columns, "alpha": alpha, "ties": ties})


def _consensus(data: MultiLabelData, inferred: InferredLabels) -> DataFrame:
    """Return the consensus: the item, its labels as 0 and 1, and their probabilities."""
    import pandas as pd

    names = [str(name) for name in data.label_names or range(data.q)]
    labels = pd.DataFrame(inferred.labels, columns=names)
    proba = pd.DataFrame(inferred.proba, columns=[f"p({name})" for name in names])
    ids = range(data.n) if data.ids is None else list(data.ids)
    item = "item" if "item" not in names else "item_id"
    return pd.concat([pd.DataFrame({item: ids}), labels, proba], axis=1)
