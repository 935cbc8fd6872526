"""Write a workflow as the text of a plan, and the schema and grammar of such texts.

Two layouts are in use. Models that follow instructions write the paper's three lists. Small trained
models write JSON step by step, a worker right after its subtask: in a list they lose count.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from itertools import combinations
from types import MappingProxyType
from typing import Any, Final, Literal

from podium.conductors.plan.parser import ACCESS_LIST, CONDITION, LISTS, MODEL_ID, STEPS, SUBTASKS
from podium.core.errors import InvalidWorkflow
from podium.core.pool import Pool
from podium.core.workflow import DEFAULT_MAX_STEPS, Condition, Workflow

PlanLayout = Literal["lists", "step-by-step"]
"""The layout of a plan: all ids, all subtasks, all accesses; or step by step."""

ACCEPTANCE: Final = {
    "lists": "\n".join(f"{label} = []" for label in LISTS),
    "step-by-step": f'{{"{STEPS}": []}}',
}

OPENING: Final = {"lists": f"{MODEL_ID} = [", "step-by-step": f'{{"{STEPS}": ['}


def write(workflow: Workflow, pool: Pool, *, layout: PlanLayout = "lists") -> str:
    """Write the plan; `parse` reads it back.

    Raises `UnknownWorker` for a worker outside the pool, and `InvalidWorkflow` for conditions in
    the three lists, which have no place for them.
    """
    ids = [pool.index(step.worker) for step in workflow.steps]
    subtasks = [step.subtask for step in workflow.steps]
    accesses = [["all"] if step.access == "all" else list(step.access) for step in workflow.steps]
    if layout == "step-by-step":
        steps = [
            {"subtask": subtask, "worker": number, "access": access}
            | ({} if step.condition is None else {CONDITION: str(step.condition)})
            for step, subtask, number, access in zip(
                workflow.steps, subtasks, ids, accesses, strict=True
            )
        ]
        return json.dumps({STEPS: steps}, ensure_ascii=False)
    if any(step.condition is not None for step in workflow.steps):
        raise InvalidWorkflow("the three lists have no place for conditions; write step by step")
    lists = {MODEL_ID: ids, SUBTASKS: subtasks, ACCESS_LIST: accesses}
    return "\n".join(
        f"{label} = {json.dumps(entries, ensure_ascii=False)}" for label, entries in lists.items()
    )


def write_acceptance(layout: PlanLayout = "lists") -> str:
    """Write a plan without steps, which accepts the answer of the round before."""
    return ACCEPTANCE[layout]


_CHARACTER: Final = r'[^"\\\x00-\x1F\x7F] | "\\" ["\\/nt]'

_FIRST_CHARACTER: Final = (
    r'[^"\\\x00-\x20\x7F-\xA0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000] | "\\" ["\\/]'
)
"""No white space, so that a subtask is never blank."""


def grammar(
    pool: Pool,
    max_steps: int = DEFAULT_MAX_STEPS,
    *,
    may_accept: bool = False,
    max_subtask_chars: int = 200,
    subtask: str | None = None,
    layout: PlanLayout = "lists",
    begun: str = "",
) -> str:
    """Return the GBNF grammar of the plans for this pool.

    `may_accept` allows the plan without steps, and `all` for the first step. `subtask` is the text
    of every subtask, for models too small to write one.

    `begun` is what a prefill has written of the plan.
    """
    beginning = OPENING[layout]
    plans = [f"plan{steps}" for steps in range(1, max_steps + 1)]
    if may_accept:
        plans.append(_quote(write_acceptance(layout).removeprefix(beginning)))
    rules = [
        f"root ::= {_quote(beginning.removeprefix(begun))} ({' | '.join(plans)})",
        *(_RULES[layout](steps) for steps in range(1, max_steps + 1)),
        f"id ::= {' | '.join(_quote(str(index)) for index in range(len(pool)))}",
        *_text_rules(max_subtask_chars, subtask),
        *(rule for index in range(max_steps) for rule in _access_rules(index, may_accept)),
        *(_condition_rule(index) for index in range(1, max_steps) if layout == "step-by-step"),
    ]
    return "\n".join(rules) + "\n"


def forced_opening(layout: PlanLayout, *, may_accept: bool) -> str:
    """Return the beginning of every plan, to be read by a model instead of written.

    It must end at a token boundary. A tokenizer may merge `[` with a `]` or `{` that follows, but
    not with a digit, so it ends with the bracket only where a number must follow.
    """
    opening = OPENING[layout]
    return opening.removesuffix(" [") if may_accept or layout != "lists" else opening


def _text_rules(max_subtask_chars: int, subtask: str | None) -> Iterator[str]:
    if subtask is not None:
        yield f"text ::= {_quote(json.dumps(subtask, ensure_ascii=False))}"
        return
    yield f'text ::= "\\"" first character{{0,{max_subtask_chars - 1}}} "\\""'
    yield f"first ::= {_FIRST_CHARACTER}"
    yield f"character ::= {_CHARACTER}"


def _plan_of_lists(steps: int) -> str:
    """Return the rule of a plan with that many steps, from its first id on."""
    entries = {
        SUBTASKS: ["text"] * steps,
        ACCESS_LIST: [f"access{index}" for index in range(steps)],
    }
    comma = f" {_quote(', ')} "
    parts = [comma.join(["id"] * steps)]
    for label, rules in entries.items():
        parts += (_quote(f"]\n{label} = ["), comma.join(rules))
    return f"plan{steps} ::= {' '.join(parts)} {_quote(']')}"


def _plan_of_steps(steps: int) -> str:
    begin, worker, access = (
        _quote(text) for text in ('{"subtask": ', ', "worker": ', ', "access": ')
    )
    rules = [
        f"{begin} text {worker} id {access} access{index}" + (f" if{index}{{0,1}}" if index else "")
        for index in range(steps)
    ]
    between = _quote("}, ")
    return f"plan{steps} ::= {f' {between} '.join(rules)} {_quote('}]}')}"


_RULES: Final[Mapping[PlanLayout, Callable[[int], str]]] = MappingProxyType(
    {"lists": _plan_of_lists, "step-by-step": _plan_of_steps}
)


def _access_rules(index: int, may_accept: bool) -> Iterator[str]:
    """Yield the access rules of step `index`: nothing, all, or earlier steps in ascending order.

    `reads3-1` are the steps that step 3 may name after step 1.
    """
    choices = [_quote("[]")]
    if index or may_accept:
        choices.append(_quote('["all"]'))
    choices += [f"{_quote(f'[{read}')} reads{index}-{read}" for read in range(index)]
    yield f"access{index} ::= {' | '.join(choices)}"
    for read in range(index):
        more = [f"{_quote(f', {later}')} reads{index}-{later}" for later in range(read + 1, index)]
        yield f"reads{index}-{read} ::= {' | '.join([_quote(']'), *more])}"


def _condition_rule(index: int) -> str:
    """Return the rule of a condition of step `index` on one step before it or on two."""
    conditions = [
        *(Condition("failed", (read,)) for read in range(index)),
        *(Condition("differs", pair) for pair in combinations(range(index), 2)),
    ]
    choices = " | ".join(_quote(str(condition)) for condition in conditions)
    key, end = _quote(f', "{CONDITION}": "'), _quote('"')
    return f"if{index} ::= {key} ({choices}) {end}"


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def schema(pool: Pool | None = None, max_steps: int = DEFAULT_MAX_STEPS) -> dict[str, Any]:
    """Return the JSON Schema of the JSON form.

    Without a pool it describes workflow files: any worker's name, and an optional reasoning. With a
    pool it is for structured output: steps alone, so that the first can begin early; workers are
    the pool's names (ids where names are masked), and everything is required. It then has no bounds
    on lengths and numbers, which vendors refuse; `parse` checks those.
    """
    text = resources.files(__package__).joinpath("workflow.schema.json").read_text("utf-8")
    document: dict[str, Any] = json.loads(text)
    steps = document["properties"][STEPS]
    if pool is None:
        steps["maxItems"] = max_steps
        return document
    for key in ("$schema", "title"):
        del document[key]
    document["properties"] = {STEPS: steps}
    steps["description"] = f"At most {max_steps}, in order; the last reply is the answer."
    del steps["minItems"], steps["maxItems"]
    step = steps["items"]["properties"]
    step["worker"] = (
        {"description": "The worker's id.", "type": "integer", "enum": [*range(len(pool))]}
        if pool.mask_names
        else {"description": "The worker's name.", "type": "string", "enum": [*pool.names]}
    )
    del step["subtask"]["minLength"], step["access"]["anyOf"][1]["items"]["minimum"]
    del step[CONDITION]
    return document
