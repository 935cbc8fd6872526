"""OpenAI: Chat Completions, or Responses where the endpoint's options say `wire = "responses"`.

Chat Completions are those of every compatible endpoint, with OpenAI's own dialect. Responses
are in `openai_responses`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from podium.pool import WorkerProfile
from podium.providers.base import Endpoint
from podium.providers.compatible import CompatibleWorker
from podium.providers.hosted import HostedWorker
from podium.providers.http import Http
from podium.providers.openai_responses import ResponsesWorker

WIRES: Final[Mapping[str, tuple[str, ...]]] = {"wire": ("chat", "responses")}


class OpenAIWorker(CompatibleWorker):
    """A worker behind OpenAI's Chat Completions."""

    settings: ClassVar[Mapping[str, tuple[str, ...]]] = WIRES


def openai_worker(profile: WorkerProfile, endpoint: Endpoint, http: Http) -> HostedWorker:
    """The worker that speaks the wire which the endpoint's options name."""
    if endpoint.options.get("wire") == "responses":
        return ResponsesWorker(profile, endpoint, http)
    return OpenAIWorker(profile, endpoint, http)
