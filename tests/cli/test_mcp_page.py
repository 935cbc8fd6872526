"""The page on MCP says what is so."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import get_args

import pytest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from podium.cli import main
from podium.cli.mcp_server import create_server
from podium.client.client import AsyncPodium
from podium.config import load
from podium.core.run import Tier
from podium.workers import mcp, mcp_connection

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "mcp.md").read_text("utf-8")

WORKER = '\n[[worker]]\nname = "a"\nprovider = "scripted"\noptions = { reply = "yes" }\n'


def test_its_tables_are_a_configuration(tmp_path: Path) -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    file = tmp_path / "podium.toml"
    file.write_text(block + WORKER, "utf-8")
    assert [server.name for server in load(file).mcp] == ["fetch", "files", "search"]


def test_it_names_every_revision_that_is_spoken() -> None:
    assert re.findall(r"\d{4}-\d\d-\d\d", PAGE) == list(reversed(HANDSHAKE_PROTOCOL_VERSIONS))


async def test_every_tool_is_named_with_all_its_arguments() -> None:
    for tool in await create_server(AsyncPodium()).list_tools():
        (row,) = re.findall(rf"^\| `{tool.name}` \|.*$", PAGE, re.MULTILINE)
        for argument in tool.input_schema["properties"]:
            assert f"`{argument}`" in row
    for tier in get_args(Tier):
        assert f"`{tier}`" in PAGE


def test_its_limits_are_those_of_the_code() -> None:
    assert f"more than {mcp_connection.LARGEST_MESSAGE // 1024**2} MiB" in PAGE
    assert f"{mcp.LONGEST_RESULT:,} characters" in PAGE


def test_the_command_that_clients_are_told_to_start_exists(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (added,) = re.findall(r"^\$ claude mcp add podium -- podium (.+)$", PAGE, re.MULTILINE)
    (desktop,) = (json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL))
    started = desktop["mcpServers"]["podium"]
    assert started["command"] == "podium"
    for arguments in (shlex.split(added), started["args"]):
        assert arguments[0] == "mcp"
        assert main([*arguments, "--help"]) == 0, capsys.readouterr().err
