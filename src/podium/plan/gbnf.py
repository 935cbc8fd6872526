r"""A grammar of plans, so that a local model cannot write a malformed one.

The grammar is GBNF, which llama.cpp follows while it samples. It knows the pool's size and the
allowed number of steps, so all that `parse` would refuse is out of reach: ids outside the pool,
lists of unequal length, empty subtasks, and reads of steps that are not earlier ones.

    root ::= "model_id = [" ( plan1 | plan2 )
    plan1 ::= id "]\nsubtasks = [" text "]\naccess_list = [" access0 "]"
    plan2 ::= id ", " id "]\nsubtasks = [" text ", " text "]\naccess_list = [" access0 ", " ...

Step by step, a plan is JSON, and each step has its subtask, its worker and its access together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from podium.plan.search import ACCESS_LIST, MODEL_ID, STEPS, SUBTASKS
from podium.plan.writer import Order, write_acceptance
from podium.pool import Pool
from podium.workflow import DEFAULT_MAX_STEPS

_CHARACTER: Final = r'[^"\\\x00-\x1F\x7F] | "\\" ["\\/nt]'

_FIRST_CHARACTER: Final = (
    r'[^"\\\x00-\x20\x7F-\xA0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000] | "\\" ["\\/]'
)
"""No kind of white space, so that a subtask is never blank."""


def grammar(
    pool: Pool,
    max_steps: int = DEFAULT_MAX_STEPS,
    *,
    may_accept: bool = False,
    max_subtask_chars: int = 200,
    subtask: str | None = None,
    order: Order = "lists",
) -> str:
    """The GBNF grammar of the plans for this pool, and of nothing around them.

    `max_subtask_chars` bounds each subtask, so that a small model cannot ramble to the end of
    its window. With `subtask` every subtask is that text: for models too small to write one,
    which then decide only who does it, how often, and who reads whom. `may_accept` adds the
    plan without steps, and `all` for the first step, which then means the round before.
    """
    beginning = f"{MODEL_ID} = [" if order == "lists" else f'{{"{STEPS}": ['
    plans = [f"plan{steps}" for steps in range(1, max_steps + 1)]
    if may_accept:
        plans.append(_quoted(write_acceptance(order).removeprefix(beginning)))
    rules = [
        f"root ::= {_quoted(beginning)} ({' | '.join(plans)})",
        *(_RULES[order](steps) for steps in range(1, max_steps + 1)),
        f"id ::= {' | '.join(_quoted(str(index)) for index in range(len(pool)))}",
        *_text_rules(max_subtask_chars, subtask),
        *(rule for index in range(max_steps) for rule in _access_rules(index, may_accept)),
    ]
    return "\n".join(rules) + "\n"


def _text_rules(max_subtask_chars: int, subtask: str | None) -> Iterator[str]:
    """What a subtask may be: any text up to that length, or the one that is given."""
    if subtask is not None:
        yield f"text ::= {_quoted(json.dumps(subtask, ensure_ascii=False))}"
        return
    yield f'text ::= "\\"" first character{{0,{max_subtask_chars - 1}}} "\\""'
    yield f"first ::= {_FIRST_CHARACTER}"
    yield f"character ::= {_CHARACTER}"


def _plan_of_lists(steps: int) -> str:
    """The rest of a plan with that many steps, from its first id on."""
    entries = {
        SUBTASKS: ["text"] * steps,
        ACCESS_LIST: [f"access{index}" for index in range(steps)],
    }
    comma = f" {_quoted(', ')} "
    parts = [comma.join(["id"] * steps)]
    for label, told in entries.items():
        parts += (_quoted(f"]\n{label} = ["), comma.join(told))
    return f"plan{steps} ::= {' '.join(parts)} {_quoted(']')}"


def _plan_of_steps(steps: int) -> str:
    """The rest of a plan with that many steps, from its first step on."""
    begin, worker, access = (
        _quoted(text) for text in ('{"subtask": ', ', "worker": ', ', "access": ')
    )
    told = [f"{begin} text {worker} id {access} access{index}" for index in range(steps)]
    between = _quoted("}, ")
    return f"plan{steps} ::= {f' {between} '.join(told)} {_quoted('}]}')}"


_RULES: Final[Mapping[Order, Callable[[int], str]]] = MappingProxyType(
    {"lists": _plan_of_lists, "step-by-step": _plan_of_steps}
)


def _access_rules(index: int, may_accept: bool) -> Iterator[str]:
    """What step `index` may read: nothing, all, or earlier steps in ascending order.

    `reads3-1` are the steps that step 3 may go on with after it has named step 1.
    """
    choices = [_quoted("[]")]
    if index or may_accept:
        choices.append(_quoted('["all"]'))
    choices += [f"{_quoted(f'[{read}')} reads{index}-{read}" for read in range(index)]
    yield f"access{index} ::= {' | '.join(choices)}"
    for read in range(index):
        more = [f"{_quoted(f', {later}')} reads{index}-{later}" for later in range(read + 1, index)]
        yield f"reads{index}-{read} ::= {' | '.join([_quoted(']'), *more])}"


def _quoted(text: str) -> str:
    """The text as a literal of the grammar."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
