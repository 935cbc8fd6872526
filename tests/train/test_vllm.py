"""Plans sampled by vLLM: TRL's own client over HTTP, a stand-in for the server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from podium.core.errors import ConfigError
from podium.train.preflight import require_trackers
from support.recipes import make_recipe
from support.trainings import LORA, REWARD, base, let_it_plan, metrics, tiny_recipe

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from trl.generation import vllm_client, vllm_generation

from podium.train import grpo, rollouts
from podium.train.rollouts import Policy
from podium.workers.local.decoding import Sampling

pytestmark = pytest.mark.torch

__all__ = ["base"]


class StandIn(ThreadingHTTPServer):
    """What TRL asks of `vllm serve`: three tokens for every completion, of which one is an end."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[dict[str, Any]] = []
        self.end = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: StandIn

    def do_GET(self) -> None:
        self._answer({"data": [{"id": "tiny"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        if "prompt" not in body:
            self._answer({"success": True})
            return
        self.server.asked.append(body)
        choices = [
            {"prompt_token_ids": prompt, "token_ids": [7 + copy, 9, self.server.end]}
            | {"logprobs": None}
            for prompt in body["prompt"]
            for copy in range(body["n"])
        ]
        self._answer({"choices": choices})

    def _answer(self, document: dict[str, Any]) -> None:
        content = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


class FakeVllm:
    """Record the prompts, and answer each with one token."""

    def __init__(self) -> None:
        self.prompts: list[list[int]] = []

    def generate(self, prompts: list[list[int]], *_: object) -> tuple[Any, ...]:
        self.prompts += prompts
        return prompts, [[7] for _ in prompts], None, None


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """The stand-in. What goes over NCCL, between GPUs, is kept here instead."""
    server = StandIn()
    sent: list[dict[str, Any]] = []

    def update(_: Any, metadata: Any, named: Iterator[tuple[str, Any]]) -> None:
        sent.append({name: tensor.detach().clone() for name, tensor in named})
        assert [name for name, _, _ in metadata] == list(sent[-1])

    for module in (vllm_client, vllm_generation):
        monkeypatch.setattr(module, "is_vllm_available", lambda *_, **__: True)
    monkeypatch.setattr(vllm_client.VLLMClient, "init_communicator", lambda *_, **__: None)
    monkeypatch.setattr(vllm_client.VLLMClient, "update_named_params", update)
    server.sent = sent  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("lora", [LORA, ""], ids=["adapter", "whole model"])
def test_plans_are_the_servers_and_every_step_sends_it_the_weights(
    lora: str, base: Path, tmp_path: Path, server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_it_plan(monkeypatch)
    text = REWARD.replace(LORA, lora)
    served = (f'grpo.vllm={{mode="server",url="{server.url}"}}', "run.baselines=false")
    recipe = tiny_recipe(text, base, tmp_path, "grpo.steps=2", "run.eval_every=2", *served)
    server.end = Policy(recipe).end_tokens[0]
    grpo.train(recipe)
    trained, measured = server.asked[:2], server.asked[2:]
    assert [(len(body["prompt"]), body["n"]) for body in trained] == [(2, 4), (2, 4)]
    assert {body["max_tokens"] for body in trained} == {4}
    assert {body["temperature"] for body in trained} == {1.0}
    assert {tuple(body["stop_token_ids"]) for body in trained} == {Policy(recipe).end_tokens}
    assert measured[0]["temperature"] == recipe.run.eval_temperature
    assert [line["mean_tokens"] for line in metrics(recipe) if "mean_tokens" in line] == [3.0, 3.0]
    first, second, last = server.sent  # type: ignore[attr-defined]
    assert all(name.startswith(("model.", "lm_head.")) for name in first)
    assert any(not torch.equal(first[name], second[name]) for name in first)
    assert set(last) == set(first)


def test_a_process_with_no_prompts_joins_the_others(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = tiny_recipe(REWARD, base, tmp_path)
    policy = Policy(recipe)
    policy.vllm = FakeVllm()
    monkeypatch.setattr(rollouts, "gather_object", lambda rows: [*rows, 2])
    collector = rollouts.Rollouts(recipe, policy, None)  # type: ignore[arg-type]
    assert collector.measure([], 0.0, None) == []  # type: ignore[arg-type]
    assert len(policy.vllm.prompts) == 2


def test_no_process_with_prompts_needs_no_vllm(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = Policy(tiny_recipe(REWARD, base, tmp_path))
    policy.vllm = FakeVllm()
    assert policy.sample([], Sampling(4)) == [] == policy.vllm.prompts


def test_a_missing_vllm_is_said_before_anything_is_loaded(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path, overrides=['grpo.vllm={mode="colocate"}'])
    with pytest.raises(ConfigError, match=r"grpo\.vllm needs the package vllm"):
        require_trackers(recipe)
