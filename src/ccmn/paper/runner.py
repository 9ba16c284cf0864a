"""Experiments of the paper's tables: load the data, plan groups of cells, run cells without a result, store them.

A cell is one method in one repeat (random split and noise) on one dataset under one protocol. A column contains the
cells of all methods on one dataset. A group contains cells that run together: a fleet, or one competing method.
"""

from __future__ import annotations

import json
import platform
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import normalize
from torch import Tensor

from ccmn._files import PathLike, data_name, fingerprint
from ccmn._registry import Registry
from ccmn._validation import FloatArray
from ccmn._version import __version__
from ccmn.data import load_digit_scenes
from ccmn.data.catalog import DATASETS, load_dataset
from ccmn.data.dataset import MultiLabelData
from ccmn.noise import ClassConditionalNoise, PartialNoise
from ccmn.paper.baselines import BASELINES, PMLNI, Baseline
from ccmn.paper.baselines.pml_ni import RangeScaler
from ccmn.paper.fleet import Fleet, FleetSettings, HeldOutSet, Outcome, criteria, group_methods
from ccmn.paper.protocols import Protocol, Repeat, make_repeat
from ccmn.paper.result_store import Cell, Result, ResultStore
from ccmn.paper.tables import METHODS, TABLES, Method, PaperTable
from ccmn.training.default_model import NoisyLabelModel

DIGITS = "digits"
"""Name of the bundled dataset: images with several handwritten digits, composed from the digits of scikit-learn."""
PROCEDURE = 2
"""Version of the procedure. Increase it if a change of the code alters results, so that stored ones are not reused."""


# -- Prepare: tables and data


@dataclass(frozen=True, eq=False)
class Column:
    """Column of a table: a dataset under one protocol, with the settings that its cells share."""

    table: PaperTable
    protocol: Protocol
    dataset: str
    data: MultiLabelData
    random_state: int = 0

    @cached_property
    def configuration(self) -> str:
        """Canonical JSON of all settings that determine the results, except the method and the repeat.

        The keys of stored results are hashes of this text. Its names and values must not change.
        """
        configuration = {
            **self.protocol.to_dict(self.dataset),
            "model": self.table.model,
            "metrics": self.table.metrics,
            "seed": self.random_state,
            "data": fingerprint(self.data.X, self.data.Y, self.data.candidates),
            "procedure": PROCEDURE,
        }
        return json.dumps(configuration, sort_keys=True)

    @property
    def settings(self) -> FleetSettings:
        """Settings of the fleets that train the cells."""
        protocol = self.protocol
        return FleetSettings(
            self.table.model,
            protocol.learning_rates,
            protocol.epochs,
            protocol.batch_size(self.dataset),
            protocol.weight_decay,
            self.table.metrics,
            refit=protocol.refit,
        )

    def cell(self, method: str, repeat: int) -> Cell:
        """Return the cell of a method in a repeat."""
        return Cell(self.table.name, self.protocol.name, self.dataset, method, repeat, self.data.n, self.configuration)


class PreparedTables(NamedTuple):
    """Columns to run, and the reason for every dataset that is not available."""

    columns: list[Column]
    absent: dict[str, str]


def prepare(
    tables: Sequence[str],
    *,
    datasets: Sequence[str] | None = None,
    protocols: Sequence[str] | None = None,
    data_dir: PathLike | None = None,
    small: bool = False,
    random_state: int = 0,
) -> PreparedTables:
    """Load the datasets of the tables and return the columns to run.

    The parameters are those of :func:`run_table`. A dataset in ``datasets`` that is not available is an error; datasets
    of the tables that are not available are listed with the reason.
    """
    known = dict.fromkeys(p.name for name in tables for p in TABLES[name].protocols)
    for protocol in protocols or ():
        if protocol not in known:
            raise ValueError(f"{', '.join(tables)} has no protocol {protocol}; expected one of {', '.join(known)}")
    columns, absent = [], {}
    for table in (TABLES[name] for name in tables):
        if small:
            short = tuple(replace(p, epochs=10) for p in table.protocols)
            table = replace(table, datasets=(DIGITS,), repeats=2, protocols=short)
        for dataset in datasets or table.datasets:
            name = column_name(str(dataset))
            selected = [p for p in table.protocols_for(name) if protocols is None or p.name in protocols]
            try:
                data = load(table, str(dataset), data_dir) if selected else None
            except (FileNotFoundError, ValueError) as error:  # not available, or not the expected file
                if datasets:
                    raise
                absent[dataset] = str(error).splitlines()[0]
                continue
            columns += [Column(table, p, name, data, random_state) for p in selected if data is not None]
    if not columns:
        reasons = "; ".join(f"{name}: {why}" for name, why in absent.items())
        raise ValueError(f"nothing to run: no dataset of {', '.join(tables)} is available ({reasons})")
    return PreparedTables(columns, absent)


def column_name(dataset: str) -> str:
    """Return the name of a column: the name of its dataset or of its file.

    >>> column_name("yeast"), column_name("folder/mine.csv")
    ('yeast', 'mine')
    """
    return dataset if dataset in DATASETS or dataset == DIGITS else data_name(Path(dataset))


def load(table: PaperTable, dataset: str, data_dir: PathLike | None = None) -> MultiLabelData:
    """Return the data of a column, with the scaling and the labels of the table."""
    if dataset == DIGITS:
        return load_digit_scenes(1000)
    data = load_dataset(table.files.get(dataset, dataset), data_dir=data_dir)
    if dataset in table.unit_rows:
        data = replace(data, X=normalize(data.X))
    dropped = list(table.dropped_labels.get(dataset, ()))
    if not dropped:
        return data
    names = None if data.label_names is None else tuple(np.delete(data.label_names, dropped))
    candidates = None if data.candidates is None else np.delete(data.candidates, dropped, axis=1)
    return replace(data, Y=np.delete(data.Y, dropped, axis=1), candidates=candidates, label_names=names)


# -- Plan, run, store


@dataclass(frozen=True)
class CellGroup:
    """Cells that are run and stored together: the cells of a fleet, or one fit of a competing method."""

    column: Column
    methods: tuple[str, ...]
    repeats: tuple[int, ...]

    @property
    def cells(self) -> list[Cell]:
        """Cells of all methods and repeats."""
        return [self.column.cell(m, r) for m in self.methods for r in self.repeats]

    @property
    def cost(self) -> float:
        """Estimate that is roughly proportional to the run time, for progress bars."""
        data, n_rates = self.column.data, len(self.column.protocol.learning_rates)
        work = self.column.protocol.epochs * data.n * (data.d + data.q) * data.q
        return float(len(self.cells) * n_rates * (work + 1e7))


@dataclass(frozen=True)
class GroupFinished:
    """Progress after a group was stored: the number of its cells that failed, and estimated costs.

    ``cost`` is that of all finished groups, including those that were stored before, ``total`` that of all groups.
    """

    group: CellGroup
    failed: int
    cost: float
    total: float


def run_columns(
    columns: Sequence[Column],
    store: ResultStore,
    *,
    methods: Sequence[str] | None = None,
    device: str = "cpu",
    jobs: int | None = None,
    retry_failed: bool = False,
    on_progress: Callable[[GroupFinished], None] | None = None,
) -> list[CellGroup]:
    """Run every cell of the columns that has no result in the store, and return all groups.

    Each group of cells is stored in one transaction as soon as it is finished, by the calling process. At most the
    groups that were running are lost by an interruption. The parameters are those of :func:`run_table`.
    """
    groups = plan(columns, methods, device=device)
    parts = [without_stored(group, store, retry_failed) for group in groups]
    tasks = [delayed(run_group)(part, device) for part in parts if part is not None]
    group_of = {cell: group for group in groups for cell in group.cells}
    total = sum(group.cost for group in groups)
    cost = sum(group.cost for group, part in zip(groups, parts) if part is None)
    # max_nbytes: joblib would send large arrays as read-only memory maps, which torch does not support.
    parallel = Parallel(jobs, return_as="generator_unordered", batch_size=1, max_nbytes=None)
    try:
        with closing(parallel(tasks)) as finished:  # stops the workers immediately if storing or the callback fails
            for results in finished:
                store.append(results)
                group = group_of[results[0].cell]
                cost += group.cost
                if on_progress is not None:
                    on_progress(GroupFinished(group, sum(r.failed for r in results), cost, total))
    except BrokenProcessPool:
        raise ChildProcessError(
            "a worker process was killed or ran out of memory. Finished results are stored; run again to continue, "
            "with fewer jobs if memory is short"
        ) from None
    return groups


def run_table(
    table: str,
    store: PathLike = "results.db",
    *,
    datasets: Sequence[str] | None = None,
    protocols: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    data_dir: PathLike | None = None,
    small: bool = False,
    random_state: int = 0,
    device: str = "cpu",
    jobs: int | None = None,
    retry_failed: bool = False,
    on_progress: Callable[[GroupFinished], None] | None = None,
) -> list[Result]:
    """Run a table of the paper: every cell that has no result in the store.

    An interrupted run continues when it is started again with the same store. Cells run with joblib: any of its
    backends can distribute them, see the recipe ``with_ray.py``.

    Parameters
    ----------
    table : str
        Name in ``TABLES``.
    store : path, default="results.db"
        SQLite file of the results. It is created if it does not exist.
    datasets : sequence of str, optional
        Datasets or data files to run; by default, the datasets of the table that are available.
    protocols : sequence of str, optional
        Protocols to run; by default, all protocols of the table.
    methods : sequence of str, optional
        Methods to run; by default, all methods of the table.
    data_dir : path, optional
        Folder of the datasets; by default the environment variable ``CCMN_DATA``.
    small : bool, default=False
        Whether to run two repeats of ten epochs on the bundled digits (or on ``datasets``). This only shows that the
        code runs.
    random_state : int, default=0
        Seed of the splits and of the noise.
    device : str, default="cpu"
        Device on which models are trained.
    jobs : int, optional
        Number of workers; by default the number of the surrounding ``joblib.parallel_config``, else 1.
    retry_failed : bool, default=False
        Whether cells that failed before are run again.
    on_progress : callable, optional
        Called after each group of cells with its ``group``, ``failed`` (cells), ``cost`` and ``total`` (estimated
        cost of all finished groups and of all groups).

    Returns
    -------
    list of Result
        Stored results of the table, for :func:`summarize`.

    Raises
    ------
    ValueError
        If a table, protocol or method is unknown, or if no dataset is available.
    FileNotFoundError
        If a dataset in ``datasets`` is not available.
    OSError
        If the store cannot be written.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from ccmn.paper import run_table, summarize
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     results = run_table("table1", pathlib.Path(folder) / "r.db", methods=["ranking"], small=True)
    Traceback (most recent call last):
    ValueError: unknown method 'ranking'...
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     results = run_table("table1", pathlib.Path(folder) / "r.db", methods=["unbiased-hamming-square"],
    ...                         protocols=["literal"], small=True)
    >>> summary = summarize(results)[0]
    >>> summary.datasets, summary.methods
    (['digits'], ['unbiased-hamming-square'])
    """
    prepared = prepare(
        [table], datasets=datasets, protocols=protocols, data_dir=data_dir, small=small, random_state=random_state
    )
    with ResultStore(store) as results:
        run_columns(
            prepared.columns,
            results,
            methods=methods,
            device=device,
            jobs=jobs,
            retry_failed=retry_failed,
            on_progress=on_progress,
        )
        return [result for result in results.results() if result.cell.table == table]


def plan(columns: Sequence[Column], methods: Sequence[str] | None = None, *, device: str = "cpu") -> list[CellGroup]:
    """Return the groups of all cells.

    The plan depends on the cells and the device, not on the stored results. After an interruption, a group is therefore
    run again with the same cells and gives the same values.
    """
    known: Registry[Method | Baseline] = Registry("method", {**METHODS, **COMPETING_METHODS})
    groups = []
    for column in columns:
        wanted = [known[name] for name in methods or column.table.methods]
        repeats = tuple(range(column.table.repeats))
        runs_per_method = len(repeats) * len(column.protocol.learning_rates)
        fleets = group_methods([m for m in wanted if isinstance(m, Method)], column.data, runs_per_method, device)
        groups += [CellGroup(column, tuple(m.name for m in fleet), repeats) for fleet in fleets]
        competing = [m.name for m in wanted if isinstance(m, Baseline)]
        groups += [CellGroup(column, (name,), (r,)) for name in competing for r in repeats]
    return groups


def without_stored(group: CellGroup, store: ResultStore, retry_failed: bool) -> CellGroup | None:
    """Return the part of a group that has no result; None if all cells have one.

    It is smaller than the group if some of its methods or repeats were run before.
    """
    cells = store.missing(group.cells, retry_failed=retry_failed)
    if not cells:
        return None
    methods, repeats = (tuple(dict.fromkeys(getattr(cell, name) for cell in cells)) for name in ("method", "repeat"))
    return replace(group, methods=methods, repeats=tuple(sorted(repeats)))


def run_group(group: CellGroup, device: str = "cpu") -> list[Result]:
    """Return the results of all cells of a group; if an error occurs, every cell of the group is stored as failed."""
    start, error = time.perf_counter(), ""
    outcomes: dict[tuple[str, int], dict[str, object]] = {}
    try:
        for outcome in _outcomes(group, device):
            fields = asdict(outcome)
            outcomes[fields.pop("method"), fields.pop("repeat")] = fields
    except Exception as failure:
        outcomes, error = {}, f"{type(failure).__name__}: {failure}"
    rest = error, (time.perf_counter() - start) / len(group.cells), machine(device)
    return [Result(cell, outcomes.get((cell.method, cell.repeat), {}), *rest) for cell in group.cells]


def _outcomes(group: CellGroup, device: str) -> list[Outcome]:
    column = group.column
    data, protocol = column.data, column.protocol
    repeats = [make_repeat(data, protocol, r, column.random_state) for r in group.repeats]
    if group.methods[0] not in METHODS:
        method = COMPETING_METHODS[group.methods[0]]
        return [run_competing_method(method, data, r, column.table.metrics, refit=protocol.refit) for r in repeats]
    methods = [METHODS[name] for name in group.methods]
    needs_rates = any(method.rates == "estimated" for method in methods)
    estimated = {r.number: _estimated_noise(column, r.number) for r in repeats} if needs_rates else None
    return Fleet(data, repeats, methods, column.settings, estimated, device).run()


@lru_cache(maxsize=64)
def _estimated_noise(column: Column, number: int) -> ClassConditionalNoise:
    """Estimate the rates from the training rows and their noisy labels, as a user would.

    The noise type is declared as "partial" if the protocol only adds labels.
    """
    from ccmn.estimation import estimate_noise

    repeat = make_repeat(column.data, column.protocol, number, column.random_state)
    X, Y = column.data.X[repeat.train], repeat.noisy[repeat.train]
    if column.protocol.estimator == "best_bin":
        return best_bin_noise(X, Y, column.random_state)
    noise_type = "both" if column.protocol.noise_generator == "both_ways" else "partial"
    noise: ClassConditionalNoise = estimate_noise(X, Y, noise_type=noise_type, random_state=column.random_state).noise
    return noise


def machine(device: str) -> dict[str, str]:
    """Return the device and the package versions that are stored with a result."""
    kind = torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else platform.machine()
    versions = {"ccmn": __version__, "torch": torch.__version__, "numpy": np.__version__}
    return {"device": kind, **versions, "python": platform.python_version()}


# -- Rates of candidate sets, mixtures of true labels and of added ones, which have the scores of the zeros


def best_bin_noise(X: Any, Y: NDArray[Any], random_state: int = 0) -> PartialNoise:
    """Return the rates of candidate sets Y (n, q) from out-of-fold predictions of the default model of noisy labels."""
    scores = NoisyLabelModel(random_state).fit(X, Y).out_of_fold_log_odds(X)
    return PartialNoise([best_bin_rate(f, y == 1) for f, y in zip(scores.T, Y.T)])


def best_bin_rate(scores: FloatArray, positive: NDArray[np.bool_], largest: float = 0.9) -> float:
    r"""Return rho_neg of one label from its scores (n,) and whether each row was observed as 1.

    The largest share :math:`\kappa` of the ones that looks like the zeros gives

    .. math:: \rho_{neg} = \frac{\tilde p\, \kappa}{1 - \tilde p (1 - \kappa)} .

    Debiased labels of a label with a rate above ``largest`` have too large a variance to train with.
    """
    if positive.all() or not positive.any():
        return 0.0
    share = mixture_proportion(-scores[~positive], -scores[positive])
    observed = float(positive.mean())
    return min(observed * share / (1 - observed * (1 - share)), largest)


def mixture_proportion(component: FloatArray, mixture: FloatArray, delta: float = 0.1, gamma: float = 0.01) -> float:
    r"""Return the largest share of a component, which has high scores, in a mixture by the best-bin estimator [1]_.

    .. math:: \hat\kappa = \frac{q_M(\hat c)}{q_C(\hat c)}, \qquad
        \hat c = \arg\min_c \frac{q_M(c)}{q_C(c)} + (1 + \gamma) \frac{1}{q_C(c)}
        \Bigl(\sqrt{\tfrac{\log(4/\delta)}{2|C|}} + \sqrt{\tfrac{\log(4/\delta)}{2|M|}}\Bigr)

    where :math:`q_C(c)` and :math:`q_M(c)` are the shares of component and mixture with a score of at least c. A bin
    with a single row of the component is not used, unless it contains the whole component.

    References
    ----------
    .. [1] S. Garg et al., "Mixture Proportion Estimation and PU Learning: A Modern Approach", NeurIPS 2021.
    """
    thresholds = np.unique(component)
    q_C, q_M = (1 - np.searchsorted(np.sort(part), thresholds) / len(part) for part in (component, mixture))
    usable = (q_C > 1.5 / len(component)) | (q_C == 1)
    q_C, q_M = q_C[usable], q_M[usable]
    width = sum(np.sqrt(np.log(4 / delta) / (2 * len(part))) for part in (component, mixture))
    best = (q_M / q_C + (1 + gamma) * width / q_C).argmin()
    return float(min(q_M[best] / q_C[best], 1))


# -- Competing methods of table 3: scikit-learn style estimators, fitted one at a time


# The features are not centered: without an intercept, PMLLRS and fPML could not fit the label frequencies. Residuals of
# 1e-3 do not change the third decimal of a metric.
COMPETING_METHODS: Registry[Baseline] = Registry(
    "competing method",
    {
        **BASELINES,
        "PMLNI": Baseline("PMLNI", lambda **settings: make_pipeline(RangeScaler(), PMLNI(**settings))),
        "PMLNI-raw": Baseline("PMLNI-raw", PMLNI),
        "PMLLRS": replace(BASELINES["PMLLRS"], settings={"fit_intercept": True, "tol": 1e-3, "max_iter": 500}),
        "fPML": replace(BASELINES["fPML"], settings={"fit_intercept": True}),
    },
)
"""Methods that table 3 compares with. They see candidate labels only and no noise rates."""


def run_competing_method(
    method: Baseline, data: MultiLabelData, repeat: Repeat, metrics: Sequence[str], *, refit: bool = False
) -> Outcome:
    """Fit a method with every point of its grid and evaluate the best point for each metric on the test rows.

    With ``refit``, the selected point is fitted again on the training and validation rows before the test.
    """
    fitted = [_fit(method, point, data, repeat, repeat.train) for point in method.grid]
    validation = torch.stack([_scores(estimator, data, repeat.validation) for estimator in fitted])
    wanted = criteria(metrics)
    Y = torch.from_numpy(np.asarray(data.Y))
    debiased = torch.from_numpy(np.asarray(repeat.noise.debias(repeat.noisy[repeat.validation])))
    labels = HeldOutSet(Y[repeat.validation][None, None], debiased[None, None])
    values = labels.measure(wanted, validation.unsqueeze(0))[:, 0].nan_to_num(nan=-torch.inf)
    test, tested = HeldOutSet(Y[repeat.test]), {}
    for number in set(values.argmax(1).tolist()):
        final = _fit(method, method.grid[number], data, repeat, repeat.known) if refit else fitted[number]
        tested[number] = test.metrics(_scores(final, data, repeat.test), metrics)
    outcome = Outcome(method.name, repeat.number)
    for criterion, value in zip(wanted, values):
        number = int(value.argmax())
        choice = {**method.grid[number], "validation": criterion.sign * float(value[number])}
        outcome.add(criterion.selection, {metric: tested[number][metric] for metric in criterion.decides}, choice)
    return outcome


def _fit(
    method: Baseline, point: Mapping[str, Any], data: MultiLabelData, repeat: Repeat, rows: NDArray[np.intp]
) -> Any:
    with warnings.catch_warnings():
        # Some points of a grid do not converge; the validation rows decide about them like about the others.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return method.make(**point).fit(data.X[rows], np.asarray(repeat.noisy[rows]))


def _scores(fitted: Any, data: MultiLabelData, rows: Any) -> Tensor:
    return torch.from_numpy(np.asarray(fitted.decision_function(data.X[rows]), dtype=np.float64))
