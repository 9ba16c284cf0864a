"""Web app for label review: routes, actions and pages. ``security.py`` implements the access control."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from typing import Any, NamedTuple, cast
from urllib.parse import parse_qs, quote, unquote, urlencode

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from ccmn.app.issues import N_ROWS_FOR_PROBABILITIES
from ccmn.app.review.decisions import ANSWERS, QueueItem, ReviewerAnswer, Stream
from ccmn.app.review.retraining import EXPORTED_FILES, MIN_ROWS_FOR_COMPARISON, Retraining, export_answers
from ccmn.app.review.security import error_response
from ccmn.app.review.session import ReviewSession

STATIC_FILES = {"review.css": "text/css", "review.js": "text/javascript"}
"""Style sheet and script with their media types. No other file can be requested."""

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
        folder = resources.files("ccmn.app.review")
        self._static = {name: folder.joinpath(name).read_bytes() for name in STATIC_FILES}

    def routes(self) -> list[Route]:
        """Return the routes. Actions are POST requests and redirect to a page."""
        row, post = "/row/{position:int}", ["POST"]
        return [
            Route("/", self.home),
            Route(row, self.row),
            Route("/rows", self.rows),
            Route("/rates", self.rates),
            Route("/results", self.results),
            Route("/picture/{row:int}", self.picture),
            Route("/static/{name}", self.static),
            Route("/training", self.training),
            Route("/export/{name}", self.exported_file),
            Route(f"{row}/answer", self.answer, methods=post),
            Route(f"{row}/accept", self.accept, methods=post),
            Route(f"{row}/apply", self.apply, methods=post),
            Route(f"{row}/next", self.next, methods=post),
            Route(f"{row}/note", self.note, methods=post),
            Route("/undo", self.undo, methods=post),
            Route("/list", self.open_list, methods=post),
            Route("/select", self.select, methods=post),
            Route("/suggestions", self.accept_suggestions, methods=post),
            Route("/reviewer", self.reviewer, methods=post),
            Route("/export", self.export, methods=post),
            Route("/retrain", self.retrain, methods=post),
        ]

    # -- pages

    def home(self, request: Request) -> Response:
        """Redirect to the row where the review continues."""
        return _redirect(f"/row/{self._session.start().position}")

    def row(self, request: Request) -> Response:
        """Return the page of a row with its labels."""
        item, query = self._item(request), request.query_params
        session, dataset, reviewer = self._session, self._session.dataset, _reviewer(request)
        view = session.view(item, reviewer)
        is_table = dataset.picture is None and dataset.texts is None
        previous = session.store.neighbor(item.position, item.stream, -1)
        n_visible = max(MIN_VISIBLE_LABELS, sum(question.given == 1 for question in view.questions))
        if item.stream == "random" or n_visible + 1 == len(view.questions):
            n_visible = len(view.questions)  # rates count the answers of all labels: none may be confirmed unseen
        return self._page(
            request,
            "row.html",
            tab="review",
            position=item.position,
            view=view,
            focus=_parse_int(query.get("after")),
            n_visible=n_visible,
            previous=None if previous is None else previous.position,
            filter=_filter_query(query),
            known=session.queue.scores.known,
            text=None if dataset.texts is None else dataset.texts[item.row],
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
        kept = {name: query[name] for name in ("label", "given", "text", "at") if query.get(name)}
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
            query=urlencode(kept),
            filter=_filter_query(query),
            known=self._session.queue.scores.known,
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
            comparison=_displayed_comparison((trained or {}).get("comparison")),
            min_comparison_rows=MIN_ROWS_FOR_COMPARISON,
            folder=folder.resolve(),
            files=files if (folder / "review.json").exists() else [],
            next_command=self._next_command,
            reviewers=_reviewer_statistics(session.store.reviewer_answers()),
        )

    def _page(
        self, request: Request, template: str, *, tab: str, position: int | None = None, **context: Any
    ) -> Response:
        """Render a page with its header."""
        query, session = request.query_params, self._session
        at = _parse_int(query.get("at"))
        content = _TEMPLATES.get_template(template).render(
            tab=tab,
            position=at if position is None and tab != "review" and 0 <= at < session.store.length() else position,
            notice=NOTICES.get(query.get("notice", ""), ""),
            progress=session.store.progress(),
            goal=min(N_ROWS_FOR_PROBABILITIES, session.dataset.data.n),
            reviewer=_reviewer(request),
            dataset=session.dataset,
            trained=session.trained,
            **context,
        )
        return HTMLResponse(content)

    def exported_file(self, request: Request) -> Response:
        """Return a file of the latest export."""
        name = request.path_params["name"]
        path = self._session.folder / name
        if name not in EXPORTED_FILES or not path.is_file():
            raise HTTPException(404, "This file has not been exported.")
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(path.read_bytes(), media_type="application/octet-stream", headers=headers)

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
        await run_in_threadpool(self._session.answer, item, label, answer, _reviewer(request))
        return _redirect(f"/row/{item.position}", after=label, **_parse_query(form.get("filter", "")))

    async def accept(self, request: Request) -> Response:
        """Accept the given values of all labels of a row that have no answer, and go to the next row."""
        await run_in_threadpool(self._session.accept_rest, self._item(request), _reviewer(request))
        return await self.next(request)

    async def apply(self, request: Request) -> Response:
        """Accept the suggested values of all labels of a row that have no answer, and go to the next row."""
        item, reviewer = self._item(request), _reviewer(request)
        await run_in_threadpool(lambda: self._session.accept_rest(item, reviewer, suggestions=True))
        return await self.next(request)

    async def next(self, request: Request) -> Response:
        """Redirect to the next row of the open list, or show the final page after the last one."""
        item, query = self._item(request), _parse_query((await _read_form(request)).get("filter", ""))
        rows = self._session.find_rows(*self._filter(query)) if item.stream == "selected" else None
        following = await run_in_threadpool(self._session.following, item, rows)
        if following is None:
            return self._page(request, "end.html", tab="review", position=item.position, stream=item.stream)
        return _redirect(f"/row/{following.position}", **(query if item.stream == "selected" else {}))

    async def open_list(self, request: Request) -> Response:
        """Continue with the suspicious rows or with the random sample."""
        name = (await _read_form(request)).get("list")
        if name not in ("suspicious", "random"):
            raise HTTPException(400, "Expected the list suspicious or random.")
        item = await run_in_threadpool(self._session.queue.open, cast(Stream, name))
        if item is None:
            position = self._session.start().position
            return self._page(request, "end.html", tab="review", position=position, stream=name)
        return _redirect(f"/row/{item.position}")

    async def accept_suggestions(self, request: Request) -> Response:
        """Accept all suggestions for a label from an error probability on."""
        form = await _read_form(request)
        label, least = _parse_int(form.get("label")), form.get("least", "")
        if not 0 <= label < self._session.dataset.data.q or least not in map(str, BULK_LEVELS):
            raise HTTPException(400, "Expected a label and an error probability.")
        if not self._session.queue.scores.known:
            raise HTTPException(400, "Error probabilities are not known yet.")
        await run_in_threadpool(self._session.accept_suggestions, label, float(least), _reviewer(request))
        return _redirect("/rows", label=label, notice="accepted")

    async def note(self, request: Request) -> Response:
        """Store a note about a row."""
        form, item = await _read_form(request), self._item(request)
        text = " ".join(form.get("note", "").split())[:MAX_NOTE]
        await run_in_threadpool(self._session.store.set_note, item.row, _reviewer(request), text)
        return _redirect(f"/row/{item.position}", notice="noted")

    async def select(self, request: Request) -> Response:
        """Go to a row of the data."""
        form = await _read_form(request)
        row = _parse_int(form.get("row"))
        if not 0 <= row < self._session.dataset.data.n:
            raise HTTPException(400, f"Expected a row number from 0 to {self._session.dataset.data.n - 1}.")
        item = await run_in_threadpool(self._session.queue.select, row)
        return _redirect(f"/row/{item.position}", **_parse_query(form.get("filter", "")))

    async def reviewer(self, request: Request) -> Response:
        """Set the name of the reviewer, which is kept in a cookie of the browser."""
        form = await _read_form(request)
        name = "".join(c for c in " ".join(form.get("name", "").split()) if c.isprintable())[:MAX_REVIEWER_NAME]
        at = _parse_int(form.get("at"))
        response = _redirect(f"/row/{at}", notice="reviewer") if at >= 0 else _redirect("/")
        response.set_cookie(
            REVIEWER_COOKIE, quote(name, safe=""), max_age=31_536_000, httponly=True, samesite="strict", path="/"
        )
        return response

    def undo(self, request: Request) -> Response:
        """Undo the latest action of the reviewer and show its row."""
        undone = self._session.undo(_reviewer(request))
        if undone is None:
            return _redirect(f"/row/{self._session.start().position}", notice="nothing")
        if undone.position < 0:
            return _redirect("/rows", label=undone.labels[0], notice="undone")
        return _redirect(f"/row/{undone.position}", after=undone.labels[0], notice="undone")

    async def export(self, request: Request) -> Response:
        """Write the answers to the folder of the review."""
        form = await _read_form(request)
        await run_in_threadpool(export_answers, self._session)
        return _redirect("/results", at=max(_parse_int(form.get("at")), 0), notice="exported")

    async def retrain(self, request: Request) -> Response:
        """Start training in the background."""
        form = await _read_form(request)
        self._retraining.start()
        return _redirect("/results", at=max(_parse_int(form.get("at")), 0), notice="training")

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


async def _read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form. A repeated field has its last value."""
    try:
        fields = parse_qs((await request.body()).decode(), max_num_fields=8)
    except ValueError:
        raise HTTPException(400, "Expected a URL-encoded form.") from None
    return {name: values[-1] for name, values in fields.items()}


def _filter_query(query: Mapping[str, str]) -> str:
    return urlencode({name: query[name][:100] for name in ("label", "given", "text") if query.get(name)})


def _parse_query(text: str) -> dict[str, str]:
    return {name: values[-1] for name, values in parse_qs(text).items() if name in ("label", "given", "text")}


def _parse_int(text: str | None) -> int:
    """Return a non-negative integer; -1 for any other text."""
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 10 else -1


_TEMPLATES = Environment(
    loader=PackageLoader("ccmn.app.review"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)


def breakable(name: str) -> Markup:
    """Return a name that may be broken after underscores, hyphens, dots and slashes, but not within a word.

    >>> breakable("a_b<i>")
    Markup('a_<wbr>b&lt;i&gt;')
    """
    return Markup("<wbr>").join(re.split(r"(?<=[_./-])(?=.)", name))


_TEMPLATES.filters["breakable"] = breakable


def _rates(session: ReviewSession) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return the name and both noise rates of each label: in use, and counted in the random sample."""
    used, rows = session.rates_in_use(), []
    for j, (name, flips) in enumerate(zip(session.dataset.label_names, session.flip_counts()[:MAX_RATES])):
        rates = []
        for side, counted, n_flips, n_rows in (
            ("pos", flips.rho_pos, flips.missing, flips.positives),
            ("neg", flips.rho_neg, flips.added, flips.negatives),
        ):
            rate = None if used is None else float(getattr(used, f"rho_{side}")[j])
            off = bool(n_rows) and rate is not None and not counted.low <= rate <= counted.high
            rates.append({"key": f"{side}-{j}", "used": rate, "counted": counted, "off": off})
            rates[-1]["flips"] = f"{n_flips} of {n_rows}" if n_rows else ""
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


class ReviewerStatistics(NamedTuple):
    """Number of answers of a reviewer, of labels shared with another reviewer, and of equal answers among these."""

    name: str
    n_answers: int
    n_shared: int
    n_equal: int


def _reviewer_statistics(answers: list[ReviewerAnswer]) -> list[ReviewerStatistics]:
    """Compare the answers of the reviewers with each other; "unsure" answers are not compared."""
    by_label: dict[tuple[int, int], list[ReviewerAnswer]] = {}
    for answer in answers:
        by_label.setdefault((answer.row, answer.label), []).append(answer)
    found = {name: [0, 0, 0] for name in sorted({answer.reviewer for answer in answers})}
    for group in by_label.values():
        for one in group:
            others = [other for other in group if other.reviewer != one.reviewer and other.answer != "unsure"]
            compared = others if one.answer != "unsure" else []
            counts = found[one.reviewer]
            counts[0] += 1
            counts[1] += len(compared)
            counts[2] += sum(other.answer == one.answer for other in compared)
    return [ReviewerStatistics(name, *counts) for name, counts in found.items()]


def _displayed_comparison(comparison: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the texts and positions (from 0 to 200) of the comparison of models without and with the answers."""
    if not comparison:
        return None
    low, high = comparison["difference"][1:]
    verdict = "better" if high < 0 else "worse" if low > 0 else "not clearly different"
    where = "on the test set" if comparison["on"] == "test set" else "on your complete random rows, by cross-validation"
    models = {"without your answers": comparison["before"], "with your answers": comparison["after"]}
    longest = max(values[2] for values in models.values()) or 1.0
    return {
        "verdict": f"With your answers, the model is {verdict}.",
        "where": f"{where} ({comparison['n_rows']:,} rows)",
        "difference": comparison["difference"],
        "models": [
            (name, values, [round(200 * min(max(value, 0) / longest, 1), 1) for value in values])
            for name, values in models.items()
        ],
    }
