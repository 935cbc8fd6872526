"""The whole measurement, from the command on, with a LiteLLM that is not the real one but is
installed and started like it: it passes everything on to the upstream."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks import environment
from benchmarks.cli import app
from benchmarks.environment import LITELLM, Command, Peer

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


def install_fake(peer: Peer) -> tuple[Command, ...]:
    """Install a package of that name; there is no gateway for Node.js."""
    if peer is not LITELLM:
        return ((sys.executable, "-c", "raise SystemExit('no index answers')"),)
    where = (
        "import pathlib, sysconfig; "
        f"pathlib.Path(sysconfig.get_path('purelib'), 'litellm.py').write_text({FAKE_LITELLM!r})"
    )
    return (
        (sys.executable, "-m", "venv", "--without-pip", str(peer.directory)),
        (str(peer.program), "-I", "-c", where),
    )


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a short measurement prints."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PODIUM_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setattr(environment, "install_commands", install_fake)
        result = CliRunner().invoke(app, ["server", "--quick"])
    assert result.exit_code == 0, result.output
    assert "no index answers" in result.stderr
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
    assert re.search(rf"litellm \W+ {LITELLM.version} ", printed)


def test_the_figures_are_made_of_what_is_printed_with_them(document: Any) -> None:
    rates = document["requests_per_second"]
    assert set(rates) == {"podium", "one_step", "litellm"}
    ratio = rates["podium"] / rates["litellm"]
    assert document["litellm_rps_ratio"] == pytest.approx(ratio, abs=0.01)
    assert document["gateway_cpu_ms"] == document["cpu_ms"]["podium"]
    assert document["one_step_cpu_ms"] == document["cpu_ms"]["one_step"]
    assert document["litellm"] == LITELLM.version
    assert document["portkey_rps_ratio"] is None


def test_a_plain_relay_costs_less_than_podium(document: Any) -> None:
    costs = document["cpu_ms"]
    assert 0 < costs["litellm"] < min(costs["podium"], costs["one_step"])
