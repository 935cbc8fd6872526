"""Google Vertex AI: Gemini, and Claude by Anthropic, at the address of a Google Cloud project.

The wire formats are those of `google` and `anthropic`; address and credentials are the project's.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, ClassVar, Final
from urllib.parse import quote

from podium.core.pool import WorkerProfile
from podium.core.request import Request
from podium.workers.anthropic import AnthropicWorker
from podium.workers.endpoints import Endpoint
from podium.workers.google import GoogleWorker
from podium.workers.hosted import HostedWorker
from podium.workers.http import Http, HttpCall

ANTHROPIC_VERSION: Final = "vertex-2023-10-16"


class VertexClaudeWorker(AnthropicWorker):
    """Claude on Vertex AI: Messages, with the model in the address."""

    reserved_fields: ClassVar[frozenset[str]] = AnthropicWorker.reserved_fields | {
        "anthropic_version"
    }

    def build_call(self, request: Request, *, stream: bool) -> HttpCall:
        body: dict[str, Any] = self._body(request, stream=stream)
        del body["model"]
        body["anthropic_version"] = ANTHROPIC_VERSION
        method = "streamRawPredict" if stream else "rawPredict"
        path = f"/models/{quote(self.profile.model, safe='@')}:{method}"
        return self.post_call(path, self.add_extra(body, request), self.key_headers())


def vertex_worker(profile: WorkerProfile, endpoint: Endpoint, http: Http) -> HostedWorker:
    is_claude = profile.model.startswith("claude")
    publisher = "anthropic" if is_claude else "google"
    base_url = f"{vertex_host(endpoint.base_url).rstrip('/')}/publishers/{publisher}"
    kind = VertexClaudeWorker if is_claude else GoogleWorker
    return kind(profile, replace(endpoint, base_url=base_url), http)


def vertex_host(address: str) -> str:
    """Return the address with the host of its location: `global`, `us` and `eu` have their own."""
    address = address.replace("//global-aiplatform.", "//aiplatform.")
    return re.sub(r"//(us|eu)-aiplatform\.", r"//aiplatform.\1.rep.", address)
