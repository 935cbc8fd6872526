from __future__ import annotations

from pathlib import Path

import pytest

from podium.cli import main
from podium.config import ServerSettings
from podium.server import starting
from podium.server.starting import Chosen

POOL = """
[server]
port = 9000
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

    def listen(chosen: Chosen, server: ServerSettings) -> None:
        seen.append(server)

    monkeypatch.setattr(starting, "listen", listen)
    return seen


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "podium.toml"
    file.write_text(POOL, "utf-8")
    return str(file)


def test_the_command_line_goes_before_the_file(served: list[ServerSettings], config: str) -> None:
    assert main(["serve", "--config", config, "--port", "0", "--keys", "--workers", "3"]) == 0
    (server,) = served
    assert (server.port, server.keys, server.workers, server.in_flight) == (0, True, 3, 7)


def test_the_file_goes_before_what_is_usual(served: list[ServerSettings], config: str) -> None:
    assert main(["serve", "--config", config]) == 0
    assert (served[0].port, served[0].host, served[0].keys) == (9000, "127.0.0.1", False)


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
