"""What a training would take, told before it begins: every value of its recipe, the calls, tokens,
money and disk, and the files that are missing."""

from __future__ import annotations

import json as json_format
from dataclasses import asdict
from pathlib import Path
from typing import Any

from podium.cli.output import complain, say, say_json
from podium.cli.wording import money, one_line
from podium.train import exercises as pools
from podium.train import preflight
from podium.train.preflight import Estimate, calls_a_run, estimate
from podium.train.recipe import Recipe


def show(recipe: Recipe, *, json: bool) -> None:
    """Print every value of the recipe, what it would take, and what is not here yet."""
    pool = pools.recipe_pool(recipe) if recipe.kind != "sft" and _has_pool(recipe) else None
    missing = list(preflight.missing_files(recipe))
    taken = estimate(recipe, pool) if pool is not None or recipe.kind == "sft" else None
    disk = preflight.disk_bytes(recipe)
    if json:
        say_json(
            {
                "kind": recipe.kind,
                "fingerprint": recipe.fingerprint,
                "recipe": preflight.resolved(recipe),
                "estimate": asdict(taken) if taken is not None else None,
                "disk_bytes": disk,
                "missing": missing,
            }
        )
        return
    _say_rows(f"the plan: podium train {recipe.kind}", _plan_rows(recipe))
    if taken is not None:
        _say_rows("what it would take, about", [*_rows(recipe, taken), ("disk", _bytes(disk))])
    for problem in missing:
        complain(f"not here yet: {problem}")


def _has_pool(recipe: Recipe) -> bool:
    """Whether the workers can be known; the file of a pool may still be missing."""
    return recipe.pool.file is None or Path(recipe.pool.file).exists()


def _plan_rows(recipe: Recipe) -> list[tuple[str, str]]:
    values = preflight.flat(preflight.resolved(recipe))
    return [(key, _told(value)) for key, value in values.items() if value not in (None, {}, [])]


def _told(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value or '""'
    return json_format.dumps(value) if isinstance(value, list) else f"{value}"


def _rows(recipe: Recipe, taken: Estimate) -> list[tuple[str, str]]:
    if recipe.kind == "sft":
        return [("steps", f"{taken.steps:,}"), ("examples", f"{taken.examples:,}")]
    assumed = recipe.estimate
    plan, own = "plan", ("conductor output", f"at most {taken.conductor_tokens:,} tokens")
    if recipe.kind == "evolve":
        plan, own = "run", ("candidates", f"{taken.candidates:,} a step")
    return [
        ("steps", f"{taken.steps:,}"),
        ("questions", f"{taken.questions:,}"),
        ("rollouts", f"{taken.rollouts:,}"),
        *([("tried besides", f"at most {taken.tried:,} plans")] if taken.tried else []),
        ("measurements", f"{taken.measured:,} {plan}s"),
        ("worker calls", f"{taken.worker_calls:,}, at {calls_a_run(recipe):g} a {plan}"),
        ("worker input", f"{taken.worker_input_tokens:,} tokens, at {assumed.input_tokens:,}"),
        ("worker output", f"{taken.worker_output_tokens:,} tokens, at {assumed.output_tokens:,}"),
        own,
        ("cost", _cost(taken)),
    ]


def _cost(taken: Estimate) -> str:
    """The money, or why nobody knows it."""
    if taken.usd == 0 and taken.usd_most == 0:
        return "$0: every worker is free"
    more = " and all was tried that may be" if taken.tried else ""
    most = f"{money(taken.usd_most)} if the dearest of them got every call{more}"
    if taken.usd is not None:
        return f"{money(taken.usd)} if workers are called equally often, {most}"
    unpriced = ", ".join(taken.unpriced)
    return f"unknown, as no price is known of {unpriced}; the others: {money(taken.usd_known)}"


def _bytes(count: int) -> str:
    return f"{count / 1_000_000_000:,.1f} GB at most, checkpoints and kept replies"


def _say_rows(heading: str, rows: list[tuple[str, str]]) -> None:
    say(heading)
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        say(f"  {name:<{width}}  {one_line(value)}")
