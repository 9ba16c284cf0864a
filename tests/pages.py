"""Code blocks of the documentation pages, and the program whose commands they show."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from typer.main import get_command

from ccmn.app.cli.app import app as app

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), *DOCS.glob("guides/*.md"), *DOCS.glob("tutorials/*.md")])

PROGRAM = get_command(app)
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands(command: Any = PROGRAM, words: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield every command that users see, as "noise show"."""
    if hasattr(command, "commands"):
        for word, below in command.commands.items():
            yield from commands(below, (*words, word))
    elif not command.hidden:
        yield " ".join(words)


class Block(NamedTuple):
    """Fenced code block and the paragraphs before and after it."""

    language: str
    text: str
    near: str

    @property
    def runs(self) -> bool:
        """Whether the tests run the block; a paragraph next to it says so if they do not."""
        return "not run by the tests" not in " ".join(self.near.lower().split())

    @property
    def commands(self) -> list[str]:
        """Commands after ``$``, without comments; a backslash at the end of a line continues the command."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line[2:].split(" #")[0].strip() for line in lines if line.startswith("$ ")]


def blocks(page: Path) -> list[Block]:
    """Return all fenced blocks of a page."""
    text = page.read_text()
    found = []
    for match in _FENCE.finditer(text):
        before, after = text[: match.start()].rstrip(), text[match.end() :].lstrip()
        near = before.rsplit("\n\n", 1)[-1] + "\n\n" + after.split("\n\n", 1)[0]
        found.append(Block(match[1], match[2], near))
    return found
