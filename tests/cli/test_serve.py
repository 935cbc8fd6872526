from __future__ import annotations

from pathlib import Path
from socket import create_server, socket

import pytest

from podium.cli import main
from podium.config import ServerSettings
from podium.server import startup as starting
from podium.server.startup import ServeOptions

POOL = """
[store]
path = "runs.db"

[server]
port = 0
in_flight = 7

[[worker]]
name = "echo"
provider = "scripted"
options = { reply = "yes" }
"""


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[ServerSettings]:
    """What would have been served."""
    seen: list[ServerSettings] = []

    def listen(chosen: ServeOptions, server: ServerSettings, bound: socket) -> None:
        seen.append(server)

    monkeypatch.setattr(starting, "serve", listen)
    return seen


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "podium.toml"
    file.write_text(POOL, "utf-8")
    return str(file)


def test_the_command_line_overrides_the_file(served: list[ServerSettings], config: str) -> None:
    given = ["--host", "localhost", "--keys", "--workers", "3", "--log", "json"]
    assert main(["serve", "--config", config, *given]) == 0
    (server,) = served
    assert (server.host, server.require_keys, server.workers, server.log) == (
        "localhost",
        True,
        3,
        "json",
    )
    assert server.in_flight == 7


def test_the_file_goes_before_what_is_usual(served: list[ServerSettings], config: str) -> None:
    assert main(["serve", "--config", config]) == 0
    assert (served[0].port, served[0].host, served[0].require_keys) == (0, "127.0.0.1", False)


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        (["--host", "0.0.0.0"], True),
        (["--host", "0.0.0.0", "--keys"], False),
        ([], False),
    ],
)
def test_a_public_address_without_keys_is_warned_of(
    options: list[str],
    warned: bool,
    served: list[ServerSettings],
    config: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["serve", "--config", config, *options]) == 0
    assert ("spends your money" in capsys.readouterr().err) is warned


def test_a_key_of_the_table_that_there_is_not_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "podium.toml"
    file.write_text(POOL.replace("in_flight", "in_flihgt"), "utf-8")
    assert main(["serve", "--config", str(file)]) == 2
    assert "in_flight" in capsys.readouterr().err


def test_a_port_that_is_taken_is_one_line_and_nothing_is_begun(
    served: list[ServerSettings], config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert main(["serve", "--config", config, "--port", str(port)]) == 2
    assert not served
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"podium: port {port} of 127.0.0.1 is taken")
    assert "--port" in line


def test_a_form_of_the_log_that_there_is_not_is_an_error(
    served: list[ServerSettings], config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--config", config, "--log", "xml"]) == 2
    assert "text or json" in capsys.readouterr().err
    assert not served


def test_an_empty_list_of_keys_says_how_to_make_one(
    served: list[ServerSettings], config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--config", config, "--keys"]) == 0
    assert "keys create NAME" in capsys.readouterr().err
    assert main(["keys", "create", "Ada", "--config", config]) == 0
    capsys.readouterr()
    assert main(["serve", "--config", config, "--keys"]) == 0
    said = capsys.readouterr().err
    assert "API key required; podium keys list" in said
    assert "keys create" not in said
    assert main(["keys", "revoke", "Ada", "--config", config]) == 0
    assert main(["serve", "--config", config, "--keys"]) == 0
    assert "keys create NAME" in capsys.readouterr().err
    assert len(served) == 3


def test_a_pool_that_names_the_server_itself_does_not_start(
    served: list[ServerSettings], config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = 'name = "own"\nprovider = "openai-compatible"\nbase_url = "http://127.0.0.1:7755/v1"'
    Path(config).write_text(f"[[worker]]\n{text}\n", "utf-8")
    assert main(["serve", "--config", config]) == 2
    assert "this server" in capsys.readouterr().err
    assert not served
