"""Web app for label review: routes, actions and pages. ``security.py`` implements the access control."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast
from urllib.parse import parse_qs, quote, unquote, urlencode

import numpy as np
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ccmn.app.issues import N_ROWS_FOR_PROBABILITIES
from ccmn.app.review.decisions import ANSWERS, BULK_POSITION, QueueItem, Stream
from ccmn.app.review.retraining import EXPORTED_FILES, MIN_ROWS_FOR_COMPARISON, Retraining, export_answers
from ccmn.app.review.security import TEMPLATES, error_response
from ccmn.app.review.session import ReviewSession
from ccmn.estimation.posterior import jeffreys_rate

Form = dict[str, str]

NOTICES = {
    "undone": "The latest action was undone.",
    "accepted": "The suggestions were accepted. Undo restores the labels.",
    "nothing": "There is nothing to undo.",
    "exported": "Exported. The files are listed below.",
    "noted": "The note was saved.",
    "reviewer": "Your answers are stored under this name.",
    "training": "Training has started. You can continue in the meantime.",
}
"""Messages about the previous action, by key. A URL contains only the key, so that links cannot insert other text."""

MAX_CHARACTERS = 20_000
"""Longer texts are truncated to this number of characters."""

MAX_SHORT_TEXT = 600
"""Texts of at most this number of characters are displayed in large type."""

MIN_VISIBLE_LABELS = 9
"""Further labels of a suspicious row are collapsed, unless they are given; these have number keys."""

BULK_LEVELS = (0.99, 0.95, 0.9, 0.8)
"""Error probabilities from which all suggestions for a label can be accepted at once."""

MAX_NOTE = 300
"""Maximum number of characters of a note: a request has at most 4 KiB, and a character up to 12 bytes in a form."""

MAX_REVIEWER_NAME = 40
"""Maximum number of characters of the name of a reviewer."""

ROWS_PER_PAGE = 48
"""Number of rows per page of the list of rows."""

MAX_RATES = 500
"""Maximum number of labels in the table of noise rates."""

REVIEWER_COOKIE = "ccmn_reviewer"


def make_app(session: ReviewSession, retraining: Retraining, next_command: str = "") -> Starlette:
    """Return the web app, without access control; it shows the command that uses an export."""
    app = ReviewApp(session, retraining, next_command)
    handlers: Any = {HTTPException: _http_error, OSError: app.storage_error, ValueError: app.storage_error}
    return Starlette(routes=app.routes(), exception_handlers=handlers)


class ReviewApp:
    """Request handlers of the web app."""

    def __init__(self, session: ReviewSession, retraining: Retraining, next_command: str = "") -> None:
        self._session, self._retraining, self._next_command = session, retraining, next_command

    def routes(self) -> list[Route | Mount]:
        """Return the routes. Actions are POST requests and redirect to a page."""
        row = "/row/{position:int}"
        pages = {
            "/": self.home,
            row: self.row,
            "/rows": self.rows,
            "/rates": self.rates,
            "/results": self.results,
            "/picture/{row:int}": self.picture,
            "/training": self.training,
            "/export/{name}": self.exported_file,
        }
        actions = {
            f"{row}/answer": self.answer,
            f"{row}/accept": self.accept,
            f"{row}/next": self.next,
            f"{row}/note": self.note,
            "/undo": self.undo,
            "/list": self.open_list,
            "/select": self.select,
            "/suggestions": self.accept_suggestions,
            "/reviewer": self.reviewer,
            "/export": self.export,
            "/retrain": self.retrain,
        }
        return [
            *(Route(path, handler) for path, handler in pages.items()),
            *(Route(path, _action(handler), methods=["POST"]) for path, handler in actions.items()),
            Mount("/static", StaticFiles(packages=[("ccmn.app.review", "static")])),
        ]

    # -- pages

    def home(self, request: Request) -> Response:
        """Redirect to the row where the review continues."""
        return _redirect(f"/row/{self._session.start().position}")

    def row(self, request: Request) -> Response:
        """Return the page of a row with its labels."""
        item, query, reviewer = self._item(request), request.query_params, _reviewer(request)
        session, dataset = self._session, self._session.dataset
        questions = session.questions(item, reviewer)
        is_table = dataset.picture is None and dataset.data.texts is None
        n_visible = max(MIN_VISIBLE_LABELS, sum(question.given == 1 for question in questions))
        if item.stream == "random" or n_visible + 1 == len(questions):
            n_visible = len(questions)  # rates count the answers of all labels: none may be confirmed unseen
        return self._page(
            request,
            "row.html",
            tab="review",
            item=item,
            questions=questions,
            open=[question for question in questions if question.answer is None],
            reasons=session.reasons(item),
            rank=int(session.queue.scores.rank[item.row]),
            can_undo=session.store.can_undo(reviewer),
            notes=session.store.notes(item.row),
            focus=_parse_int(query.get("after")),
            n_visible=n_visible,
            previous=session.store.neighbor(item.position, item.stream, -1),
            filter=_filter_query(query),
            text=None if dataset.data.texts is None else dataset.data.texts[item.row],
            features=dataset.features(item.row) if is_table else dataset.other_columns(item.row),
            is_table=is_table,
            max_characters=MAX_CHARACTERS,
            max_short=MAX_SHORT_TEXT,
            max_note=MAX_NOTE,
        )

    def rows(self, request: Request) -> Response:
        """Return the list of rows, filtered by label and text; with ``row``, one row."""
        query = request.query_params
        chosen, given, search = self._filter(query)
        found = self._session.find_rows(chosen, given, search)
        if "row" in query:
            found = found[found == _parse_int(query.get("row"))]
        n_pages = max(1, -(-len(found) // ROWS_PER_PAGE))
        page = min(max(_parse_int(query.get("page")), 0), n_pages - 1)
        shown = found[page * ROWS_PER_PAGE : (page + 1) * ROWS_PER_PAGE].tolist()
        return self._page(
            request,
            "rows.html",
            tab="rows",
            label=chosen,
            given=given,
            search=search,
            n_found=len(found),
            n_pages=n_pages,
            page=page,
            filter=_filter_query(query),
            levels=BULK_LEVELS,
            rows=_listed_rows(self._session, shown, chosen),
        )

    def rates(self, request: Request) -> Response:
        """Return the page of the noise rates."""
        return self._page(request, "rates.html", tab="rates", rates=_rates(self._session))

    def results(self, request: Request) -> Response:
        """Return the page for training and export."""
        session, folder = self._session, self._session.folder
        trained = session.trained
        files = [(name, content) for name, content in EXPORTED_FILES.items() if (folder / name).exists()]
        return self._page(
            request,
            "results.html",
            tab="results",
            retraining=self._retraining,
            comparison=(trained or {}).get("comparison"),
            min_comparison_rows=MIN_ROWS_FOR_COMPARISON,
            folder=folder.resolve(),
            files=files if (folder / "review.json").exists() else [],
            next_command=self._next_command if len(session.trusted().rows) else "",
            reviewers=session.store.agreement(),
        )

    def _page(self, request: Request, template: str, **context: Any) -> Response:
        """Render a page with its header."""
        session = self._session
        content = TEMPLATES.get_template(template).render(
            notice=NOTICES.get(request.query_params.get("notice", ""), ""),
            progress=session.store.progress(),
            goal=min(N_ROWS_FOR_PROBABILITIES, session.dataset.data.n),
            reviewer=_reviewer(request),
            dataset=session.dataset,
            trained=session.trained,
            known=session.queue.scores.known,
            **context,
        )
        return HTMLResponse(content)

    def exported_file(self, request: Request) -> Response:
        """Return a file of the latest export."""
        name = request.path_params["name"]
        path = self._session.folder / name
        if name not in EXPORTED_FILES or not path.is_file():
            raise HTTPException(404, "This file has not been exported.")
        return FileResponse(path, media_type="application/octet-stream", filename=name)

    def picture(self, request: Request) -> Response:
        """Return the picture of a row."""
        row, dataset = request.path_params["row"], self._session.dataset
        picture = dataset.picture(row) if dataset.picture is not None and row < dataset.data.n else None
        if picture is None:
            raise HTTPException(404, "This row has no picture.")
        return Response(picture[0], media_type=picture[1])

    def training(self, request: Request) -> Response:
        """Return the state of the background training."""
        return JSONResponse({"state": self._retraining.state})

    # -- actions

    def answer(self, request: Request, form: Form) -> Response:
        """Store an answer for one label."""
        item, label, answer = self._item(request), _parse_int(form.get("label")), form.get("answer")
        if label not in item.asked or answer not in ANSWERS:
            raise HTTPException(400, "Expected the answer yes, no or unsure for a label of this row.")
        self._session.store.record(item, {label: answer}, reviewer=_reviewer(request))
        return _redirect(f"/row/{item.position}", after=label, **_parse_query(form.get("filter", "")))

    def accept(self, request: Request, form: Form) -> Response:
        """Accept the given or the suggested values of all labels without an answer, and go to the next row."""
        self._session.accept_rest(self._item(request), _reviewer(request), suggestions="suggestions" in form)
        return self.next(request, form)

    def next(self, request: Request, form: Form) -> Response:
        """Redirect to the next row of the open list, or show the final page after the last one."""
        item, query = self._item(request), _parse_query(form.get("filter", ""))
        rows = self._session.find_rows(*self._filter(query)) if item.stream == "selected" else None
        return self._open(request, self._session.following(item, rows), item.stream, **query)

    def open_list(self, request: Request, form: Form) -> Response:
        """Continue with the suspicious rows or with the random sample."""
        name = form.get("list")
        if name not in ("suspicious", "random"):
            raise HTTPException(400, "Expected the list suspicious or random.")
        return self._open(request, self._session.queue.open(cast(Stream, name)), name)

    def _open(self, request: Request, item: QueueItem | None, stream: str, **query: str) -> Response:
        """Redirect to a row, or show the end of its list."""
        if item is None:
            return self._page(request, "end.html", tab="review", stream=stream)
        return _redirect(f"/row/{item.position}", **query)

    def accept_suggestions(self, request: Request, form: Form) -> Response:
        """Accept all suggestions for a label from an error probability on."""
        label, least = _parse_int(form.get("label")), form.get("least", "")
        if not 0 <= label < self._session.dataset.data.q or least not in map(str, BULK_LEVELS):
            raise HTTPException(400, "Expected a label and an error probability.")
        if not self._session.queue.scores.known:
            raise HTTPException(400, "Error probabilities are not known yet.")
        self._session.accept_suggestions(label, float(least), _reviewer(request))
        return _redirect("/rows", label=label, notice="accepted")

    def note(self, request: Request, form: Form) -> Response:
        """Store a note about a row."""
        item, text = self._item(request), " ".join(form.get("note", "").split())[:MAX_NOTE]
        self._session.store.set_note(item.row, _reviewer(request), text)
        return _redirect(f"/row/{item.position}", notice="noted")

    def select(self, request: Request, form: Form) -> Response:
        """Go to a row of the data."""
        row, n = _parse_int(form.get("row")), self._session.dataset.data.n
        if not 0 <= row < n:
            raise HTTPException(400, f"Expected a row number from 0 to {n - 1}.")
        item = self._session.queue.select(row)
        return _redirect(f"/row/{item.position}", **_parse_query(form.get("filter", "")))

    def reviewer(self, request: Request, form: Form) -> Response:
        """Set the name of the reviewer, which is kept in a cookie of the browser."""
        name = "".join(c for c in " ".join(form.get("name", "").split()) if c.isprintable())[:MAX_REVIEWER_NAME]
        response = _redirect(f"/row/{self._session.start().position}", notice="reviewer")
        response.set_cookie(REVIEWER_COOKIE, quote(name, safe=""), max_age=31_536_000, httponly=True, samesite="strict")
        return response

    def undo(self, request: Request, form: Form) -> Response:
        """Undo the latest action of the reviewer and show its row."""
        undone = self._session.store.undo(_reviewer(request))
        if undone is None:
            return _redirect(f"/row/{self._session.start().position}", notice="nothing")
        position, label = undone
        if position == BULK_POSITION:
            return _redirect("/rows", label=label, notice="undone")
        return _redirect(f"/row/{position}", after=label, notice="undone")

    def export(self, request: Request, form: Form) -> Response:
        """Write the answers to the folder of the review."""
        export_answers(self._session)
        return _redirect("/results", notice="exported")

    def retrain(self, request: Request, form: Form) -> Response:
        """Start training in the background."""
        self._retraining.start()
        return _redirect("/results", notice="training")

    def storage_error(self, request: Request, error: Exception) -> Response:
        """Report in one line that a file cannot be read or written; raise all other errors again."""
        if isinstance(error, OSError) or str(self._session.store.path) in str(error):
            return error_response(request.headers, 500, str(error))
        raise error

    def _filter(self, query: Mapping[str, str]) -> tuple[int | None, int | None, str]:
        """Return the label, its value and the part of a text by which rows are filtered."""
        label, given = _parse_int(query.get("label")), {"0": 0, "1": 1}.get(query.get("given", ""))
        chosen = label if 0 <= label < self._session.dataset.data.q else None
        return chosen, given, query.get("text", "")[:100]

    def _item(self, request: Request) -> QueueItem:
        position = request.path_params["position"]
        item = self._session.store.item(position) if position < 2**31 else None
        if item is None:
            raise HTTPException(404, f"Position {position} of the queue has not been reached yet.")
        return item


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return error_response(request.headers, error.status_code, error.detail)


def _redirect(path: str, **query: object) -> RedirectResponse:
    return RedirectResponse(path + (f"?{urlencode(query)}" if query else ""), status_code=303)


def _reviewer(request: Request) -> str:
    name = unquote(request.cookies.get(REVIEWER_COOKIE, ""))
    return name if name.isprintable() and len(name) <= MAX_REVIEWER_NAME else ""


def _action(handler: Callable[[Request, Form], Response]) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint of an action with the fields of a form. A repeated field has its last value."""

    async def endpoint(request: Request) -> Response:
        try:
            fields = parse_qs((await request.body()).decode(), max_num_fields=8)
        except ValueError:
            raise HTTPException(400, "Expected a URL-encoded form.") from None
        return await run_in_threadpool(handler, request, {name: values[-1] for name, values in fields.items()})

    return endpoint


def _filter_query(query: Mapping[str, str]) -> str:
    return urlencode({name: query[name][:100] for name in ("label", "given", "text") if query.get(name)})


def _parse_query(text: str) -> dict[str, str]:
    return {name: values[-1] for name, values in parse_qs(text).items() if name in ("label", "given", "text")}


def _parse_int(text: str | None) -> int:
    """Return a non-negative integer; -1 for any other text."""
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 10 else -1


def breakable(name: str) -> Markup:
    """Return a name that may be broken after underscores, hyphens, dots and slashes, but not within a word.

    >>> breakable("a_b<i>")
    Markup('a_<wbr>b&lt;i&gt;')
    """
    return Markup("<wbr>").join(re.split(r"(?<=[_./-])(?=.)", name))


TEMPLATES.filters["breakable"] = breakable


def _rates(session: ReviewSession) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return the name and both noise rates of each label: in use, and counted in the random sample."""
    used, sample, names = session.rates_in_use(), session.sample(), session.dataset.label_names[:MAX_RATES]
    given, rows = session.dataset.given[sample.rows], list[tuple[str, list[dict[str, Any]]]]()
    for j, name in enumerate(names):
        rates = []
        for side, true in (("pos", 1), ("neg", 0)):
            of_class = given[:, j][sample.Y[:, j] == true]
            n_flips, n_rows = int((of_class == 1 - true).sum()), int((~np.isnan(of_class)).sum())
            counted, rate = jeffreys_rate(n_flips, n_rows), None if used is None else getattr(used, f"rho_{side}")[j]
            off = n_rows > 0 and rate is not None and not counted.low <= rate <= counted.high
            flips = f"{n_flips} of {n_rows}" if n_rows else ""
            rates.append({"key": f"{side}-{j}", "used": rate, "counted": counted, "off": off, "flips": flips})
        rows.append((name, rates))
    return rows


def _listed_rows(session: ReviewSession, rows: list[int], label: int | None) -> list[dict[str, Any]]:
    """Return what the list of rows shows of each row: its labels, and the most suspicious one or ``label``."""
    dataset, answered, scores = session.dataset, session.store.answered_rows(), session.queue.scores
    listed = []
    for row in rows:
        score = np.nan_to_num(scores.score[row], nan=-1.0)
        suspect = int(score.argmax()) if label is None else label
        shown = {
            "row": row,
            "id": dataset.name(row),
            "excerpt": dataset.excerpt(row),
            "given": [dataset.short_name(int(j)) for j in np.flatnonzero(dataset.given[row] == 1)],
            "rank": int(scores.rank[row]),
            "suspect": dataset.short_name(suspect) if score[suspect] >= 0 else "",
            "suspect_given": bool(dataset.given[row, suspect] == 1),
            "p_wrong": float(score[suspect]) if scores.known else None,
            "answered": row in answered,
        }
        listed.append(shown)
    return listed
