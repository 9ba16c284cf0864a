"""Sphinx directive ``{command} noise estimate``: document a command from its own help, so that it is up to date."""

from __future__ import annotations

import contextlib
import io
import re
from typing import Any

import typer.main
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from ccmn.app.cli.app import app as program


def find_command(words: list[str]) -> tuple[Any, Any]:
    """Return a command and its context."""
    command = typer.main.get_command(program)
    context = command.make_context("ccmn", [], resilient_parsing=True)
    for word in words:
        command = command.commands[word]
        context = type(context)(command, info_name=word, parent=context)
    with contextlib.redirect_stdout(io.StringIO()):  # printing the help fills in choices and defaults
        command.get_help(context)
    return command, context


class CommandDirective(SphinxDirective):
    """Usage, help, arguments and options of one command."""

    has_content = False
    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        command, context = find_command(self.arguments[0].split())
        usage = command.get_usage(context).removeprefix("Usage: ")
        paragraphs = [paragraph(" ".join(part.split())) for part in (command.help or "").split("\n\n")]
        parameters = [one for one in command.get_params(context) if not getattr(one, "hidden", False)]
        items = [parameter_item(one, context) for one in parameters if one.name != "help"]
        return [nodes.literal_block(usage, usage, language="text"), *paragraphs, nodes.definition_list("", *items)]


def paragraph(text: str) -> nodes.Node:
    """Return a paragraph of the help; examples become a block with one command per line."""
    if not re.match("Examples?: ", text):
        return nodes.paragraph(text=text)
    commands = re.sub(r",? or (?=ccmn|torchrun)", "\n", text.split(": ", 1)[1])
    return nodes.literal_block(commands, commands, language="text")


def parameter_item(parameter: Any, context: Any) -> nodes.definition_list_item:
    """Return an argument or option with its help text."""
    name, text = parameter.get_help_record(context) or (parameter.make_metavar(context), parameter.help or "")
    if parameter.param_type_name == "argument":
        name = name.split(" <")[0]  # DATA, not DATA <str>
    term = nodes.term("", "", nodes.literal(text=" ".join(name.split())))
    return nodes.definition_list_item("", term, nodes.definition("", nodes.paragraph(text=" ".join(text.split()))))


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("command", CommandDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
