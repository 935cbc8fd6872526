from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from cli.support import MakePool, Podium, Vendor
from podium.cli import doctor as surroundings
from podium.config.local_servers import LocalServer
from podium.core.errors import ConfigError
from podium.workers.sandbox import IsolationLayer
from support.tool_servers import odd_server

SECRET = "sk-do-not-show-me-anywhere"


def test_without_anything_the_doctor_says_what_to_set(podium: Podium, home: Path) -> None:
    ended = podium("doctor")
    assert (ended.code, ended.err) == (0, "")
    assert f"configuration: no file; the default is {home / 'podium.toml'}" in ended.out
    assert "from the default pool" in ended.out
    assert "a small model on this machine" in ended.out
    assert "anthropic: set ANTHROPIC_API_KEY" in ended.out
    assert 'bedrock: name a model in podium.toml, with provider = "bedrock"' in ended.out
    assert f"runs are stored in {home / 'podium.db'}" in ended.out
    assert "not downloaded" in ended.out
    assert "budget per run: no cap on USD, as workers are free" in ended.out
    assert "ollama: looked for at its usual port; set OLLAMA_HOST for another" in ended.out


def test_a_key_is_noticed_and_never_shown(podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    ended = podium("doctor")
    assert "anthropic: ANTHROPIC_API_KEY is set" in ended.out
    assert "key set, not tried" in ended.out
    assert "1,000 in and 1,000 out: $" in ended.out
    assert "budget per run: $1; runs nest 2 deep" in ended.out
    assert "nothing is missing" in ended.out
    assert SECRET not in ended.out + ended.err


def test_an_address_of_the_environment_is_shown(
    podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://ada:pw@proxy")
    said = podium("doctor").out
    assert "anthropic: ANTHROPIC_API_KEY is set; ANTHROPIC_BASE_URL: http://proxy" in said


class Models(BaseHTTPRequestHandler):
    """Lists two models, as Ollama does, and shows that they call tools."""

    def do_GET(self) -> None:
        self.answer(b'{"object": "list", "data": [{"id": "llama3.2:latest"}, {"id": "qwen3:8b"}]}')

    def do_POST(self) -> None:
        self.answer(b'{"capabilities": ["completion", "tools"]}')

    def answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass


def test_a_model_server_of_this_machine_is_found_without_a_variable(
    podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PODIUM_LOCAL_SERVERS")
    with ThreadingHTTPServer(("127.0.0.1", 0), Models) as server:
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        address = f"127.0.0.1:{server.server_address[1]}"
        closed = LocalServer("vllm", "http://127.0.0.1:1/v1")
        usual = (LocalServer("ollama", f"http://{address}/v1"), closed)
        monkeypatch.setattr("podium.config.local_servers.DEFAULT_SERVERS", usual)
        plain = podium("doctor")
        server.shutdown()
    assert (plain.code, plain.err) == (0, "")
    found = f"local server ollama at {address}: 2 models: llama3.2:latest, qwen3:8b"
    assert found in plain.out
    assert f"pool: 2 workers from the environment (ollama at {address})" in plain.out
    assert "  llama3.2: " in plain.out
    assert "  qwen3:8b: " in plain.out
    assert "local servers: none found; looked for ollama at 127.0.0.1:11434" not in plain.out


def test_a_missing_key_is_a_problem_with_its_remedy(
    podium: Podium, vendor: Vendor, tmp_path: Path
) -> None:
    pool = vendor.pool("one", directory=tmp_path)
    with pool.open("a") as file:
        file.write('[[worker]]\nname = "far"\nprovider = "openai"\nkey_env = "MY_KEY"\n')
    ended = podium("doctor", "--pool", pool)
    assert ended.code == 2
    assert "  one: not tried" in ended.out
    assert "  far: not usable" in ended.out
    assert ended.complaint == "worker 'far' needs a key for openai; set MY_KEY in the environment"
    assert vendor.asked == []


@pytest.mark.parametrize(
    ("worker", "problem"),
    [
        (
            'provider = "openai-compatible"\nbase_url = "models.internal:8000/v1"',
            "models.internal:8000/v1",
        ),
        ('provider = "anthropic"\noptions = { thinking_style = "odd" }', "thinking_style"),
        ('provider = "scripted"', 'options = { reply = "…" }'),
        ('provider = "llamacpp"\nmodel = "smolm"', "smolm"),
        ('provider = "llamacpp"\nmodel = "file:absent.gguf"', "absent.gguf"),
    ],
)
def test_the_doctor_reports_what_prevents_a_question(
    podium: Podium, make_pool: MakePool, worker: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    pool = make_pool(
        head='[conductor]\nkind = "router"\n', tail=f'[[worker]]\nname = "odd"\n{worker}\n'
    )
    ended, asked = podium("doctor", "--pool", pool), podium("ask", "--pool", pool, "q?")
    assert (ended.code, asked.code) == (2, 2)
    assert problem in ended.complaint
    assert problem in asked.complaint
    assert "nothing is missing" not in ended.out


def test_a_missing_workflow_is_a_problem(podium: Podium, make_pool: MakePool) -> None:
    pool = make_pool(head='[conductor]\nkind = "fixed"\nworkflow = "absent.json"\n')
    ended = podium("doctor", "--pool", pool)
    assert ended.code == 2
    assert "absent.json: there is no such file" in ended.complaint


def test_nothing_is_missing_for_a_conductor_worker(podium: Podium, make_pool: MakePool) -> None:
    pool = make_pool(tail='[[worker]]\nname = "deeper"\nprovider = "podium"\n')
    ended = podium("doctor", "--pool", pool)
    assert (ended.code, ended.err) == (0, "")
    assert "nothing is missing" in ended.out


def test_a_broken_configuration_does_not_stop_the_doctor(podium: Podium, tmp_path: Path) -> None:
    file = tmp_path / "podium.toml"
    file.write_text("[conductor]\nkinds = 1\n")
    ended = podium("doctor", "--config", file)
    assert ended.code == 2
    assert "did you mean 'kind'?" in ended.complaint
    assert "providers:" in ended.out


def test_a_store_that_cannot_be_used_is_a_problem(
    podium: Podium, home: Path, tmp_path: Path
) -> None:
    home.mkdir()
    (home / "podium.db").write_text("no database, and long enough to be told from one\n" * 50)
    ended = podium("doctor")
    assert ended.code == 2
    assert ended.complaint.startswith("runs will not be stored: ")


def test_the_password_of_a_database_is_not_shown(podium: Podium, tmp_path: Path) -> None:
    file = tmp_path / "podium.toml"
    file.write_text(f'[store]\nurl = "postgresql://me:{SECRET}@127.0.0.1:1/podium"\n')
    ended = podium("doctor", "--config", file)
    assert ended.code == 2
    assert SECRET not in ended.out + ended.err


def test_the_doctor_lists_the_sandbox_layers(
    podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def walls() -> tuple[IsolationLayer, ...]:
        return IsolationLayer("mounts", "not allowed here"), IsolationLayer("network", None)

    monkeypatch.setattr("podium.workers.sandbox.isolation_layers", walls)
    output = podium("doctor").out
    assert "graded without mounts in the sandbox: not allowed here" in output
    assert "the wall network" not in output


def test_doctor_continues_without_a_sandbox(
    podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def walls() -> tuple[IsolationLayer, ...]:
        raise ConfigError("programs are run on Linux and macOS only")

    monkeypatch.setattr("podium.workers.sandbox.isolation_layers", walls)
    ended = podium("doctor")
    assert ended.code == 0
    assert "cannot be graded: programs are run on Linux and macOS only" in ended.out


def test_servers_of_tools_are_shown_with_their_tools_or_what_is_wrong(
    podium: Podium, make_pool: MakePool, tmp_path: Path
) -> None:
    there = odd_server(tmp_path, name="there")
    tables = (
        f'[mcp.there]\ncommand = "{there.command}"\nargs = {list(there.args)}\n'
        '[mcp.gone]\ncommand = "no-such-program-anywhere"\n'
    )
    pool = make_pool(tail=tables)
    plain = podium("doctor", "--pool", pool)
    assert (plain.code, plain.err) == (0, "")
    assert "1 tool: there__echo" in plain.out
    assert "MCP server gone (no-such-program-anywhere): not usable: " in plain.out


@pytest.mark.parametrize(
    ("variables", "address"),
    [
        ({}, "http://localhost:4318/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:p@collect.example/"}, "collect.example/v1/"),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://other.example",
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://own.example/traces",
            },
            "http://own.example/traces",
        ),
    ],
)
def test_the_doctor_says_where_traces_go(
    podium: Podium,
    make_pool: MakePool,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    address: str,
) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(surroundings, "find_spec", lambda name: object())
    assert "traces: off" in podium("doctor", "--pool", make_pool()).out
    pool = make_pool(head="[server]\ntraces = true\n")
    said = podium("doctor", "--pool", pool).out
    assert "podium serve sends them to http://" in said
    assert address in said
    assert "a:p@" not in said


def test_traces_without_their_extra_are_reported_with_how_to_get_it(
    podium: Podium, make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surroundings, "find_spec", lambda name: None)
    pool = make_pool(head="[server]\ntraces = true\n")
    assert "extra otel" in podium("doctor", "--pool", pool).out


def test_mini_tier_problems_name_the_local_command(
    podium: Podium, make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_CALLED_AS", "./podium")
    line = "mini tier: the cheapest worker; to have it routed: run `podium models pull some-model`"
    monkeypatch.setattr("podium.cli.doctor.mini_tier_lines", lambda settings: (line,))
    assert "run `./podium models pull some-model`" in podium("doctor", "--pool", make_pool()).out
