"""Preview a workflow and its cost without executing it; count tokens."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest

from podium.client.documents import routing_document
from podium.conductors.plan import workflow_document
from podium.core.budget import estimate_input_tokens
from podium.core.events import Event, RoundPlanned
from podium.core.pool import Pool
from podium.core.request import NO_USAGE, Request, Usage, add, user
from podium.core.run import Round, total_cost, total_usage
from podium.server.access import Principal
from podium.server.access.policy import RequestCost
from podium.server.answers.conversation import Conversation
from podium.server.api_error import invalid
from podium.server.dialects.anthropic import MESSAGES
from podium.server.dialects.chat import CHAT
from podium.server.dialects.request import ApiRequest, merge_podium_headers
from podium.server.endpoints.http import PrincipalDep, ServiceDep, parse_json_object, read_body
from podium.server.endpoints.openapi import named_body
from podium.server.endpoints.request_handler import RequestHandler
from podium.server.model_catalog import ModelTarget

router = APIRouter()

COUNT_TOKENS: Final = "/v1/messages/count_tokens"

ASSUMED_OUTPUT_TOKENS: Final = 600
"""Estimated output of a step without `max_tokens`."""


class PlanRequestHandler(RequestHandler):
    """Serves `/v1/plan`: a `question`, or a body of `/v1/chat/completions`. Planning may cost."""

    scope = "plan"

    async def read(self, body: dict[str, Any], principal: Principal) -> ApiRequest:
        request = CHAT.read(_to_chat_body(body))
        if request.stream:
            raise invalid("stream", "a plan cannot be streamed; drop stream")
        if request.params.workflow is not None:
            raise invalid("podium.workflow", "podium.workflow is already a plan; drop it")
        return request

    async def answer(self, request: ApiRequest, principal: Principal, target: ModelTarget) -> None:
        """Send the workflow with the cost of planning and an estimate of executing it."""
        service, cost = self.service, self.cost
        if target.tier is None:
            raise invalid("model", f"{target.name!r} is a single worker; choose a tier to plan for")
        conversation, options = await service.tier_handler.prepare_plan(
            request, principal, target.tier
        )

        def record_cost(event: Event) -> None:
            if isinstance(event, RoundPlanned):
                cost.usage = cost.orchestration = total_usage(iter(event.round.planning_attempts))
                cost.cost_usd = total_cost(iter(event.round.planning_attempts))

        options["emit"] = record_cost
        round_ = await service.podium.plan(conversation.question, **options)
        document = _preview(request, conversation, round_, service.pool, cost)
        await self.exchange.respond_json(200, document)


@router.post(COUNT_TOKENS, tags=["messages"], openapi_extra=named_body("CountRequest"))
async def count_tokens(
    http_request: HttpRequest, service: ServiceDep, principal: PrincipalDep
) -> dict[str, Any]:
    """Estimate the tokens of a conversation, on the high side (three bytes a token), as workers of
    different vendors count differently."""
    content_length = http_request.headers.get("content-length")
    body = await read_body(service.settings.body_megabytes, content_length, http_request.receive)
    request = MESSAGES.read_count(
        merge_podium_headers(parse_json_object(body), http_request.headers)
    )
    service.catalog.find(request.model)
    prompt = Request(request.messages, tools=request.response_options.tools)
    return MESSAGES.format_count(estimate_input_tokens(prompt))


def _to_chat_body(body: dict[str, Any]) -> dict[str, Any]:
    if "question" not in body:
        return body
    if "messages" in body:
        raise invalid("question", "send either question or messages, not both")
    rest = {name: value for name, value in body.items() if name != "question"}
    messages = [{"role": "user", "content": body["question"]}]
    return {"model": "podium-ultra", **rest, "messages": messages}


def _preview(
    request: ApiRequest, conversation: Conversation, round_: Round, pool: Pool, cost: RequestCost
) -> dict[str, Any]:
    assert round_.workflow is not None, "the first round always has a workflow"
    return {
        "object": "plan",
        "model": request.model,
        "question": conversation.question,
        "workflow": workflow_document(round_.workflow),
        "shape": round_.workflow.shape.value,
        "warnings": list(round_.warnings),
        "routing": routing_document(round_),
        "planning": {
            "calls": len(round_.planning_attempts),
            "input_tokens": cost.usage.input_tokens,
            "output_tokens": cost.usage.output_tokens,
            "cost_usd": cost.cost_usd,
        },
        "estimate": _estimate(request, conversation, round_, pool),
    }


def _estimate(
    request: ApiRequest, conversation: Conversation, round_: Round, pool: Pool
) -> dict[str, Any]:
    """Estimate one execution without retries."""
    workflow = round_.workflow
    assert workflow is not None, "the first round always has a workflow"
    output_tokens = request.response_options.max_tokens or ASSUMED_OUTPUT_TOKENS
    history = estimate_input_tokens(Request((*conversation.history, user(conversation.question))))
    total = NO_USAGE
    cost_usd: float | None = 0.0
    for index, step in enumerate(workflow.steps):
        subtask = estimate_input_tokens(Request((user(step.subtask),)))
        input_tokens = history + subtask + len(workflow.reads(index)) * ASSUMED_OUTPUT_TOKENS
        usage = Usage(input_tokens, output_tokens, 0, 0, 0)
        price = pool[step.worker].price
        total += usage
        cost_usd = add(cost_usd, price.cost(usage) if price is not None else None)
    return {
        "calls": len(workflow),
        "input_tokens": total.input_tokens,
        "output_tokens": total.output_tokens,
        "cost_usd": cost_usd,
        "assumed_output_tokens_per_step": output_tokens,
    }
