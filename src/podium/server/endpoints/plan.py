"""Looking before leaping: the workflow that a conductor would have carried out, and what that
would cost, with nothing of it carried out; and how long a conversation is."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest

from podium.client.documents import routed_document
from podium.conductors.plan import workflow_document
from podium.core.budget import estimate_input_tokens
from podium.core.events import Event, Planned
from podium.core.pool import Pool
from podium.core.request import Request, user
from podium.core.run import Round, total_cost, total_usage
from podium.core.usage import NO_USAGE, Usage, add
from podium.server.access import Principal
from podium.server.answers.conversation import Turn
from podium.server.api_error import api_error_boundary, invalid
from podium.server.dialects.anthropic import MESSAGES
from podium.server.dialects.chat import CHAT
from podium.server.dialects.request import ApiRequest, merge_podium_headers
from podium.server.endpoints.auth import PrincipalDep, ServiceDep
from podium.server.endpoints.http import parse_json_object, read_body
from podium.server.endpoints.openapi import COUNT, request_body
from podium.server.endpoints.request_handler import RequestHandler
from podium.server.model_catalog import ModelTarget
from podium.server.records.metrics import RequestCost
from podium.server.service import Service

router = APIRouter()

COUNT_TOKENS: Final = "/v1/messages/count_tokens"

ASSUMED_OUTPUT_TOKENS: Final = 600
"""What a step is taken to write where nothing caps it: nobody can know before."""


class PlanRequestHandler(RequestHandler):
    """A request for a plan: a `question`, or what `/v1/chat/completions` takes. Planning itself
    may cost something, and counts; what it cost is told."""

    scope = "plan"

    def read(self, body: dict[str, Any]) -> ApiRequest:
        """What is to be planned."""
        asked = CHAT.read(_as_chat(body))
        if asked.stream:
            raise invalid("stream", "a plan comes as a whole; drop stream")
        if asked.params.workflow is not None:
            raise invalid("podium.workflow", "a workflow of your own is there already; drop it")
        return asked

    async def answer(self, asked: ApiRequest, principal: Principal, target: ModelTarget) -> None:
        """Plan, and tell what that took and what carrying it out would."""
        service, cost = self.service, self.cost
        if target.tier is None:
            raise invalid(
                "model", f"{target.name!r} is a single worker, for which nothing is planned"
            )
        turn, wishes = await service.tiers.to_plan(asked, principal, target.tier)

        def told(event: Event) -> None:
            if isinstance(event, Planned):
                cost.usage = cost.orchestration = total_usage(iter(event.round.planning))
                cost.cost_usd = total_cost(iter(event.round.planning))

        wishes["emit"] = told
        with api_error_boundary():
            round_ = await service.podium.plan(turn.question, **wishes)
        document = _preview(asked, turn, round_, service.pool, cost)
        await self.exchange.respond_json(200, document)


@router.post(COUNT_TOKENS, tags=["messages"], openapi_extra=request_body(COUNT))
async def count_tokens(
    request: HttpRequest, service: ServiceDep, principal: PrincipalDep
) -> dict[str, Any]:
    """How many tokens a conversation is: Podium's own estimate, on the high side (three bytes a
    token), for workers of different vendors count differently."""
    body = await _body(request, service)
    asked = MESSAGES.read_count(body)
    service.catalog.find(asked.model)
    tokens = estimate_input_tokens(Request(asked.messages, tools=asked.response_options.tools))
    return MESSAGES.counted(tokens)


async def _body(request: HttpRequest, service: Service) -> dict[str, Any]:
    """The body, with what the headers wish for."""
    announced = request.headers.get("content-length")
    body = await read_body(service.settings.body_megabytes, announced, request.receive)
    return merge_podium_headers(parse_json_object(body), request.headers)


def _as_chat(body: dict[str, Any]) -> dict[str, Any]:
    """A body with a `question` as one with messages."""
    if "question" not in body:
        return body
    if "messages" in body:
        raise invalid("question", "there is a question, and there are messages; send one of them")
    rest = {name: value for name, value in body.items() if name != "question"}
    messages = [{"role": "user", "content": body["question"]}]
    return {"model": "podium-ultra", **rest, "messages": messages}


def _preview(
    asked: ApiRequest, turn: Turn, round_: Round, pool: Pool, cost: RequestCost
) -> dict[str, Any]:
    assert round_.workflow is not None, "the first round always has a workflow"
    return {
        "object": "plan",
        "model": asked.model,
        "question": turn.question,
        "workflow": workflow_document(round_.workflow),
        "shape": round_.workflow.shape.value,
        "warnings": list(round_.warnings),
        "routed": routed_document(round_),
        "planning": {
            "calls": len(round_.planning),
            "input_tokens": cost.usage.input_tokens,
            "output_tokens": cost.usage.output_tokens,
            "cost_usd": cost.cost_usd,
        },
        "estimate": _estimate(asked, turn, round_, pool),
    }


def _estimate(asked: ApiRequest, turn: Turn, round_: Round, pool: Pool) -> dict[str, Any]:
    """What carrying the workflow out would come to, once, if all goes well."""
    workflow = round_.workflow
    assert workflow is not None, "the first round always has a workflow"
    written = asked.response_options.max_tokens or ASSUMED_OUTPUT_TOKENS
    history = estimate_input_tokens(Request((*turn.history, user(turn.question))))
    total = NO_USAGE
    cost: float | None = 0.0
    for index, step in enumerate(workflow.steps):
        subtask = estimate_input_tokens(Request((user(step.subtask),)))
        read = history + subtask + len(workflow.reads(index)) * ASSUMED_OUTPUT_TOKENS
        usage = Usage(read, written, 0, 0, 0)
        price = pool[step.worker].price
        total += usage
        cost = add(cost, price.cost(usage) if price is not None else None)
    return {
        "calls": len(workflow),
        "input_tokens": total.input_tokens,
        "output_tokens": total.output_tokens,
        "cost_usd": cost,
        "assumed_output_tokens_a_step": written,
    }
