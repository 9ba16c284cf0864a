"""``ccmn review``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ccmn.cli.models import remember
from ccmn.cli.options import Candidates, DataDir, Json, Labels, Seed, Text, read_labels
from ccmn.cli.output import error_console, print_json
from ccmn.cli.rates import noise_told


def review(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            help="A data file (CSV, Parquet, ARFF, MAT, LIBSVM, NPZ), or the name of a data set: see ccmn data list.",
            show_default=False,
        ),
    ] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Try it on the pictures of ccmn demo.")] = False,
    labels: Labels = None,
    noise: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="What is thought of the noise before anybody looks: estimate | partial (labels only added) | missing "
            "(only lost), or a file of rates (.json).",
        ),
    ] = "estimate",
    text: Text = None,
    picture: Annotated[
        str | None, typer.Option(metavar="HxW", help="The features of a row are a picture: 16x24, or 32x32x3.")
    ] = None,
    image: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="A column with names of picture files, shown to you.")
    ] = None,
    image_dir: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where these files are (else: beside DATA).")
    ] = None,
    candidates: Candidates = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where decisions, exports and models are kept, and taken up again (default: NAME-review, here).",
        ),
    ] = None,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: one that is free.")] = 0,
    show: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    seed: Seed = 0,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """A page on this machine to check labels on: rows drawn by lot, and suspicious ones.

    Somebody looks at rows, one at a time, and says of every label whether it belongs there. Rows drawn by lot give
    honest noise rates, suspicious ones put wrong labels right; both train a better model, from the page itself. Every
    answer is kept at once: stop at any time, and go on with the same command. Ctrl-C ends it.

    Examples: ccmn review train.csv --labels 'label_*' --text review, or ccmn review --demo
    """
    from ccmn.review import Retraining, demo_session, open_session, read_review_data
    from ccmn.review.server import check_host, check_installed, serve

    check_installed()
    if demo == (source is not None):
        raise typer.BadParameter("name the DATA to review, or say --demo; one of the two")
    if demo and (any((labels, text, picture, image, image_dir, candidates, data_dir)) or noise != "estimate"):
        raise typer.BadParameter("--demo brings its own data, which are shown as pictures: leave options of DATA out")
    if image_dir is not None and image is None:
        raise typer.BadParameter("--image-dir is where the files of --image COLUMN are, which is not given")
    check_host(host)
    with error_console().status("looking for suspicious labels"):
        if source is None:
            session, columns = demo_session(_folder(out, "digits"), random_state=seed), None
        else:
            dataset, columns = read_review_data(
                source,
                read_labels(labels),
                text=text,
                picture=picture,
                image=image,
                image_dir=image_dir,
                candidates=candidates,
                data_dir=data_dir,
            )
            told = noise_told(noise, dataset.data.label_names, dataset.data.q)
            session = open_session(dataset, _folder(out, dataset.data.name), told, seed)
    retraining = Retraining(session, on_trained=lambda model: None if columns is None else remember(model, columns))
    try:
        serve(session, retraining, lambda url: _tell(url, session.folder, show, as_json), host, port)
    finally:
        session.close()


def _tell(url: str, folder: Path, show: bool, as_json: bool) -> None:
    if as_json:
        print_json({"url": url, "folder": str(folder)})
    else:
        typer.echo(f"open {url}\n(good for one visit; answers are kept in {folder}; Ctrl-C ends it)")
    if show:
        import webbrowser

        webbrowser.open(url)


def _folder(out: Path | None, name: str) -> Path:
    folder = Path(f"{name or 'data'}-review") if out is None else out
    if not folder.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {folder.parent} to make {folder.name} in")
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file; --out names a folder")
    return folder
