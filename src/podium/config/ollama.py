"""Asking an Ollama server which models it has."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, Field, ValidationError

from podium.config.schema import WorkerTable
from podium.errors import ConfigError

SECONDS_TO_ANSWER: Final = 5.0
"""A server on this machine or in this house answers at once, or is not there."""


class _Details(BaseModel):
    parameter_size: str = ""


class _Model(BaseModel):
    name: Annotated[str, Field(min_length=1)]
    size: int = 0
    details: _Details = _Details()


class _Tags(BaseModel):
    models: list[_Model]


async def discover_ollama(base_url: str) -> tuple[WorkerTable, ...]:
    """The models that are installed there as workers, the largest first.

    `base_url` is the server's OpenAI-compatible address. Models that only embed are left out.
    """
    import aiohttp  # here, because most starts have no Ollama and should not wait for it

    server = base_url.rstrip("/").removesuffix("/v1")
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(SECONDS_TO_ANSWER)) as session,
            session.get(f"{server}/api/tags", raise_for_status=True) as response,
        ):
            tags = _Tags.model_validate_json(await response.read())
    except (aiohttp.ClientError, TimeoutError, ValidationError) as error:
        raise ConfigError(
            f"no Ollama answers at {server} (OLLAMA_HOST); start it with `ollama serve`, or "
            f"unset OLLAMA_HOST"
        ) from error
    answering = [model for model in tags.models if "embed" not in model.name]
    if not answering:
        raise ConfigError(
            f"Ollama at {server} (OLLAMA_HOST) has no model; pull one, such as "
            f"`ollama pull llama3.2`, or unset OLLAMA_HOST"
        )
    return tuple(
        WorkerTable(
            name=model.name.removesuffix(":latest"),
            provider="ollama",
            model=model.name,
            description=f"{model.details.parameter_size or 'a'} model on one's own machine".strip(),
        )
        for model in sorted(answering, key=lambda model: -model.size)
    )
