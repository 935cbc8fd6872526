"""The page of every command's help: `python scripts/cli_reference.py > docs/reference/cli.md`.

The page is made from the commands themselves; the test suite checks that it is current.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import typer

from podium.cli.app import app

COMMON: Final = 2
"""Arguments and options that so many commands describe alike are described once."""

EXPERIMENTS: Final = "podium lab"
"""Commands that the page only names."""

INTRODUCTION: Final = """\
# The command line

Made by `python scripts/cli_reference.py`; change the commands, not this page.

Answers and plans go to standard output, errors to standard error. On a terminal a run is drawn as a
tree; elsewhere it is one line an event. `--json` prints one object, or an array where a command
lists things.

| exit code | meaning |
|---|---|
| 0 | answered; a partial answer comes with a warning |
| 1 | the run failed, or something broke |
| 2 | usage or configuration |
| 3 | the budget was spent before there was an answer |
| 130 | interrupted; `podium runs resume` continues the run, unless `--no-store` was given |
| 141 | the reader of the output closed it |

`PODIUM_HOME` names one directory for everything that Podium keeps, `PODIUM_CONFIG` the
configuration file, and `PODIUM_DEBUG=1` shows where an error came from.
"""


class CommandHelp(NamedTuple):
    """One command as the page shows it."""

    path: str
    usage: str
    text: str
    arguments: list[tuple[str, str]]
    options: list[tuple[str, str]]


def page() -> str:
    """Return the whole page."""
    found = list(_commands(typer.main.get_command(app), "podium", None))
    commands = [command for command in found if not command.path.startswith(EXPERIMENTS)]
    experiments = [command.path for command in found if command.path.startswith(EXPERIMENTS)]
    seen = Counter(row for one in commands for row in (*one.arguments, *one.options))
    frequent = {names: text for (names, text), n in reversed(seen.most_common()) if n >= COMMON}
    common = set(frequent.items())
    parts = [INTRODUCTION.rstrip(), _common_section(common, experiments)]
    parts += [_section(command, common) for command in commands]
    return "\n\n".join(parts) + "\n"


def _common_section(common: set[tuple[str, str]], experiments: list[str]) -> str:
    rows = "\n".join(_line(option) for option in sorted(common))
    listed = ", ".join(f"`{path}`" for path in experiments)
    return (
        f"For experiments, and not below: {listed}.\n\n## Common arguments and options\n\n"
        f"Many commands have some of these; `--help` says which:\n\n```\n{rows}\n```"
    )


def _section(command: CommandHelp, common: set[tuple[str, str]]) -> str:
    given = [*command.arguments, *command.options]
    rows = [_line(row) for row in given if row not in common]
    block = "\n".join([command.usage, *rows])
    shown = f"\n\n```\n{block}\n```" if rows else ""
    return f"## {command.path}\n\n{command.text}{shown}"


def _line(row: tuple[str, str]) -> str:
    return f"  {row[0]}  {row[1]}".rstrip()


def _plain(text: str) -> str:
    """Return the text in one line, without types and ranges."""
    shown = re.sub(r"\[(required|[\d<=]*x[<>=\d.]*)\]|; x>=\d|<[\w|\[\]]+>", "", text)
    return " ".join(shown.split())


def _commands(command: Any, path: str, parent: Any) -> Iterator[CommandHelp]:
    """Yield a command and those inside it."""
    with command.make_context(
        path.rpartition(" ")[2], [], parent=parent, resilient_parsing=True
    ) as context:
        records: dict[str, list[tuple[str, str]]] = {"argument": [], "option": []}
        for param in command.params:
            record = param.get_help_record(context)
            if record is not None and not re.search(r"--help|-completion", record[0]):
                records[param.param_type_name].append((_plain(record[0]), _plain(record[1])))
        pieces = command.collect_usage_pieces(context)
        usage = " ".join([path, *(piece for piece in pieces if piece != "[OPTIONS]")])
        text = (command.help or "").partition("\n\n")[0]
        if records["argument"] or records["option"]:
            yield CommandHelp(path, usage, text, records["argument"], records["option"])
        if hasattr(command, "list_commands"):
            for name in command.list_commands(context):
                yield from _commands(command.get_command(context, name), f"{path} {name}", context)


if __name__ == "__main__":
    sys.stdout.write(page())
