from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from podium.config import McpSettings, Settings, load
from podium.config.schema import read_file
from podium.core.errors import ConfigError

Write = Callable[..., Path]

WORKER = """
[[worker]]
name = "a"
provider = "scripted"
"""


def settings(write: Write, text: str) -> Settings:
    return load(write(text + WORKER))


def refusal(write: Write, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        settings(write, text)
    return str(caught.value).partition(": ")[2]


def test_a_program_and_an_address_become_servers_in_their_order(write: Write) -> None:
    found = settings(
        write,
        """
        [mcp.web-search]
        url = "https://example.com/mcp"
        key_env = "SEARCH_KEY"
        tools = ["search"]

        [mcp.files]
        command = "files-server"
        args = ["--root", "/srv"]
        env = ["FILES_TOKEN"]
        seconds = 5
        """,
    )
    assert found.mcp == (
        McpSettings(
            name="web-search",
            url="https://example.com/mcp",
            key_env="SEARCH_KEY",
            tools=("search",),
        ),
        McpSettings(
            name="files",
            command="files-server",
            args=("--root", "/srv"),
            env=("FILES_TOKEN",),
            seconds=5.0,
        ),
    )


def test_without_tables_there_are_no_servers(write: Write) -> None:
    assert settings(write, "").mcp == ()


def test_a_program_with_a_slash_is_counted_from_the_file(write: Write, tmp_path: Path) -> None:
    found = settings(write, '[mcp.a]\ncommand = "./serve"\n[mcp.b]\ncommand = "serve"')
    assert [item.command for item in found.mcp] == [str(tmp_path / "serve"), "serve"]


def test_servers_come_along_where_the_pool_is_another_files(write: Write) -> None:
    ours = read_file(write('[mcp.a]\ncommand = "a"', "podium.toml"))
    pool = read_file(write('[mcp.b]\ncommand = "b"' + WORKER, "pool.toml"))
    assert set(ours.complete_from(pool).mcp) == {"a", "b"}
    assert set(ours.overlay(pool).mcp) == {"b"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[mcp.a]", "mcp.a: expected one of command (a program to start) and url"),
        ('[mcp.a]\ncommand = "a"\nurl = "http://h/mcp"', "got both"),
        ('[mcp.a]\nurl = "http://h/mcp"\nargs = ["x"]', "mcp.a.args has no effect without command"),
        ('[mcp.a]\ncommand = "a"\nkey_env = "K"', "mcp.a.key_env has no effect without url"),
        ('[mcp.a]\nurl = "h/mcp"', "mcp.a.url: expected an address, such as"),
        ('[mcp.a]\nurl = "https://me:pw@h/mcp"', "mcp.a.url: expected an address without @"),
        ('[mcp.a]\nurl = "https://h/mcp?key=1"', "mcp.a.url: expected an address without @"),
        ('[mcp."A b"]\ncommand = "a"', "mcp.A b: expected a name of at most 32"),
        ('[mcp.a__b]\ncommand = "a"', "mcp.a__b: expected a name of at most 32"),
        ('[mcp.a]\ncomand = "a"', "unknown key mcp.a.comand; did you mean 'command'?"),
        ('[mcp.a]\ncommand = "a"\ntoken = "sk-1"', "mcp.a.token: a key must not be in a file"),
        ('[mcp.a]\ncommand = "a"\nargs = "x"', "mcp.a.args: expected a list, got the text 'x'"),
        ('[mcp.a]\ncommand = "a"\nseconds = 0', "mcp.a.seconds: expected more than 0, got 0"),
        ('[mcp]\ncommand = "a"', "mcp.command: expected a table, got the text 'a'"),
    ],
)
def test_invalid_values_are_refused_by_key(write: Write, text: str, said: str) -> None:
    assert said in refusal(write, text)


def test_key_like_values_in_env_are_not_repeated(write: Write) -> None:
    said = refusal(write, '[mcp.a]\ncommand = "a"\nenv = ["TOKEN=ghp_0123456789abcdef0123456789"]')
    assert said.startswith("mcp.a.env[0]: expected the name of an environment variable")
    assert "ghp_" not in said
