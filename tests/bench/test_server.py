"""The whole measurement, from the command on, with a LiteLLM that is not the real one but is
installed and started like it: it passes everything on to the upstream."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks.cli import app
from benchmarks.environment import LITELLM, Command, python_in
from benchmarks.server import litellm_python, litellm_version
from podium.core.errors import ConfigError

FAKE_LITELLM = """
import asyncio, json, sys
from urllib.parse import urlsplit

READY = b"HTTP/1.1 200 OK\\r\\ncontent-length: 0\\r\\n\\r\\n"


async def pump(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


async def serve(arguments):
    config = json.load(open(arguments["--config"]))
    upstream = urlsplit(config["model_list"][0]["litellm_params"]["api_base"]).port

    async def answer(reader, writer):
        first = await reader.read(65536)
        if first.startswith(b"GET /health/liveliness "):
            writer.write(READY)
            writer.close()
            return
        inner, outer = await asyncio.open_connection("127.0.0.1", upstream)
        outer.write(first)
        await asyncio.gather(pump(reader, outer), pump(inner, writer))

    server = await asyncio.start_server(answer, "127.0.0.1", int(arguments["--port"]))
    await server.serve_forever()


def run_server():
    assert "podium" not in sys.modules
    words = sys.argv[1:]
    asyncio.run(serve(dict(zip(words[::2], words[1::2], strict=True))))
"""


@pytest.fixture(scope="module")
def fake_litellm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has a package of that name."""
    directory = tmp_path_factory.mktemp("litellm")
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True, timeout=60
    )
    (packages,) = directory.glob("lib/python*/site-packages")
    (packages / "litellm.py").write_text(FAKE_LITELLM)
    (packages / "litellm-9.9.dist-info").mkdir()
    (packages / "litellm-9.9.dist-info" / "METADATA").write_text("Name: litellm\nVersion: 9.9\n")
    return python_in(directory)


@pytest.fixture(scope="module")
def printed(fake_litellm: Path) -> str:
    """What a short measurement prints."""
    result = CliRunner().invoke(app, ["server", "--quick", "--litellm", str(fake_litellm)])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def document(printed: str) -> Any:
    return json.loads(printed.splitlines()[-1])


def test_the_last_line_is_json_with_the_five_figures(document: Any) -> None:
    for name in ("gateway_cpu_ms", "one_step_cpu_ms", "cold_start_s", "litellm_rps_ratio"):
        assert document[name] > 0
    assert document["ttft_overhead_ms"] == pytest.approx(
        max(document["ttft_ms"][way] for way in ("podium", "one_step"))
        - document["ttft_ms"]["upstream"],
        abs=0.02,
    )


def test_the_table_comes_before_it(printed: str) -> None:
    assert printed.index("requests_per_second: podium") < printed.index('{"litellm_rps_ratio"')
    assert re.search(r"litellm \W+ 9\.9 ", printed)


def test_the_figures_are_made_of_what_is_printed_with_them(document: Any) -> None:
    rates = document["requests_per_second"]
    assert set(rates) == {"podium", "one_step", "litellm"}
    ratio = rates["podium"] / rates["litellm"]
    assert document["litellm_rps_ratio"] == pytest.approx(ratio, abs=0.01)
    assert document["gateway_cpu_ms"] == document["cpu_ms"]["podium"]
    assert document["one_step_cpu_ms"] == document["cpu_ms"]["one_step"]
    assert document["litellm"] == "9.9"


def test_a_relay_that_understands_nothing_costs_less_than_podium(document: Any) -> None:
    costs = document["cpu_ms"]
    assert 0 < costs["litellm"] < min(costs["podium"], costs["one_step"])


async def test_a_python_that_was_given_is_taken_as_it_is(fake_litellm: Path) -> None:
    def install(directory: Path, requirement: str) -> tuple[Command, ...]:
        raise AssertionError("nothing is to be installed")

    assert await litellm_python(fake_litellm, pytest.fail, install) == fake_litellm
    assert litellm_version(fake_litellm) == "9.9"


@pytest.mark.usefixtures("podium_home")
async def test_without_the_proxy_podium_is_measured_alone_and_says_how_to_install_it() -> None:
    said: list[str] = []

    def offline(directory: Path, requirement: str) -> tuple[Command, ...]:
        return ((sys.executable, "-c", "raise SystemExit('no index answers')"),)

    assert await litellm_python(None, said.append, offline) is None
    assert "no index answers" in said[-1]
    assert LITELLM.requirement in said[-1]
    assert "--litellm" in said[-1]


def test_a_python_without_the_proxy_is_an_error_that_says_how_to_install_it() -> None:
    with pytest.raises(ConfigError, match=r"has no LiteLLM.*pip install 'litellm\[proxy\]'"):
        litellm_version(Path(sys.executable))


def test_what_is_no_python_at_all_is_named() -> None:
    with pytest.raises(ConfigError, match="/no/such/python is not a Python that runs"):
        litellm_version(Path("/no/such/python"))
