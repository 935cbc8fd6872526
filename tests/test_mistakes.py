"""Typical mistakes: each gets one clear line that says what to do, and no traceback."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import podium as package
from podium import (
    AsyncPodium,
    Message,
    Podium,
    Pool,
    RulesConductor,
    ScriptedWorker,
    Step,
    WorkerProfile,
    Workflow,
)
from podium.cli import main
from podium.core.errors import PodiumError
from podium.workers.endpoints import KNOWN_ENDPOINTS
from support.serving import PLAIN, application, serving

WORKER = '[[worker]]\nname = "one"\nprovider = "scripted"\noptions = { reply = "hi" }\n'
FILES = {
    "pool.toml": WORKER,
    "typo.toml": WORKER.replace("provider", "provder"),
    "broken.toml": "[[worker]\n",
    "twice.toml": WORKER * 2,
    "vendor.toml": WORKER.replace("scripted", "opnai"),
    "plan.json": '{"steps": [{"worker": "nobody", "subtask": "x", "access": []}]}',
    "broken.json": "{",
    "tasks.jsonl": '{"question": "q?", "answer": "a", "grader": "exakt"}\n',
    "untitled.jsonl": '{"answer": "a", "grader": "exact"}\n',
    "recipe.toml": "[modl]\n",
}

COMMANDS = [
    ("aks hello", "did you mean 'ask'"),
    ("pool chek", "unknown command 'chek'; did you mean 'check'?"),
    ("ask", "Missing argument 'QUESTION'"),
    ("ask ''", "the question is empty"),
    ("ask hello world --pool pool.toml", "unexpected extra argument"),
    ("ask q? --pool missing.toml", "missing.toml"),
    ("serve --pool pool.toml --port 99999", "--port"),
    ("runs feedback last 5", "a number from 0 to 1, got 5"),
    ("keys create x --scope amin", "expected one of ask, plan"),
    ("keys create x --expires yesterday", "give 12h, 30d or"),
    ("models pull hf:x", "hf:owner/repository/file.gguf"),
    ("ask q? --pool typo.toml", "did you mean 'provider'"),
    ("ask q? --pool broken.toml", "broken.toml"),
    ("ask q? --pool twice.toml", "one"),
    ("ask q? --pool vendor.toml", "openai"),
    ("ask q? --pool pool.toml --teir mini", "--tier"),
    ("ask q? --pool pool.toml --tier large", "mini"),
    ("ask q? --pool pool.toml --max-steps 0", "--max-steps"),
    ("ask q? --pool pool.toml --conductor ruels", "did you mean 'rules'"),
    ("ask q? --pool pool.toml --exclude nobody", "nobody"),
    ("ask q? --pool pool.toml --exclude one", "leaves no worker"),
    ("ask q? --pool pool.toml --budget-usd lots", "--budget-usd"),
    ("run broken.json --pool pool.toml", "broken.json"),
    ("run plan.json --pool pool.toml --question q?", "nobody"),
    ("runs show run_none --config pool.toml", "run_none"),
    ("keys revoke nobody --config pool.toml", "nobody"),
    ("models pull gtp-5", "gtp-5"),
    ("eval run gsm9k --pool pool.toml", "gsm9k"),
    ("eval run tasks.jsonl --pool pool.toml", "exact"),
    ("eval run untitled.jsonl --pool pool.toml", "question"),
    ("eval compare here there", "here"),
    ("train grpo recipe.toml --dry-run", "did you mean 'model'"),
    ("train export here -o out.gguf", "here"),
    ("init --file pool.toml --yes", "pool.toml"),
]
"""A command, and what its one line contains."""


def scripted() -> ScriptedWorker:
    return ScriptedWorker("one", "hi")


def ask(
    *arguments: Any, question: Any = "q?", options: dict[str, Any] | None = None, **settings: Any
) -> None:
    with Podium(*arguments, **settings) as podium:
        podium.ask(question, **(options or {}))


def ask_closed() -> None:
    podium = Podium([scripted()])
    podium.close()
    podium.ask("q?")


def run_unknown_worker() -> None:
    with Podium([scripted()]) as podium:
        podium.run(Workflow((Step("two", "x"),)), question="q?")


TEXT_AS_PARTS = Message("user", "I am Ada.")  # type: ignore[arg-type]

CALLS: list[tuple[Callable[[], object], str]] = [
    (lambda: ask("missing.toml"), "missing.toml: there is no such file"),
    (lambda: ask([scripted()], "ruels"), "did you mean 'rules'"),
    (lambda: AsyncPodium(["gpt-5"]), "give a list of workers"),  # type: ignore[list-item]
    (lambda: ask([scripted()], options={"max_step": 2}), "unexpected option 'max_step'"),
    (lambda: ask([scripted()], options={"exclude": {"two"}}), "cannot exclude 'two'"),
    (lambda: ask([scripted(), scripted()]), "two workers are named 'one'"),
    (lambda: ask([]), "the pool is empty"),
    (lambda: ask(scripted()), "workers is a ScriptedWorker; give a list"),
    (lambda: ask([ScriptedWorker]), "give ScriptedWorker()"),
    (lambda: ask([scripted()], pool=Pool((WorkerProfile(name="two"),))), "the pool names two"),
    (lambda: ask([scripted()], question=None), "the question is a NoneType; give a text"),
    (lambda: ask([scripted()], options={"max_steps": "3"}), "max_steps is '3'"),
    (lambda: ask([scripted()], options={"rounds": 0}), "rounds is 0"),
    (lambda: ask([scripted()], options={"exclude": "one"}), "exclude is the text 'one'"),
    (lambda: ask([scripted()], options={"tier": "ulta"}), "one of mini, podium, ultra"),
    (lambda: ask([scripted()], options={"budget": 0.5}), "such as Budget(calls=9)"),
    (lambda: ask([scripted()], options={"history": [{"role": "user"}]}), "give podium.user("),
    (lambda: ask([scripted()], options={"history": (TEXT_AS_PARTS,)}), "podium.user("),
    (lambda: ask([scripted()], RulesConductor), "inherit from Conductor, or give a name"),
    (lambda: ask([scripted()], settings="podium.toml"), "workers and settings exclude each other"),
    (lambda: Workflow(()), "the workflow has no steps"),
    (run_unknown_worker, "'two'"),
    (ask_closed, "this Podium is closed; create a new one"),
]
"""A call, and what its error says."""


@pytest.fixture(autouse=True)
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory with files that hold mistakes, and no key on this machine."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PODIUM_LOCAL_SERVERS", "off")
    for name in ("PODIUM_CONFIG", "PODIUM_DEBUG", "PODIUM_CALLED_AS"):
        monkeypatch.delenv(name, raising=False)
    for known in KNOWN_ENDPOINTS.values():
        for variable in known.variables:
            monkeypatch.delenv(variable, raising=False)


@pytest.mark.parametrize(("command", "says"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_a_mistake_on_the_command_line_gets_one_line(
    command: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(shlex.split(command)) != 0
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("podium: ")
    assert says in line
    assert "internal error" not in line


@pytest.mark.parametrize(("call", "says"), CALLS)
def test_a_mistake_in_python_is_an_error_of_one_line(call: Callable[[], object], says: str) -> None:
    with pytest.raises(PodiumError) as raised:
        call()
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_argument_that_is_missing_is_a_type_error_at_once() -> None:
    with Podium([scripted()]) as podium, pytest.raises(TypeError, match="'question'"):
        podium.run(Workflow((Step("one", "x"),)))  # type: ignore[call-arg]


def test_an_unknown_name_of_the_package_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'podium' has no attribute 'Podum'"):
        package.Podum  # noqa: B018


REQUESTS = [
    ("POST", PLAIN, b'{"model": "podium-ultar", "ask": "q?"}', 404, "podium-ultra"),
    ("POST", PLAIN, b"{nope", 400, "JSON"),
    ("POST", PLAIN, b"[1]", 400, "object"),
    ("GET", "/v1/nowhere", b"", 404, "/v1/nowhere"),
    ("POST", "/chat/completions", b"{}", 404, "base URL to http://podium.test/v1"),
    ("POST", "/v1/v1/messages", b"{}", 404, "for Anthropic's SDKs and Claude Code to http://podi"),
    ("GET", "/models", b"", 404, "did you mean /v1/models?"),
    ("POST", "/v1/chat/completions/chat/completions", b"{}", 404, "mean /v1/chat/completions?"),
    ("POST", "/openai/v1/embeddings", b"{}", 404, "did you mean /v1/embeddings?"),
    ("POST", "/api/chat", b"{}", 404, "this endpoint is not supported"),
]
"""A request, its status, and what the message of its body contains."""


@pytest.mark.parametrize(("method", "path", "body", "status", "says"), REQUESTS)
async def test_a_mistake_over_http_gets_a_message_of_one_line(
    method: str, path: str, body: bytes, status: int, says: str
) -> None:
    async with serving(application([scripted()])) as served:
        response = await served.client.request(method, path, content=body)
    assert response.status_code == status
    message = response.json()["message"]
    assert says in message
    assert "\n" not in message
