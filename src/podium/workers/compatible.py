"""Any endpoint that speaks OpenAI's Chat Completions: hosted vendors, Ollama, vLLM, your own.

Where a known vendor differs from the rest, `DIALECTS` says how.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Final

from podium.core.request import Reply, Request
from podium.workers.chat import OWNED, ChatDialect, body_of
from podium.workers.chat_reply import ChatAssembly, read_reply
from podium.workers.fields import Document
from podium.workers.hosted import Assembly, HostedWorker
from podium.workers.http import Call

PLAIN: Final = ChatDialect()

DIALECTS: Final[Mapping[str, ChatDialect]] = MappingProxyType(
    {
        "openai": ChatDialect(
            max_tokens="max_completion_tokens",
            cache_writes=True,
            cache_key=True,
            parallel_tools=True,
            detail=True,
        ),
        "openrouter": ChatDialect(
            thinking="reasoning_details", cache_writes=True, parallel_tools=True
        ),
        "deepseek": ChatDialect(prefill_message={"prefix": True}, thinking="reasoning_content"),
        "mistral": ChatDialect(
            seed="random_seed",
            streams_usage=False,  # it refuses the question, and answers unasked
            prefill_message={"prefix": True},
            echoes_prefill=True,
            parallel_tools=True,
        ),
        "vllm": ChatDialect(
            prefill_body={"continue_final_message": True, "add_generation_prompt": False},
            parallel_tools=True,
        ),
    }
)
"""How the vendors' Chat Completions differ, by provider name. The others are plain."""


class CompatibleWorker(HostedWorker):
    """A worker behind an OpenAI-compatible endpoint."""

    owned: ClassVar[frozenset[str]] = OWNED

    @property
    def dialect(self) -> ChatDialect:
        """How this vendor's protocol differs."""
        return DIALECTS.get(self.profile.provider, PLAIN)

    def call(self, request: Request, *, stream: bool) -> Call:
        """A POST to the endpoint's chat/completions."""
        key = self.endpoint.api_key
        return self.sent(
            "/chat/completions",
            body_of(request, self.profile, self.dialect, stream=stream),
            {"Authorization": f"Bearer {key}"} if key else {},
        )

    def read(self, document: Document, request: Request) -> Reply:
        """The whole completion."""
        return read_reply(document, request, self.profile, self.dialect, self.called)

    def assembly(self, request: Request) -> Assembly:
        """Where the chunks of a streamed completion are put together."""
        return ChatAssembly(request, self.profile, self.dialect, self.called)
