"""Any endpoint with OpenAI's Chat Completions: hosted vendors, Ollama, vLLM, your own."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Final

from podium.core.request import Reply, Request
from podium.workers.chat import OWNED, ChatDialect, build_body
from podium.workers.chat_reply import ChatReplyParser, read_reply
from podium.workers.fields import Document
from podium.workers.hosted import HostedWorker, ReplyParser
from podium.workers.http import HttpCall

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
"""The differences of known vendors, by provider name."""


class CompatibleWorker(HostedWorker):
    """A worker behind an OpenAI-compatible endpoint."""

    owned: ClassVar[frozenset[str]] = OWNED

    @property
    def dialect(self) -> ChatDialect:
        """The differences of this vendor."""
        return DIALECTS.get(self.profile.provider, PLAIN)

    def build_call(self, request: Request, *, stream: bool) -> HttpCall:
        """Build a POST to chat/completions."""
        key = self.endpoint.api_key
        return self.post_call(
            "/chat/completions",
            build_body(request, self.profile, self.dialect, stream=stream),
            {"Authorization": f"Bearer {key}"} if key else {},
        )

    def parse_reply(self, document: Document, request: Request) -> Reply:
        """Parse a whole completion."""
        return read_reply(document, request, self.profile, self.dialect, self.label)

    def reply_parser(self, request: Request) -> ReplyParser:
        """Return a parser for a streamed completion."""
        return ChatReplyParser(request, self.profile, self.dialect, self.label)
