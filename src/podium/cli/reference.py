"""The page of every command's help: `python -m podium.cli.reference > docs/reference/cli.md`.

The page is made from the commands themselves, and a test holds the two together.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

import typer

from podium.cli.app import app

WIDTH: Final = 100

INTRODUCTION: Final = """\
# The command line

Made by `python -m podium.cli.reference`; change the commands, not this page.

Answers and plans go to standard output, complaints to standard error, each in one line that says
what to do. Where standard output is a terminal, a run is drawn as a tree while it happens; else
it is told line by line. `--json` prints one JSON object, or an array of them where a command lists
things, and nothing else. Text that models wrote is shown without anything in it that a terminal
would obey.

| exit code | meaning |
|---|---|
| 0 | answered; a partial answer comes with a warning |
| 1 | the run failed, or something broke |
| 2 | usage or configuration |
| 3 | the budget was spent before there was an answer |
| 130 | interrupted; a run that had begun is kept for `podium runs resume` (not with `--no-store`) |
| 141 | whoever read the output went away |

`PODIUM_HOME` names one directory for everything that Podium keeps, `PODIUM_CONFIG` the
configuration file, and `PODIUM_DEBUG=1` shows where an error came from.
"""


def page() -> str:
    """The whole page."""
    command = typer.main.get_command(app)
    sections = [f"## {path}\n\n```\n{text}\n```" for path, text in _helps(command, "podium", None)]
    return "\n\n".join([INTRODUCTION.rstrip(), *sections]) + "\n"


def _helps(command: Any, path: str, parent: Any) -> Iterator[tuple[str, str]]:
    """Each command's path and help, those inside it after it; a peer's own command left out."""
    with command.make_context(
        path.rpartition(" ")[2], [], parent=parent, resilient_parsing=True, terminal_width=WIDTH
    ) as context:
        yield path, command.get_help(context).rstrip()
        if hasattr(command, "list_commands"):
            for name in command.list_commands(context):
                yield from _helps(command.get_command(context, name), f"{path} {name}", context)


if __name__ == "__main__":
    sys.stdout.write(page())
