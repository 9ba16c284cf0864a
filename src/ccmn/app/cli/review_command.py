"""``ccmn review``: start the local web app for the review of labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccmn.app.cli.noise_commands import check_noise, read_noise_option
from ccmn.app.cli.options import (
    DATA_HELP,
    Candidates,
    DataDir,
    DeclaredNoise,
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
    Votes,
    all_mistakes,
    check_source,
    label_frame,
    next_command,
    print_next,
    unused_name,
)
from ccmn.app.cli.output import CacheFolder, PictureSize, ResultCache, print_json
from ccmn.app.cli.predict_command import store_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ccmn.app.review import ReviewDataset, ReviewSession


def review(
    context: typer.Context,
    source: Annotated[str | None, typer.Argument(metavar="DATA", help=DATA_HELP, show_default=False)] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Review the pictures of ccmn demo.")] = False,
    labels: Labels = None,
    tags: Tags = None,
    sep: Separator = ";",
    noise: DeclaredNoise = None,
    text: Text = None,
    picture: PictureSize = None,
    image: Image = None,
    image_dir: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder of these files (default: the folder of DATA).")
    ] = None,
    row_id: RowId = None,
    ignore: Ignore = None,
    votes: Votes = None,
    items: Items = None,
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
    """Start a local web app to review labels: suspicious rows first, or a random sample.

    The app shows one row at a time and asks for each label whether it is correct. Suspicious rows correct wrong labels.
    A random sample, which a switch on the page selects, measures how many labels are wrong. Every decision is stored
    immediately. The same command resumes the review. Ctrl-C stops the server.

    Examples: ccmn review train.csv --labels 'label_*' --text review, or ccmn review --demo
    """
    with all_mistakes() as check:
        if demo == (source is not None):
            check(_reject, "Expected either DATA or --demo")
        described = (labels, tags, text, votes, items, picture, image, image_dir, row_id, ignore, candidates, data_dir)
        if demo and any((*described, noise)):
            check(_reject, "--demo cannot be combined with options that describe DATA")
        if image_dir is not None and image is None:
            check(_reject, "--image-dir requires --image")
        if source is not None:
            file = check(check_source, source, labels, tags, sep, text, image, row_id, ignore, votes, items, data_dir)
        check(check_noise, noise)
        folder = check(_review_folder, out, "digits" if source is None else Path(source).name.partition(".")[0])
    from ccmn._files import private_files
    from ccmn.app.review import Retraining, demo_session, open_session, read_review_data
    from ccmn.app.review.server import check_host, check_installed, serve

    check_installed()
    check_host(host)
    with private_files():
        if source is None:
            session, columns = demo_session(folder, random_state=random_state), None
        else:
            dataset, columns = read_review_data(
                source,
                picture=picture,
                image_dir=image_dir,
                candidates=candidates,
                data_dir=data_dir,
                votes=file.votes,
                items=items,
                roles=file.roles,
            )
            rates, known = None, None
            if noise is not None:
                rates = read_noise_option(noise, dataset.data.label_names, dataset.data.q)
            if cache is not None:
                known = _stored_probabilities(dataset, ResultCache(cache, random_state))
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


def _reject(message: str) -> None:
    raise typer.BadParameter(message)


def _stored_probabilities(dataset: ReviewDataset, results: ResultCache) -> NDArray[Any]:
    """Return out-of-fold probabilities, from the cache if it has them."""
    # The labels of the other commands, in the same type.
    return results.probabilities(dataset.data.X, label_frame(dataset.data, False))


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
