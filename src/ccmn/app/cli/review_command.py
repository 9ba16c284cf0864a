"""``ccmn review``: start the local web app for the review of labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ccmn.app.cli import options as opt
from ccmn.app.cli.output import PictureSize, print_json, read_picture_size
from ccmn.app.cli.predict_command import store_columns

if TYPE_CHECKING:
    from ccmn.app.review import ReviewSession


def review(
    context: typer.Context,
    source: Annotated[str | None, typer.Argument(metavar="DATA", help=opt.DATA_HELP, show_default=False)] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Review the pictures of ccmn demo.")] = False,
    labels: opt.Labels = None,
    tags: opt.Tags = None,
    sep: opt.Separator = ";",
    noise: opt.DeclaredNoise = None,
    text: opt.Text = None,
    picture: PictureSize = None,
    image: opt.Image = None,
    image_dir: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder of these files (default: the folder of DATA).")
    ] = None,
    row_id: opt.RowId = None,
    ignore: opt.Ignore = None,
    votes: opt.Votes = None,
    items: opt.Items = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder for decisions, exports and models (default: NAME-review). An existing one is resumed.",
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on (0: any free port).")] = 0,
    random_state: opt.RandomState = 0,
    data_dir: opt.DataDir = None,
    as_json: opt.Json = False,
) -> None:
    """Start a local web app to review labels: suspicious rows first, or a random sample.

    The app shows one row at a time and asks for each label whether it is correct. Suspicious rows correct wrong labels.
    A random sample, which a switch on the page selects, measures how many labels are wrong. Every decision is stored
    immediately. The same command resumes the review. Ctrl-C stops the server.

    Examples: ccmn review train.csv --labels 'label_*' --text review, or ccmn review --demo
    """
    with opt.all_mistakes() as check:
        if demo == (source is not None):
            check(opt.reject, "Expected either DATA or --demo")
        if demo and any((labels, tags, text, votes, items, picture, image, image_dir, row_id, ignore, data_dir, noise)):
            check(opt.reject, "--demo cannot be combined with options that describe DATA")
        if image_dir is not None and image is None:
            check(opt.reject, "--image-dir requires --image")
        if sum(value is not None for value in (text, picture, image)) > 1:
            check(opt.reject, "Expected at most one of --text, --picture and --image")
        size = check(read_picture_size, picture)
        if source is not None:
            file = check(opt.check_source, source, context.params)
        check(opt.check_noise, noise)
        folder = check(_review_folder, out, "digits" if source is None else Path(source).name.partition(".")[0])
    from ccmn._files import private_files
    from ccmn.app.review import Retraining, demo_session, open_session, review_dataset, serve

    with private_files():
        if source is None:
            session, columns = demo_session(folder, random_state=random_state), None
        else:
            columns, data = file.read()
            file.require_features(data)
            table = None if votes is not None else source
            dataset = review_dataset(data, columns, table, size, image_dir or Path(items or source).parent)
            session = open_session(dataset, folder, noise and opt.read_noise(noise, data), random_state)
        retraining = Retraining(
            session, on_trained=lambda model: None if columns is None else store_columns(model, columns)
        )
        command = "" if source is None else _fit_command(context, session)

        def announce(url: str) -> None:
            if as_json:
                print_json({"url": url, "folder": str(session.folder)})
                return
            used = f"this link can be used once; decisions are stored in {session.folder}; press Ctrl-C to stop"
            typer.echo(f"open {url}\n({used})")

        try:
            serve(session, retraining, announce, port, command)
            if command and not as_json:
                _print_next_step(session, command)
        finally:
            session.close()


def _fit_command(context: typer.Context, session: ReviewSession) -> str:
    rates = session.folder / "rates.json" if session.dataset.data.votes is None else None
    files = {"noise": rates, "trusted": session.folder / "trusted.npz", "out": opt.unused_name("model.ccmn")}
    return opt.next_command(context, "fit", context.params["source"], **files)


def _print_next_step(session: ReviewSession, command: str) -> None:
    """Print the command that uses the exported answers, or how to export them."""
    answers = session.store.progress()["answers"]
    if len(session.trusted().rows) and (session.folder / "trusted.npz").exists():
        opt.print_next(command)
    elif answers:
        typer.echo(
            f"{answers} answers are stored in {session.folder}. To use them, repeat the command and export them on the "
            'page "Train and export".',
            err=True,
        )


def _review_folder(out: Path | None, name: str) -> Path:
    """Return the folder of a review."""
    folder = Path(f"{name or 'data'}-review") if out is None else out
    if not folder.parent.is_dir():
        raise FileNotFoundError(f"folder {folder.parent} does not exist; create it to write {folder.name}")
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file; --out expects a folder")
    return folder
