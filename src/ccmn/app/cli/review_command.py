"""``ccmn review``: start the local web app for the review of labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccmn.app.cli.noise_commands import read_noise_option
from ccmn.app.cli.options import (
    DATA_HELP,
    Candidates,
    DataDir,
    Ignore,
    Image,
    Json,
    Labels,
    RandomState,
    RowId,
    Separator,
    Tags,
    Text,
    Votes,
    label_frame,
    next_command,
    print_next,
    read_roles,
    read_vote_columns,
    unused_name,
)
from ccmn.app.cli.output import CacheFolder, PictureSize, ResultCache, error_console, print_json
from ccmn.app.cli.predict_command import store_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ccmn.app.review import ReviewDataset, ReviewSession
    from ccmn.estimation import NoiseRates
    from ccmn.noise import NoiseModel


def review(
    context: typer.Context,
    source: Annotated[str | None, typer.Argument(metavar="DATA", help=DATA_HELP, show_default=False)] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Review the pictures of ccmn demo.")] = False,
    labels: Labels = None,
    tags: Tags = None,
    sep: Separator = ";",
    noise: Annotated[
        str,
        typer.Option(
            "--noise",
            metavar="NOISE",
            help="Noise of the labels before the review: both | partial (labels only added) | missing (labels only "
            "removed), or a JSON file of noise rates.",
        ),
    ] = "both",
    text: Text = None,
    picture: PictureSize = None,
    image: Image = None,
    image_dir: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder of these files (default: the folder of DATA).")
    ] = None,
    row_id: RowId = None,
    ignore: Ignore = None,
    votes: Votes = None,
    candidates: Candidates = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder for decisions, exports and models (default: NAME-review). An existing one is resumed.",
        ),
    ] = None,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on (0: any free port).")] = 0,
    show: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    random_state: RandomState = 0,
    data_dir: DataDir = None,
    cache: CacheFolder = None,
    as_json: Json = False,
) -> None:
    """Start a local web app to review labels: a random sample and suspicious rows.

    The app shows one row at a time and asks for each label whether it is correct. The random sample gives unbiased
    estimates of the noise rates, the suspicious rows correct wrong labels, and both improve a retrained model. Every
    decision is stored immediately. The same command resumes the review. Ctrl-C stops the server.

    Examples: ccmn review train.csv --labels 'label_*' --text review, or ccmn review --demo
    """
    from ccmn._files import private_files
    from ccmn.app.review import Retraining, demo_session, open_session, read_review_data
    from ccmn.app.review.server import check_host, check_installed, serve

    check_installed()
    if demo == (source is not None):
        raise typer.BadParameter("Expected either DATA or --demo")
    described = (labels, tags, text, votes, picture, image, image_dir, row_id, ignore, candidates, data_dir)
    if demo and (any(described) or noise != "both"):
        raise typer.BadParameter("--demo cannot be combined with options that describe DATA")
    if image_dir is not None and image is None:
        raise typer.BadParameter("--image-dir requires --image")
    check_host(host)
    with private_files():
        searching = error_console().status("searching for suspicious labels")
        if source is None:
            with searching:
                session, columns = demo_session(_review_folder(out, "digits"), random_state=random_state), None
        else:
            dataset, columns = read_review_data(
                source,
                picture=picture,
                image_dir=image_dir,
                candidates=candidates,
                data_dir=data_dir,
                votes=read_vote_columns(votes),
                roles=read_roles(labels, tags, sep, text, image, row_id, ignore),
            )
            rates = read_noise_option(noise, dataset.data.label_names, dataset.data.q)
            folder, known = _review_folder(out, dataset.data.name), None
            if cache is not None and dataset.data.votes is None:
                rates, known = _stored_results(dataset, rates, ResultCache(cache, random_state))
            with searching:
                session = open_session(dataset, folder, rates, random_state, pred_proba=known)
        retraining = Retraining(
            session, on_trained=lambda model: None if columns is None else store_columns(model, columns)
        )
        command = "" if source is None else _fit_command(context, session)
        try:
            serve(session, retraining, lambda url: _announce(url, session.folder, show, as_json), host, port, command)
            if command and not as_json:
                _print_next_step(session, command)
        finally:
            session.close()


def _fit_command(context: typer.Context, session: ReviewSession) -> str:
    """Return the command that trains on the data with the exported answers and rates."""
    rates = session.folder / "rates.json" if session.dataset.data.votes is None else None
    trusted = session.folder / "trusted.npz"
    source = context.params["source"]
    return next_command(context, "fit", source, noise=rates, trusted=trusted, out=unused_name("model.ccmn"))


def _print_next_step(session: ReviewSession, command: str) -> None:
    """Print the command that uses the exported answers, or how to export them."""
    answers = session.store.progress()["answers"]
    if (session.folder / "trusted.npz").exists():
        print_next(command)
    elif answers:
        typer.echo(
            f"{answers} answers are stored in {session.folder}. To use them, repeat the command and export them on the "
            'page "Train and export".',
            err=True,
        )


def _stored_results(
    dataset: ReviewDataset, noise: str | NoiseModel | NoiseRates, results: ResultCache
) -> tuple[NoiseModel | NoiseRates, NDArray[Any]]:
    """Return noise rates and out-of-fold probabilities, from the cache if it has them."""
    X, Y = dataset.data.X, label_frame(dataset.data, False)  # the labels of the other commands, in the same type
    rates = results.rates(X, Y, noise) if isinstance(noise, str) else noise
    return rates, results.probabilities(X, Y)


def _announce(url: str, folder: Path, show: bool, as_json: bool) -> None:
    """Print the address of the page, and open it with ``--open``."""
    if as_json:
        print_json({"url": url, "folder": str(folder)})
    else:
        typer.echo(f"open {url}\n(this link can be used once; decisions are stored in {folder}; press Ctrl-C to stop)")
    if show:
        import webbrowser

        webbrowser.open(url)


def _review_folder(out: Path | None, name: str) -> Path:
    """Return the folder of a review."""
    folder = Path(f"{name or 'data'}-review") if out is None else out
    if not folder.parent.is_dir():
        raise FileNotFoundError(f"folder {folder.parent} does not exist; create it to write {folder.name}")
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file; --out expects a folder")
    return folder
