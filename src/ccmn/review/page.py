"""The page of a row: what it is, its labels with three buttons each, and where the review stands."""

from __future__ import annotations

from html import escape

from ccmn.review.panels import progress_panel, rates_panel, training_panel
from ccmn.review.retrain import Retraining
from ccmn.review.session import Question, Session, View
from ccmn.review.store import ANSWERS, Item
from ccmn.review.subject import Subject

MOST_CHARACTERS = 20_000
"""Of a text; what is longer is cut, and that is said."""

STREAMS = {
    "random": (
        "drawn by lot",
        "Rows drawn by lot are a fair sample of your data: they alone count for the rates, and only with an answer to "
        "every label. Passing over the difficult ones would make the rates look better than they are.",
    ),
    "suspicious": (
        "looks wrong",
        "The model doubts a label here. Such rows are where most can be put right, but they are no fair sample: they "
        "do not count for the rates.",
    ),
}
"""What is said openly about why a row is shown."""

KEYS = (
    ("y", "yes, the label belongs here"),
    ("n", "no, it does not"),
    ("u", "unsure"),
    ("a", "the rest is right as given"),
    ("↑ ↓", "label before, label after"),
    ("→ ←", "row after, row before"),
    ("z", "undo"),
)
_WORDS = {"yes": "Yes", "no": "No", "unsure": "Unsure"}


def review_page(
    session: Session, item: Item, retraining: Retraining, *, at: int = -1, after: int = -1, said: str = ""
) -> str:
    """A whole page; ``at`` is the label to go to, ``after`` the one that was answered just now."""
    view = session.view(item)
    focus = _focus(view, at, after)
    content = (
        f'<section class="subject" aria-labelledby="title">{_title(session, view)}{_subject(session.subject, item.row)}'
        f"</section>"
        f'<section aria-labelledby="asked"><h2 id="asked">Which labels belong to this row?</h2>'
        f"{''.join(_question(item, q, focus == q.label) for q in view.questions)}{_buttons(view, focus is None)}"
        f"</section>"
        f'<aside aria-label="where the review stands">{progress_panel(session, view)}'
        f"{training_panel(session, view, retraining)}{rates_panel(session, view)}</aside>"
    )
    return _document(f"Row {item.row} · ccmn review", content, said)


def end_page(item: Item) -> str:
    """Everything was looked at."""
    back = f'<p><a href="/row/{item.position}" data-focus>Back to the last row</a></p>'
    return _document("The end · ccmn review", f"<section><h1>Every row was looked at</h1>{back}</section>", "")


def _document(title: str, content: str, said: str) -> str:
    keys = "".join(f"<dt><kbd>{escape(key)}</kbd></dt><dd>{escape(what)}</dd>" for key, what in KEYS)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(title)}</title>'
        '<link rel="icon" href="data:,"><link rel="stylesheet" href="/static/review.css">'
        '<script src="/static/review.js" defer></script></head><body>'
        f'<header><a class="home" href="/">ccmn review</a><details><summary>keys</summary><dl>{keys}</dl></details>'
        f'</header><p id="said" role="status">{escape(said)}</p><main>{content}</main></body></html>'
    )


def _focus(view: View, at: int, after: int) -> int | None:
    """The label to stand at: the one asked for, else the next without an answer; None: there is none."""
    labels = [question.label for question in view.questions]
    if at in labels:
        return at
    start = labels.index(after) + 1 if after in labels else 0
    following = [*view.questions[start:], *view.questions[:start]]
    return next((question.label for question in following if question.answer is None), None)


def _title(session: Session, view: View) -> str:
    word, why = STREAMS[view.item.stream]
    name = session.subject.data.name
    of = f" of {escape(name)}" if name else ""
    return (
        f'<h1 id="title">Row {view.item.row}{of}</h1>'
        f'<details class="stream {view.item.stream}"><summary>{word}</summary><p>{why}</p></details>'
    )


def _subject(subject: Subject, row: int) -> str:
    """The row itself: its picture, its text, or its features."""
    parts = []
    if subject.picture is not None:
        parts.append(f'<img class="picture" src="/picture/{row}" alt="the picture of row {row}">')
    if subject.texts is not None:
        text = subject.texts[row]
        cut = f'<p class="faint">… cut after {MOST_CHARACTERS:,} characters</p>' if len(text) > MOST_CHARACTERS else ""
        parts.append(f'<blockquote tabindex="0">{escape(text[:MOST_CHARACTERS])}</blockquote>{cut}')
    return "".join(parts) or _features(subject, row)


def _features(subject: Subject, row: int) -> str:
    found = subject.features(row)
    lines = "".join(
        f"<tr><th scope=row>{escape(name)}</th><td>{value:.4g}</td><td>{apart:+.1f}</td></tr>"
        for name, value, apart in found
    )
    some = f"the {len(found)} most unusual of {subject.data.d} features" if len(found) < subject.data.d else "features"
    return (
        f'<div class="wide" tabindex="0"><table><caption>{some}</caption><thead><tr><th scope=col>feature</th>'
        f"<th scope=col>value</th><th scope=col>deviations from the mean</th></tr></thead>{lines}</table></div>"
    )


def _question(item: Item, question: Question, focus: bool) -> str:
    name = escape(question.name)
    given = {1: "given", 0: "not given", None: "not observed"}[question.given]
    # Never "100 %": nothing that rests on estimated rates is as sure as that.
    doubt = "" if question.p_wrong is None else f"{min(question.p_wrong, 0.99):.0%} doubt"
    strong = " strong" if (question.p_wrong or 0) >= 0.5 else ""
    state = question.answer or "open"
    buttons = "".join(_choice(question, answer, focus) for answer in ANSWERS)
    spoken = ", ".join(part for part in (f"label {name}", given, doubt and f"the model has {doubt}", state) if part)
    return (
        f'<form class="label {state}" method="post" action="/row/{item.position}/answer" role="group" '
        f'aria-label="{spoken}" id="label-{question.label}"><input type="hidden" name="label" '
        f'value="{question.label}"><span class="name">{name}</span><span class="given">{given}</span>'
        f'<span class="doubt{strong}">{doubt}</span><span class="choices">{buttons}</span></form>'
    )


def _choice(question: Question, answer: str, focus: bool) -> str:
    pressed = question.answer == answer
    here = focus and (pressed or (question.answer is None and answer == "yes"))
    return (
        f'<button name="answer" value="{answer}" aria-pressed="{str(pressed).lower()}"{" data-focus" if here else ""} '
        f'aria-label="{_WORDS[answer]}: {escape(question.name)}">{_WORDS[answer]}</button>'
    )


def _buttons(view: View, focus: bool) -> str:
    position = view.item.position
    rest = "" if view.open else " disabled"
    undo = "" if view.can_undo else " disabled"
    here = " data-focus" if focus else ""
    previous = f'<a class="button" data-key="ArrowLeft" href="/row/{position - 1}">← Back</a>' if position else ""
    return (
        f'<div class="buttons">{previous}'
        f'<form method="post" action="/row/{position}/accept"><button data-key="a"{rest}>The rest is right as given'
        f"</button></form>"
        f'<form method="post" action="/row/{position}/next"><button data-key="ArrowRight"{here}>Next row →</button>'
        f"</form>"
        f'<form method="post" action="/undo"><button data-key="z"{undo}>Undo</button></form></div>'
    )
