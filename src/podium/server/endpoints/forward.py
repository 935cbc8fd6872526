"""OpenAI's endpoints that a single worker serves itself: embeddings, completions, moderations.

The body goes to the worker as it is, with its model's name and an output limit that fits the
budget; keys, quotas, retries, costs and logs are those of every request.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final

from podium.core.request import UNKNOWN_USAGE, Delta, Reply, Request, ResponseOptions, Usage, user
from podium.core.worker import Worker
from podium.server.access import Principal
from podium.server.answers.result import ApiResult, StreamSink
from podium.server.api_error import ApiError, invalid
from podium.server.dialects.chat import DONE, ChatDialect, ChatWriter
from podium.server.dialects.fields import (
    Fields,
    Json,
    bounded_text,
    flag,
    integer,
    json_object,
    read_object,
)
from podium.server.dialects.request import (
    MAX_CHOICES,
    ApiRequest,
    ApiResponse,
    PodiumParams,
    StreamWriter,
    read_podium_params,
)
from podium.server.endpoints.request_handler import RequestHandler
from podium.server.model_catalog import ModelTarget
from podium.workers.balanced import BalancedWorker
from podium.workers.chat import PLAIN, usage_of
from podium.workers.fields import Document, get_object
from podium.workers.hosted import HostedWorker

EMBEDDINGS: Final = "/v1/embeddings"
COMPLETIONS: Final = "/v1/completions"
MODERATIONS: Final = "/v1/moderations"
PATHS: Final = (EMBEDDINGS, COMPLETIONS, MODERATIONS)

ANSWER_ENDPOINTS: Final = "POST /v1/chat/completions, /v1/responses and /v1/messages"
"""What every model supports."""


class ForwardDialect(ChatDialect):
    """Bodies that are not read beyond what a quota needs, with OpenAI's errors."""

    def read(self, body: Json) -> ApiRequest:
        fields = read_object(body)
        fields.optional("stream_options", read_object)
        json_object({key: body[key] for key in body if key != "podium"}, "")
        return ApiRequest(
            model=fields.required("model", bounded_text(1, 200)),
            messages=(user(json.dumps(body.get("input", body.get("prompt", "")))),),
            response_options=ResponseOptions(
                max_tokens=fields.optional("max_tokens", integer(0)) or None
            ),
            stream=fields.optional("stream", flag) or False,
            store=False,
            params=fields.optional("podium", read_podium_params) or PodiumParams(),
            raw_body=body,
        )

    def format_response(self, request: ApiRequest, answer: ApiResponse) -> dict[str, Any]:
        """Return what the worker sent, under the requested model's name."""
        document = dict(answer.choices[0])
        return document | ({"model": request.model} if "model" in document else {})

    def stream_writer(self, request: ApiRequest, opening: ApiResponse) -> StreamWriter:
        return _ForwardWriter(request, opening)


FORWARD: Final = ForwardDialect()


class _ForwardWriter(ChatWriter):
    def begin(self) -> bytes:
        """Write nothing: the worker writes the first event."""
        return b""

    def choices(self, choices: Sequence[Json]) -> bytes:
        events = (json.dumps({**event, "model": self._common["model"]}) for event in choices)
        return b"".join(f"data: {event}\n\n".encode() for event in events)

    def end(self, answer: ApiResponse, rest: str = "", calls: Sequence[str] = ()) -> bytes:
        """Write the end; a worker that did not stream sent its whole answer."""
        return self.choices(answer.choices) + DONE


class ForwardRequestHandler(RequestHandler):
    """Serves one of `PATHS`."""

    def _work(
        self,
        request: ApiRequest,
        principal: Principal,
        target: ModelTarget,
        stream: StreamSink | None = None,
    ) -> Coroutine[Any, Any, ApiResult]:
        path, gateway = self._path, self.service.gateway
        worker = target.worker
        if not isinstance(worker, HostedWorker | BalancedWorker) or not worker.supports_forwarding:
            raise ApiError(
                "invalid",
                f"POST {path} is not supported by {target.name!r}: it requires a single worker "
                f"with an OpenAI-compatible API, by its own name. Every model supports "
                f"{ANSWER_ENDPOINTS}",
                field="model",
            )
        if gateway.has_guardrails:
            raise ApiError("invalid", f"POST {path} is not supported: guardrails do not check it")
        if request.stream and path != COMPLETIONS:
            raise invalid("stream", f"POST {path} is not supported with stream; leave it out")
        output_count = 1
        options = replace(request.response_options, max_tokens=1)
        if path == COMPLETIONS:
            output_count, options = (
                _count_outputs(read_object(request.raw_body)),
                request.response_options,
            )
        call: Worker
        if isinstance(worker, BalancedWorker):
            call = _BalancedCall(worker, path, request.raw_body)
        else:
            call = ForwardedCall(worker, path, request.raw_body)
        asked = replace(request, extra={"n": output_count}, response_options=options)
        return gateway.answer(asked, principal, call, self.cost, stream)


def _count_outputs(body: Fields) -> int:
    """Return how many outputs are paid for."""
    count = integer(1, MAX_CHOICES)
    per_prompt = max(body.optional("n", count) or 1, body.optional("best_of", count) or 1)
    prompt = body.values.get("prompt")
    several = isinstance(prompt, list) and not all(isinstance(token, int) for token in prompt)
    return per_prompt * max(1, len(prompt)) if isinstance(prompt, list) and several else per_prompt


class ForwardedCall:
    """A worker that sends one body, and replies with what comes back, unread but for its usage."""

    def __init__(self, worker: HostedWorker, path: str, body: Json) -> None:
        self.profile = worker.profile
        self._worker = worker
        self._is_completion = path == COMPLETIONS
        self._path = path.removeprefix("/v1")
        self._given = {name: body[name] for name in body if name != "podium"}

    async def reply(self, request: Request) -> Reply:
        document = await self._worker.forward(self._path, self._body(request))
        return Reply("", self._usage(document), choices=(document,))

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        shown = get_object(self._given, "stream_options").get("include_usage")
        body = self._body(request) | {"stream_options": {"include_usage": True}}
        usage = UNKNOWN_USAGE
        async with aclosing(self._worker.forward_events(self._path, body)) as events:
            async for document in events:
                if document.get("usage"):
                    usage = self._usage(document)
                if document.get("choices") or shown:
                    yield Delta("", "choices", choices=(document,))
        yield Reply("", usage)

    def _body(self, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = {**self._given, "model": self.profile.model}
        if self._is_completion and request.max_tokens is not None:
            body["max_tokens"] = request.max_tokens
        return body

    def _usage(self, document: Document) -> Usage:
        """Return the usage; only completions have output."""
        found: Mapping[str, Any] = get_object(document, "usage")
        if not found:
            return UNKNOWN_USAGE
        counts = {} if self._is_completion else {"completion_tokens": 0}
        return usage_of({**counts, **found}, PLAIN)


class _BalancedCall:
    """A worker that sends one body to one of several deployments, as `ForwardedCall` does."""

    def __init__(self, worker: BalancedWorker, path: str, body: Json) -> None:
        self.profile = worker.profile
        self._worker = worker
        self._path = path
        self._body = body

    async def reply(self, request: Request) -> Reply:
        return await self._worker.reply(request, self._forward_to)

    def stream(self, request: Request) -> AsyncGenerator[Delta | Reply]:
        return self._worker.stream(request, self._forward_to)

    def _forward_to(self, worker: Worker) -> Worker:
        assert isinstance(worker, HostedWorker), "only such workers forward"
        return ForwardedCall(worker, self._path, self._body)
