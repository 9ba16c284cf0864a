"""Web app for label review: routes, actions and pages. ``security.py`` implements the access control."""

from __future__ import annotations

from importlib import resources
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from ccmn.estimation.noise_rates import Rate
from ccmn.review.decisions import ANSWERS, QueueItem
from ccmn.review.queue import MAX_QUESTIONS
from ccmn.review.retraining import Retraining, export_answers
from ccmn.review.session import ReviewSession, RowView

STATIC_FILES = {"review.css": "text/css", "review.js": "text/javascript"}
"""Style sheet and script with their media types. No other file can be requested."""

NOTICES = {
    "undone": "The latest action was undone.",
    "nothing": "There is nothing to undo.",
    "exported": "Exported.",
    "training": "Training has started. You can continue in the meantime.",
}
"""Messages about the previous action, by key. A URL contains only the key, so that links cannot insert other text."""

MAX_CHARACTERS = 20_000
"""Longer texts are truncated to this number of characters."""

MIN_COMPLETE_ROWS = 50
"""The page warns about imprecise noise rates if fewer rows of the random sample have all their answers."""


def make_app(session: ReviewSession, retraining: Retraining) -> Starlette:
    """Return the web app, without access control."""
    app = ReviewApp(session, retraining)
    handlers: Any = {HTTPException: _http_error, OSError: app.storage_error, ValueError: app.storage_error}
    return Starlette(routes=app.routes(), exception_handlers=handlers)


class ReviewApp:
    """Request handlers of the web app."""

    def __init__(self, session: ReviewSession, retraining: Retraining) -> None:
        self._session, self._retraining = session, retraining
        folder = resources.files("ccmn.review")
        self._static = {name: folder.joinpath(name).read_bytes() for name in STATIC_FILES}

    def routes(self) -> list[Route]:
        """Return the routes. Actions are POST requests and redirect to a page."""
        row = "/row/{position:int}"
        return [
            Route("/", self.home),
            Route(row, self.row),
            Route("/picture/{row:int}", self.picture),
            Route("/static/{name}", self.static),
            Route("/training", self.training),
            Route(f"{row}/answer", self.answer, methods=["POST"]),
            Route(f"{row}/accept", self.accept, methods=["POST"]),
            Route(f"{row}/next", self.next, methods=["POST"]),
            Route(f"{row}/export", self.export, methods=["POST"]),
            Route(f"{row}/retrain", self.retrain, methods=["POST"]),
            Route("/undo", self.undo, methods=["POST"]),
        ]

    # -- pages

    def home(self, request: Request) -> Response:
        """Redirect to the row where the review continues."""
        return _redirect(self._session.latest().position)

    def row(self, request: Request) -> Response:
        """Return the page of a row with its labels."""
        item, query = self._item(request), request.query_params
        return HTMLResponse(
            render_row(
                self._session,
                self._retraining,
                item,
                focus=_parse_int(query.get("at")),
                answered=_parse_int(query.get("after")),
                notice=NOTICES.get(query.get("notice", ""), ""),
            )
        )

    def picture(self, request: Request) -> Response:
        """Return the picture of a row."""
        row, dataset = request.path_params["row"], self._session.dataset
        picture = dataset.picture(row) if dataset.picture is not None and row < dataset.data.n else None
        if picture is None:
            raise HTTPException(404, "This row has no picture.")
        return Response(picture.content, media_type=picture.media_type)

    def static(self, request: Request) -> Response:
        """Return the style sheet or the script."""
        name = request.path_params["name"]
        if name not in self._static:
            raise HTTPException(404, "File not found.")
        return Response(self._static[name], media_type=STATIC_FILES[name])

    def training(self, request: Request) -> Response:
        """Return the state of the background training."""
        return JSONResponse({"state": self._retraining.state})

    # -- actions

    async def answer(self, request: Request) -> Response:
        """Store an answer for one label."""
        form, item = await _read_form(request), self._item(request)
        label, answer = _parse_int(form.get("label")), form.get("answer")
        if label not in item.asked or answer not in ANSWERS:
            raise HTTPException(400, "Expected the answer yes, no or unsure for a label of this row.")
        await run_in_threadpool(self._session.answer, item, label, answer)
        return _redirect(item.position, after=label)

    def accept(self, request: Request) -> Response:
        """Accept the given values of all labels of a row that have no answer."""
        item = self._item(request)
        self._session.accept_rest(item)
        return _redirect(item.position)

    def next(self, request: Request) -> Response:
        """Redirect to the next row, or show the final page after the last one."""
        item = self._item(request)
        following = self._session.queue.after(item.position)
        if following is None:
            return HTMLResponse(_TEMPLATES.get_template("end.html").render(item=item, notice=""))
        return _redirect(following.position)

    def undo(self, request: Request) -> Response:
        """Undo the latest action and show its row."""
        undone = self._session.undo()
        if undone is None:
            return _redirect(self._session.latest().position, notice="nothing")
        return _redirect(undone.position, at=undone.labels[0], notice="undone")

    def export(self, request: Request) -> Response:
        """Write the answers to the folder of the review."""
        item = self._item(request)
        export_answers(self._session)
        return _redirect(item.position, notice="exported")

    def retrain(self, request: Request) -> Response:
        """Start training in the background."""
        item = self._item(request)
        self._retraining.start()
        return _redirect(item.position, notice="training")

    def storage_error(self, request: Request, error: Exception) -> Response:
        """Report in one line that a file cannot be read or written; raise all other errors again."""
        if isinstance(error, OSError) or str(self._session.store.path) in str(error):
            return Response(f"{error}\n", 500, media_type="text/plain")
        raise error

    def _item(self, request: Request) -> QueueItem:
        position = request.path_params["position"]
        item = self._session.store.item(position) if position < 2**31 else None
        if item is None:
            raise HTTPException(404, "This position of the queue has not been reached yet.")
        return item


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return Response(f"{error.detail}\n", error.status_code, media_type="text/plain")


def _redirect(position: int, **query: object) -> RedirectResponse:
    """Redirect to the page of a position."""
    parameters = "&".join(f"{name}={value}" for name, value in query.items())
    return RedirectResponse(f"/row/{position}" + (f"?{parameters}" if parameters else ""), status_code=303)


async def _read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form. A repeated field has its last value."""
    try:
        fields = parse_qs((await request.body()).decode(), max_num_fields=8)
    except ValueError:
        raise HTTPException(400, "Expected a URL-encoded form.") from None
    return {name: values[-1] for name, values in fields.items()}


def _parse_int(text: str | None) -> int:
    """Return a non-negative integer; -1 for any other text."""
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 10 else -1


_TEMPLATES = Environment(
    loader=PackageLoader("ccmn.review"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)


class DisplayedRate(NamedTuple):
    """One noise rate of one label as shown on the page: texts, and positions from 0 to 100 in its drawing."""

    key: str
    used: str
    """Rate that the app uses."""
    counted: str
    """Number of flips and of rows in the random sample."""
    interval: str
    """Credible interval of the counted rate."""
    low: float
    high: float
    """Ends of the interval."""
    tick: float
    """Position of the rate that the app uses."""
    dot: float | None
    """Position of the counted rate; None without rows."""


def render_row(
    session: ReviewSession,
    retraining: Retraining,
    item: QueueItem,
    *,
    focus: int = -1,
    answered: int = -1,
    notice: str = "",
) -> str:
    """Return the page of a row; ``focus`` is the label to focus, ``answered`` the latest answered label (-1: none)."""
    view, dataset = session.view(item), session.dataset
    is_table = dataset.picture is None and dataset.texts is None
    return _TEMPLATES.get_template("row.html").render(
        session=session,
        retraining=retraining,
        trained=session.trained,
        view=view,
        rates=_displayed_rates(session, view),
        focus=_focused_label(view, focus, answered),
        notice=notice,
        text=None if dataset.texts is None else dataset.texts[item.row],
        features=dataset.features(item.row) if is_table else None,
        answers=ANSWERS,
        max_characters=MAX_CHARACTERS,
        min_complete_rows=MIN_COMPLETE_ROWS,
    )


def _focused_label(view: RowView, requested: int, answered: int) -> int | None:
    """Return the requested label, or the next label without an answer; None if all labels have an answer."""
    labels = [question.label for question in view.questions]
    if requested in labels:
        return requested
    start = labels.index(answered) + 1 if answered in labels else 0
    following = [*view.questions[start:], *view.questions[:start]]
    return next((question.label for question in following if question.answer is None), None)


def _displayed_rates(session: ReviewSession, view: RowView) -> list[tuple[str, DisplayedRate, DisplayedRate]]:
    """Return name, missing-label rate and added-label rate of each label; of many labels, only of those asked."""
    used, names = session.rates_in_use(), session.dataset.label_names

    def displayed(key: str, j: int, rate: float, counted: Rate, n_flips: int, n_rows: int) -> DisplayedRate:
        return DisplayedRate(
            key=f"{key}-{j}",
            used=f"{'≤ ' if used.kind[j] == 'upper bound' else ''}{rate:.3f}",
            counted=f"{n_flips} of {n_rows}" if n_rows else "–",
            interval=f"{counted.low:.2f}–{counted.high:.2f}",
            low=round(100 * counted.low, 1),
            high=round(100 * counted.high, 1),
            tick=round(100 * rate, 1),
            dot=round(100 * counted.value, 1) if n_rows else None,
        )

    rows = []
    for j in range(len(names)) if len(names) <= MAX_QUESTIONS else sorted(view.item.asked):
        flips = view.flips[j]
        missing = displayed("pos", j, float(used.rho_pos[j]), flips.rho_pos, flips.missing, flips.positives)
        added = displayed("neg", j, float(used.rho_neg[j]), flips.rho_neg, flips.added, flips.negatives)
        rows.append((names[j], missing, added))
    return rows
