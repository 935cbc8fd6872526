"""An evaluation with something of everything: levels, kinds, costs, rounds, and a villain."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from evals.evaluations import Answers, Item, draw, write_evaluation

HOSTILE: Final = (
    '<script>document.title="taken"</script><img src=x onerror="document.title=1">'
    "</pre></details><style>body{display:none}</style><svg onload=document.title=2>"
    '"\'><a href="javascript:document.title=3">&lt;b&gt;</a><iframe src="http://127.0.0.1:9/">'
    "<link rel=stylesheet href=http://127.0.0.1:9/a.css>\u202egnorw\u0000\ud800"
)
SKILL: Final = {
    "single:gpt-5": 0.7,
    "single:claude-sonnet-4": 0.5,
    "single:gemma-3-27b": 0.4,
    "moa": 0.7,
    "conductor": 0.8,
    "recursion": 0.95,
}
EASE: Final = {"easy": 0.1, "medium": -0.2, "hard": -0.4}
KINDS: Final = ("algebra", "counting", "geometry")
TASKS: Final = 36


def items() -> list[Item]:
    return [
        Item(
            id=f"task-{n}",
            question=f"What is {n} times seven? {HOSTILE if n % 5 == 0 else ''}".strip(),
            answer=str(7 * n),
            kind=KINDS[n % len(KINDS)],
            difficulty=[*EASE][n * 5 % 7 % 3],
        )
        for n in range(TASKS)
    ]


def answers(luck: str = "") -> Answers:
    """What each strategy answers; another `luck` is another evaluation of the same tasks."""
    return {
        strategy: [(item, _answer(strategy, item, skill, luck)) for item in items()]
        for strategy, skill in SKILL.items()
    }


def _answer(strategy: str, item: Item, skill: float, luck: str) -> str:
    hardness = draw(item.id) * 0.4 + draw(strategy, item.id, luck) * 0.6
    return item.answer if hardness < skill + EASE[item.difficulty or ""] else HOSTILE


def summary() -> dict[str, Any]:
    given = answers()
    candidates = {
        name: sum(answer == item.answer for item, answer in given[name]) / TASKS
        for name in given
        if name.startswith("single:")
    }
    named = [{"strategy": name, "note": ""} for name in ("conductor", "recursion", "moa")]
    note = f"the best of 3: {HOSTILE}"
    return {
        "suite": "sevens",
        "seed": 3,
        "rows": [*named, {"strategy": "best-single", "note": note, "candidates": candidates}],
        "skipped": [{"where": "line 9", "reason": f"no answer {HOSTILE}"}],
    }


async def demonstrate(directory: Path, luck: str = "") -> Path:
    """Write the evaluation."""
    return await write_evaluation(directory, answers(luck), **summary())
