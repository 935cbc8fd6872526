from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.support import Podium
from podium import __version__
from podium.cli.app import COMMANDS

HEAVY = {"rich", "aiohttp", "sqlalchemy", "xllamacpp", "podium.cli.session", "podium.cli.ask"}


def test_the_version_is_one_line(podium: Podium) -> None:
    ended = podium("--version")
    assert (ended.code, ended.out) == (0, f"podium {__version__}\n")


def test_without_a_command_the_commands_are_listed(podium: Podium) -> None:
    ended = podium()
    assert ended.code == 0
    for name in ("ask", "plan", "run", "chat", "runs", "pool", "models", "doctor"):
        assert f"\n  {name} " in ended.out


@pytest.mark.parametrize("noun", ["runs", "pool", "models"])
def test_a_noun_without_a_command_lists_its_commands(podium: Podium, noun: str) -> None:
    ended = podium(noun)
    assert (ended.code, ended.out, ended.err) == (0, podium(noun, "--help").out, "")


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("ask q? >&-", "standard output is closed"),
        ("--help >&-", "standard output is closed"),
        ("ask - <&-", "standard input is closed"),
        ("run - <&-", "standard input is closed"),
        ("chat <&-", "standard input is closed"),
    ],
)
def test_a_stream_that_is_closed_is_named(command: str, reason: str) -> None:
    ended = subprocess.run(
        ["sh", "-c", f'"$0" -m podium {command}', sys.executable],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"podium: {reason}")
    assert len(ended.stderr.splitlines()) == 1


def test_without_a_standard_error_complaints_go_nowhere() -> None:
    ended = subprocess.run(
        ["sh", "-c", '"$0" -m podium ask 2>&-', sys.executable],
        capture_output=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, b"", b"")


@pytest.mark.parametrize("argument", ["--version", "--help"])
def test_version_and_help_load_nothing_that_takes_long(argument: str) -> None:
    code = (
        "import sys; from podium.cli import main; code = main(sys.argv[1:]);"
        "print(*sys.modules, sep='\\n', file=sys.stderr); sys.exit(code)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, argument], capture_output=True, text=True, check=True
    )
    assert HEAVY.isdisjoint(ended.stderr.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_can_be_asked_for_help(podium: Podium, name: str) -> None:
    ended = podium(name, "--help")
    assert ended.code == 0
    assert ended.out.startswith(f"Usage: podium {name} ")
    if COMMANDS[name].application.startswith("podium.cli."):
        assert COMMANDS[name].help in " ".join(ended.out.split()), "the list says something else"


def test_the_help_of_runs_promises_only_commands_that_exist(podium: Podium) -> None:
    promised, _, commands = podium("runs", "--help").out.partition("Commands:")
    verbs = COMMANDS["runs"].help.lower().removesuffix(" runs.").replace(" and ", ", ").split(", ")
    assert COMMANDS["runs"].help in promised
    assert set(verbs) <= set(re.findall(r"^  (\w+) ", commands, re.MULTILINE))


def test_an_unknown_command_names_the_nearest(podium: Podium) -> None:
    ended = podium("aks", "q?")
    assert ended.code == 2
    assert "unknown command 'aks'; did you mean 'ask'?" in ended.complaint


HELP = [("--help",), ("--version",), ("ask", "--help"), ("runs", "show", "--help")]


@pytest.mark.parametrize("arguments", HELP, ids=" ".join)
def test_help_on_a_full_disk_is_output_that_was_lost(
    start: Callable[..., subprocess.Popen[str]], arguments: tuple[str, ...]
) -> None:
    with Path("/dev/full").open("w") as full:
        process = start(*arguments, stdout=full.fileno())
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err == "podium: cannot write the output: No space left on device; write it elsewhere\n"


def test_help_into_a_closed_pipe_ends_quietly(
    start: Callable[..., subprocess.Popen[str]],
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        process = start("ask", "--help", stdout=writer)
    finally:
        os.close(writer)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (141, "")


def test_the_package_runs_as_a_module() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "podium", "ask"], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "podium: Missing argument 'QUESTION'; see podium ask --help\n"


def test_help_shows_six_options_of_an_evaluation_and_help_all_shows_every_one(
    podium: Podium,
) -> None:
    def options(shown: str) -> list[str]:
        return re.findall(r"^  (?:-\w, )?(--[\w-]+)", shown, re.M)

    brief, full = (podium("eval", "run", option) for option in ("--help", "--help-all"))
    assert (brief.code, full.code) == (0, 0)
    assert options(brief.out) == [
        *("--limit", "--strategy", "--budget-usd", "--output", "--pool", "--json"),
        *("--help-all", "--help"),
    ]
    assert len(options(full.out)) > 20


def test_the_list_of_a_nouns_commands_is_not_cut_off(podium: Podium) -> None:
    for name in ("eval", "lab", "runs"):
        assert "..." not in podium(name, "--help").out.replace("COMMAND [ARGS]...", "")
