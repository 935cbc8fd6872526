"""Asking a llama.cpp process directly, beside the worker that is tested."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from podium.workers.local.llama_server import ModelServer, ModelSettings, SharedModel


@contextmanager
def serving(settings: ModelSettings, adapters: Sequence[str] = ()) -> Iterator[ModelServer]:
    """A process of its own with these adapters, for as long as this lasts."""
    model = SharedModel(settings)
    for adapter in adapters:
        model.acquire(adapter)
    server = asyncio.run(model.serving())
    try:
        yield server
    finally:
        asyncio.run(model.close())


def post(server: ModelServer, path: str, body: Mapping[str, Any]) -> Any:
    """What the process answers."""
    request = urllib.request.Request(
        server.address + path,
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {server.key}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.loads(response.read())


def next_tokens(
    server: ModelServer, tokens: Sequence[int], adapter: int | None, count: int
) -> dict[int, float]:
    """The likeliest tokens after these, with their log probabilities."""
    scales = [
        {"id": where, "scale": float(where == adapter)} for where in range(len(server.adapters))
    ]
    asked = {
        "prompt": list(tokens),
        "n_predict": 1,
        "temperature": 0,
        "n_probs": count,
        "cache_prompt": False,
        "lora": scales,
    }
    (first,) = post(server, "/completion", asked)["completion_probabilities"]
    return {token["id"]: token["logprob"] for token in first["top_logprobs"]}
