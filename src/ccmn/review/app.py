"""The pages and buttons of the review, as an ASGI application; who may use it is the guard's business."""

from __future__ import annotations

from importlib import resources
from typing import Any, NoReturn
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from ccmn.review.export import export
from ccmn.review.page import end_page, review_page
from ccmn.review.retrain import Retraining
from ccmn.review.session import Session
from ccmn.review.store import ANSWERS, Item

STATIC = {"review.css": "text/css", "review.js": "text/javascript"}
"""Files of the page: these, and nothing that an address could name."""


class ReviewApp:
    """What happens at every address."""

    def __init__(self, session: Session, retraining: Retraining) -> None:
        self._session, self._retraining = session, retraining
        folder = resources.files("ccmn.review")
        self._static = {name: folder.joinpath(name).read_bytes() for name in STATIC}

    def routes(self) -> list[Route]:
        """Addresses: pages are got, buttons are posted and lead back to a page."""
        place = "/row/{position:int}"
        return [
            Route("/", self.home),
            Route(place, self.row),
            Route("/picture/{row:int}", self.picture),
            Route("/static/{name}", self.static),
            Route("/training", self.training),
            Route(f"{place}/answer", self.answer, methods=["POST"]),
            Route(f"{place}/accept", self.accept, methods=["POST"]),
            Route(f"{place}/next", self.next, methods=["POST"]),
            Route(f"{place}/export", self.export, methods=["POST"]),
            Route(f"{place}/retrain", self.retrain, methods=["POST"]),
            Route("/undo", self.undo, methods=["POST"]),
        ]

    # -- pages

    def home(self, request: Request) -> Response:
        """Go on where it was left."""
        return _to(self._session.latest().position)

    def row(self, request: Request) -> Response:
        """A row with its labels."""
        item = self._item(request)
        at, after = (_number(request.query_params.get(name)) for name in ("at", "after"))
        said = NOTES.get(request.query_params.get("said", ""), "")
        return HTMLResponse(review_page(self._session, item, self._retraining, at=at, after=after, said=said))

    def picture(self, request: Request) -> Response:
        """The picture of a row, if it has one."""
        row, subject = request.path_params["row"], self._session.subject
        found = subject.picture(row) if subject.picture is not None and row < subject.data.n else None
        if found is None:
            raise HTTPException(404, "there is no picture of this row")
        return Response(found.content, media_type=found.media_type)

    def static(self, request: Request) -> Response:
        """Style and script."""
        name = request.path_params["name"]
        if name not in self._static:
            raise HTTPException(404, "there is no such file")
        return Response(self._static[name], media_type=STATIC[name])

    def training(self, request: Request) -> Response:
        """How the training in the background stands."""
        return JSONResponse({"state": self._retraining.state})

    # -- buttons

    async def answer(self, request: Request) -> Response:
        """Yes, no or unsure for one label."""
        form, item = await _form(request), self._item(request)
        label, answer = _number(form.get("label")), form.get("answer")
        if label not in item.asked or answer not in ANSWERS:
            raise HTTPException(400, "an answer is yes, no or unsure about a label that is asked about here")
        await run_in_threadpool(self._session.answer, item, label, answer)
        return _to(item.position, after=label)

    def accept(self, request: Request) -> Response:
        """The rest is right as given."""
        item = self._item(request)
        self._session.accept_rest(item)
        return _to(item.position)

    def next(self, request: Request) -> Response:
        """The next row, drawn if need be."""
        item = self._item(request)
        after = self._session.queue.after(item.position)
        if after is None:
            return HTMLResponse(end_page(item))
        return _to(after.position)

    def undo(self, request: Request) -> Response:
        """Take back the latest action, and show the row that it was about."""
        undone = self._session.undo()
        if undone is None:
            return _to(self._session.latest().position, said="nothing")
        return _to(undone.position, at=undone.labels[0], said="undone")

    def export(self, request: Request) -> Response:
        """Write what was decided into the folder of the review."""
        item = self._item(request)
        export(self._session)
        return _to(item.position, said="exported")

    def retrain(self, request: Request) -> Response:
        """Train with what was decided, in the background."""
        item = self._item(request)
        self._retraining.start()
        return _to(item.position, said="training")

    def _item(self, request: Request) -> Item:
        position = request.path_params["position"]
        item = self._session.queue.item(position) if position < 2**31 else None
        if item is None:
            raise HTTPException(404, "the queue has not come this far")
        return item


NOTES = {
    "undone": "The latest decision was taken back.",
    "nothing": "There is nothing to take back.",
    "exported": "Exported.",
    "training": "Training has begun; you can go on meanwhile.",
}
"""What a page says about the button that led to it; an address can name a note, not make one."""


def make_app(session: Session, retraining: Retraining) -> Starlette:
    """The application, without its guard."""
    errors: Any = {HTTPException: _refusal}
    return Starlette(routes=ReviewApp(session, retraining).routes(), exception_handlers=errors)


def _refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return Response(f"{error.detail}\n", error.status_code, media_type="text/plain")


def _to(position: int, **query: object) -> RedirectResponse:
    """To the page of a place."""
    said = "&".join(f"{name}={value}" for name, value in query.items())
    return RedirectResponse(f"/row/{position}" + (f"?{said}" if said else ""), status_code=303)


async def _form(request: Request) -> dict[str, str]:
    """The fields of a form, each once."""
    try:
        fields = parse_qs((await request.body()).decode(), max_num_fields=8)
    except ValueError:
        _bad("not a form")
    return {name: values[-1] for name, values in fields.items()}


def _bad(reason: str) -> NoReturn:
    raise HTTPException(400, reason)


def _number(text: str | None) -> int:
    """A whole number; -1 for anything else."""
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 10 else -1
