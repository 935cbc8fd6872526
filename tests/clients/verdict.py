"""Judge a case: what a client got through Podium beside what the control got."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from clients.cases import Case

PLANNER: Final = "planner"
UNPLANNED: Final = ("request-id", "error-", "http-")
"""Scenarios, by the start of their names, that need no plan of several steps."""


def problems(case: Case, results: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a case; nothing where it passes."""
    control = results[f"{case.scenario} control"]
    assert "error" not in control, f"the control failed: {control['error']}"
    _require_distinct(control["ids"])
    found = results[f"{case.scenario} {case.tier}"]
    if "error" in found:
        return [found["error"]]
    return [*_differences(case, control, found)]


def _require_distinct(ids: list[str]) -> None:
    assert len({*ids}) == len(ids), f"the control repeats ids: {ids}"


def _differences(case: Case, control: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    if found["said"] != control["said"]:
        yield f"the client got {found['said']!r}, and the control {control['said']!r}"
    repeated = {id_ for id_ in found["ids"] if found["ids"].count(id_) > 1}
    if repeated:
        yield f"ids come twice: {sorted(repeated)}"
    expected = _conversations(control)
    sent = _conversations(found)
    if not expected or case.scenario.partition("/")[2].startswith(UNPLANNED):
        return
    if case.tier == "podium-ultra" and len(sent) < 2 * (plans := _count_plans(found)):
        yield f"{plans} plans of several steps called {len(sent)} workers"
    if not case.client.is_repeatable:
        return
    if case.tier == "worker":
        if sent != expected:
            yield f"the worker was sent {sent!r}, and in the control {expected!r}"
        yield from _lost_fields(control, found)
        return
    yield from _lost_context(expected, sent)


def _conversations(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what workers were sent, in order, without what planners were."""
    return [
        request["asked"]
        for request in result["sent"]
        if request["asked"] is not None and request["body"]["model"] != PLANNER
    ]


def _count_plans(result: Mapping[str, Any]) -> int:
    """Return how many plans were made, at least one; accepting an answer is none."""
    prompts = (str(r["body"]) for r in result["sent"] if r["body"].get("model") == PLANNER)
    return max(1, sum("Decide whether the user should get this answer" not in p for p in prompts))


SETTLED: Final = frozenset(
    {"model", "messages", "input", "system", "instructions", "tools", "tool_choice", "stream"}
    | {"previous_response_id", "response_format", "text", "output_config", "output_format"}
    | {"stream_options", "store", "metadata", "user", "max_tokens", "max_completion_tokens"}
    | {"parallel_tool_calls", "include", "thinking", "cache_control", "betas", "extra_headers"}
    | {"reasoning", "prompt_cache_key", "safety_identifier", "truncation", "service_tier"}
)
"""Fields that are compared as a conversation, or that a server may settle by itself."""


def _lost_fields(control: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the options that a worker asked by its own name was not sent."""
    pairs = zip(control["sent"], found["sent"], strict=False)
    for first, second in pairs:
        for name, value in first["body"].items():
            if name not in SETTLED and second["body"].get(name) != value:
                yield f"the worker was sent {name}={second['body'].get(name)!r}, not {value!r}"


def _lost_context(expected: list[dict[str, Any]], sent: list[dict[str, Any]]) -> Iterator[str]:
    """Yield what the steps' requests lack of the client's conversation, or have beyond it."""
    systems = {item["system"] for item in expected}
    for request in sent:
        if not any(system in request["system"] for system in systems):
            yield f"a step was sent the system prompt {request['system']!r}"
    if sent and expected[-1]["system"] not in sent[-1]["system"]:
        yield f"the last step was sent the system prompt {sent[-1]['system']!r}"
    seen = "\n".join(text for _, text, _ in sent[-1]["turns"]) if sent else ""
    for role, text, _ in expected[-1]["turns"]:
        lost = [line for line in text.splitlines() if line not in seen] if role == "user" else []
        if lost:
            yield f"the last step was not sent {lost!r}"
    results = {text for item in expected for role, text, _ in item["turns"] if role == "tool"}
    for request in sent:
        for role, text, _ in request["turns"]:
            if role == "tool" and text not in results:
                yield f"a step was sent the tool result {text!r}, which the client never sent"
    last = {text for role, text, _ in expected[-1]["turns"] if role == "tool"}
    beyond = [
        text
        for role, text, _ in (sent[-1]["turns"] if sent else ())
        if role == "tool" and text not in last
    ]
    if beyond:
        yield f"the last step was sent {beyond!r}, which the client had removed"
