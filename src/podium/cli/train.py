"""`podium train`: train a conductor, its specialists or a router from a recipe.

The recipe, the machine, the workers and the tasks are checked before anything heavy is imported.
"""

from __future__ import annotations

import asyncio
import importlib
import json as json_format
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from podium._util.files import explain_write_errors, write_atomically
from podium._util.lab import lab_extra
from podium.cli import options
from podium.cli.app import SubcommandGroup
from podium.cli.models import fetch
from podium.cli.options import with_option_groups
from podium.cli.output import (
    ExitCode,
    echo,
    echo_error,
    echo_json,
    format_usd,
    pluralize,
    to_one_line,
)
from podium.cli.pool import check_models
from podium.cli.session import run_with_store
from podium.conductors.prompt import Prompt, PromptStyle
from podium.config import Settings
from podium.core.errors import ConfigError, Unavailable, UsageError
from podium.store import RunStore
from podium.store.audit import local_event
from podium.train import preflight, worker_set
from podium.train.exercises import load_task_split
from podium.train.preflight import Estimate, calls_per_run, estimate
from podium.train.recipe import Kind, Recipe, read_recipe
from podium.train.router import read_router_recipe
from podium.train.training_log import is_main_process, last_checkpoint
from podium.workers.local.sources import read_config, weights_file

if TYPE_CHECKING:
    from podium.train.run_data import RunDataset


app = typer.Typer(cls=SubcommandGroup, rich_markup_mode=None, add_completion=False)

RecipeFile = Annotated[
    Path, typer.Argument(metavar="RECIPE.toml", help="The recipe; recipes/ holds ready ones.")
]
Seed = Annotated[int | None, typer.Option(metavar="N", help="The random seed.")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a value of the recipe, such as prompt.few_shot=false; paths are relative to "
        "the recipe, an empty value removes the key; repeatable.",
    ),
]
Base = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        help="The base model of the adapter: a model from podium models list, or a GGUF file; "
        "default the one that the adapter names.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions:
    """The options that every trainer shares."""

    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print every value and the estimated cost, and stop.")
    ] = False
    json: Annotated[bool, typer.Option("--json", help="With --dry-run: print a JSON object.")] = (
        False
    )
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the last checkpoint of this recipe.")
    ] = False
    output: Annotated[Path | None, typer.Option(metavar="DIR", help="The output directory.")] = None
    steps: Annotated[int | None, typer.Option(metavar="N", min=1, help="Updates of the model.")] = (
        None
    )
    seed: Seed = None
    set_: Set = None

    def run(self, kind: Kind, path: Path, *overrides: str) -> None:
        """Train by the recipe, or print what it would take."""
        values = [*(self.set_ or ()), *overrides]
        if self.output is not None:
            values.append(f"run.output={json_format.dumps(str(self.output.absolute()))}")
        if self.steps is not None:
            values.append(f"{kind}.steps={self.steps}")
        if self.seed is not None:
            values.append(f"run.seed={self.seed}")
        recipe = read_recipe(path, values, kind=kind)
        if self.dry_run:
            _print_dry_run(recipe, json=self.json)
        else:
            _train(recipe, resume=self.resume)


@app.command()
@with_option_groups
def sft(recipe: RecipeFile, training: TrainingOptions) -> None:
    """Train by supervised examples: specialists, a conductor's first plans, or your own data."""
    training.run("sft", recipe)


@app.command()
@with_option_groups
def grpo(
    recipe: RecipeFile,
    training: TrainingOptions,
) -> None:
    """Train a conductor by reinforcement learning on whether its answers are right."""
    training.run("grpo", recipe)


@app.command()
def router(
    recipe: RecipeFile,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", dir_okay=False, help="The router's file, instead of the recipe's."
        ),
    ] = None,
    seed: Seed = None,
    set_: Set = None,
) -> None:
    """Train the router of podium-mini from logs of worker quality and cost.

    podium train data writes the logs. Needs numpy, but not torch.
    """
    values = [*(set_ or ()), *([] if seed is None else [f"router.seed={seed}"])]
    if output is not None:
        values.append(f"router.output={json_format.dumps(str(output.absolute()))}")
    read = read_router_recipe(recipe, values)
    from podium.tasks.readers import import_optional  # slow to import

    for package in read.packages:
        import_optional(package, "training a router", extra="router")
    from podium.train.router import load_outcomes, train_router

    rewards = load_outcomes(read)  # before anything is downloaded
    if read.router.encoder == "minilm":
        from podium.conductors.routing.encoders import MODEL

        asyncio.run(fetch(MODEL))
    echo("\n".join(train_router(read, rewards).lines()))


@app.command()
def data(
    recipe: Annotated[
        Path | None,
        typer.Argument(metavar="RECIPE.toml", help="The recipe whose tasks to write."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The file for the recipe's tasks or the router's log: JSONL.",
        ),
    ] = None,
    from_runs: Annotated[
        bool, typer.Option("--from-runs", help="Use stored runs with feedback.")
    ] = False,
    from_evaluation: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="Use the samples of an evaluation; repeatable."),
    ] = None,
    tasks: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --from-runs: write tasks for podium train grpo."),
    ] = None,
    plans: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write good plans as examples for podium train sft."),
    ] = None,
    prompt: Annotated[
        PromptStyle,
        typer.Option(metavar="full|compact|trained", help="The prompt of the examples in --plans."),
    ] = "full",
    set_: Set = None,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Write training data: the tasks of a recipe, or data from runs and evaluations.

    With --from-runs and --from-evaluation: the reward of each worker for a router (-o), and for a
    conductor tasks with their answers (--tasks) and good plans (--plans). Runs of keys that are
    excluded from training are skipped; everything that is skipped is counted.
    """
    if from_runs or from_evaluation:
        if recipe is not None:
            raise UsageError("a recipe has its own tasks; leave out the recipe or --from-…")
        files = {"outcomes": output, "tasks": tasks, "plans": plans}
        write_training_data(
            {kind: path for kind, path in files.items() if path is not None},
            prompt,
            from_runs=from_runs,
            evaluations=from_evaluation or (),
            config=config,
            json=json,
        )
        return
    if recipe is None or output is None:
        raise UsageError(
            "give a recipe, and with -o the file for its tasks; or give --from-runs or "
            "--from-evaluation DIR"
        )
    if tasks is not None or plans is not None or json:
        raise UsageError(
            "a recipe has tasks alone, for -o; --tasks, --plans and --json go with --from-runs and "
            "--from-evaluation"
        )
    from podium.tasks import save_suite  # slow to import

    found = load_task_split(read_recipe(recipe, set_ or ()))
    save_suite(output, found.train)
    echo(f"{pluralize(len(found.train), 'task')} in {output}")


@app.command()
def export(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="The directory of a trained adapter.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE.gguf", help="The file to write.")
    ],
    base: Base = None,
) -> None:
    """Export an adapter as a GGUF file, which llama.cpp loads over its base model."""
    preflight.require_packages()
    from podium.train.gguf import export_adapter

    echo(str(export_adapter(directory, output, base=base or _base_of(directory))))


def _train(recipe: Recipe, *, resume: bool) -> None:
    preflight.require_packages(recipe.kind)
    preflight.require_trackers(recipe)
    preflight.check_files(recipe)
    if is_main_process():
        preflight.check_output(recipe, resume=resume)
        if recipe.data.kind != "etudes" and recipe.executes:
            load_task_split(recipe)
        if recipe.pool.file is not None and recipe.executes:
            _require_answers(worker_set.pool_settings(recipe))
        preflight.claim_output(recipe)
    if resume and not preflight.has_checkpoint(recipe.output):
        echo_error(f"{recipe.output} has no checkpoint yet; starting from the beginning")
        resume = False
    try:
        trainer = _import_trainer(recipe.kind)
        trainer(recipe, resume=True) if resume else trainer(recipe)
    except KeyboardInterrupt:
        if is_main_process():
            echo_error(f"interrupted; {_resume_hint(recipe)}")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    if is_main_process():
        echo(str(recipe.output))


LOADING_TIMEOUT: Final = 180.0
"""Seconds for a worker's first reply; local weights may be loaded before it."""


def _require_answers(settings: Settings) -> None:
    checks = asyncio.run(check_models(settings, seconds=LOADING_TIMEOUT))
    failed = [f"{check.worker}: {check.error}" for check in checks if check.error is not None]
    if failed:
        raise Unavailable(f"{settings.source}: no answer from {'; '.join(failed)}")


def _import_trainer(kind: str) -> Callable[..., None]:
    if kind == "evolve":
        with lab_extra():
            from podium_lab.evolution.training import train
        return train
    trainer: Callable[..., None] = importlib.import_module(f"podium.train.{kind}").train
    return trainer


def _resume_hint(recipe: Recipe) -> str:
    kept = last_checkpoint(recipe.output)
    if kept is None:
        return "there is no checkpoint yet, so the same command starts again"
    return f"repeat the command with --resume to continue from step {kept.step}"


def _base_of(directory: Path) -> str:
    """Return the weights of the base model that the adapter names."""
    base = read_config(directory).base
    if not base:
        raise ConfigError(f"{directory} does not name its base model; name it with --base")
    file = weights_file(base)
    if file is None:
        raise ConfigError(
            f"{directory} is an adapter of {base}, but exporting needs a GGUF file; name that "
            f"of the same model with --base"
        )
    return file


def _print_dry_run(recipe: Recipe, *, json: bool) -> None:
    has_pool = recipe.pool.file is None or Path(recipe.pool.file).exists()
    pool = worker_set.recipe_pool(recipe) if recipe.executes and has_pool else None
    missing = list(preflight.missing_files(recipe))
    taken = estimate(recipe, pool) if pool is not None or recipe.kind == "sft" else None
    disk = preflight.disk_bytes(recipe)
    if json:
        echo_json(
            {
                "kind": recipe.kind,
                "fingerprint": recipe.fingerprint,
                "recipe": preflight.effective_values(recipe),
                "estimate": asdict(taken) if taken is not None else None,
                "disk_bytes": disk,
                "missing": missing,
            }
        )
        return
    _print_rows(f"recipe: {recipe.command}", _recipe_rows(recipe))
    if taken is not None:
        most = f"{disk / 1_000_000_000:,.1f} GB at most, for checkpoints and cached replies"
        rows = [*_estimate_rows(recipe, taken), ("disk", most)]
        _print_rows("estimate", rows)
    for problem in missing:
        echo_error(f"missing: {problem}")


def _recipe_rows(recipe: Recipe) -> list[tuple[str, str]]:
    values = preflight.flat(preflight.effective_values(recipe))
    given = {key: value for key, value in values.items() if value not in (None, {}, [])}
    return [(key, _format_value(value)) for key, value in given.items()]


def _format_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value or '""'
    return json_format.dumps(value) if isinstance(value, list) else f"{value}"


def _estimate_rows(recipe: Recipe, taken: Estimate) -> list[tuple[str, str]]:
    assumed, explored = recipe.estimate, taken.exploration_plans
    if recipe.kind == "sft":
        rows = [("steps", f"{taken.steps:,}"), ("examples", f"{taken.examples:,}")]
        searched = [("search", f"about {taken.rollouts:,} plans"), ("cost", _cost(taken))]
        return [*rows, *(searched if taken.rollouts else [])]
    plan, own = "plan", ("conductor output", f"at most {taken.conductor_tokens:,} tokens")
    if recipe.kind == "evolve":
        plan, own = "run", ("candidates", f"{taken.candidates:,} a step")
    return [
        ("steps", f"{taken.steps:,}"),
        ("questions", f"{taken.questions:,}"),
        ("rollouts", f"{taken.rollouts:,}"),
        *([("exploration", f"at most {explored:,} plans")] if explored else []),
        ("measurements", f"{taken.evaluation_plans:,} {plan}s"),
        ("worker calls", f"{taken.worker_calls:,}, at {calls_per_run(recipe):g} a {plan}"),
        (
            "worker input",
            f"{taken.worker_input_tokens:,} tokens, at {assumed.worker_input_tokens:,}",
        ),
        (
            "worker output",
            f"{taken.worker_output_tokens:,} tokens, at {assumed.worker_output_tokens:,}",
        ),
        own,
        *_compute_rows(recipe, taken),
        ("cost", _cost(taken)),
    ]


def _compute_rows(recipe: Recipe, taken: Estimate) -> list[tuple[str, str]]:
    if taken.gpu_gb is None:
        return []
    hours = f"{taken.sampling_hours:.2f} to sample, {taken.update_hours:.2f} to update"
    return [
        ("GPU memory", f"about {taken.gpu_gb:,.0f} GB on each of {recipe.estimate.gpus}"),
        ("GPU hours", f"about {hours}; what workers take comes on top"),
    ]


def _cost(taken: Estimate) -> str:
    if taken.usd == 0 and taken.usd_max == 0:
        return "$0: every worker is free"
    more = " with all the exploration" if taken.exploration_plans else ""
    most = f"{format_usd(taken.usd_max)} if the most expensive worker gets every call{more}"
    if taken.usd is not None:
        return f"{format_usd(taken.usd)} if workers are called equally often, {most}"
    unpriced = ", ".join(taken.unpriced)
    return f"unknown: no price for {unpriced}; the others: {format_usd(taken.usd_priced)}"


def _print_rows(heading: str, rows: list[tuple[str, str]]) -> None:
    echo(heading)
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        echo(f"  {name:<{width}}  {to_one_line(value)}")


_UNSAFE: Final = re.compile("[\x85\u2028\u2029\ud800-\udfff]")
"""Characters that JSON allows, but that end a line for some readers or cannot be encoded."""

_HINTS: Final = MappingProxyType(
    {
        "outcomes": "give feedback on a run of one step, such as podium ask --tier mini",
        "tasks": "give the correct answer with podium runs feedback ID SCORE --answer TEXT",
        "plans": "give a score of 0.75 or more to a run that was planned once",
    }
)
_OPTIONS: Final = MappingProxyType({"outcomes": "-o", "tasks": "--tasks", "plans": "--plans"})


def write_training_data(
    wanted: Mapping[str, Path],
    style: PromptStyle,
    *,
    from_runs: bool,
    evaluations: Sequence[Path],
    config: Path | None,
    json: bool,
) -> None:
    """Collect the runs and write the files, by kind: all of them, or none if one would be empty."""
    from podium.evals.log import read_judged_runs
    from podium.train.run_data import RunDataset, judged_runs

    if not wanted:
        raise UsageError(
            "nothing to write: give -o FILE for the router's log, --tasks FILE for the conductor's "
            "tasks, or --plans FILE for its plans"
        )
    dataset, left_out = RunDataset(Prompt(style=style)), Counter[str]()

    async def collect(store: RunStore) -> None:
        async for judged in judged_runs(store, left_out):
            dataset.take(judged)

    if from_runs:
        run_with_store(config, collect)
    for directory in evaluations:
        for judged in read_judged_runs(directory, left_out):
            dataset.take(judged)
    lines = {
        "outcomes": [outcome.to_json() for outcome in dataset.outcomes],
        "tasks": [task.to_json() for task in dataset.tasks],
        "plans": dataset.plans,
    }
    for kind in wanted:
        if not lines[kind]:
            less = f", or leave out {_OPTIONS[kind]}" if len(wanted) > 1 else ""
            raise UsageError(
                f"{_describe_empty(kind, dataset, left_out, from_runs, evaluations)}{less}"
            )
    counts = {kind: len(lines[kind]) for kind in wanted}
    if from_runs:  # first: nothing is written without an audit entry
        run_with_store(config, lambda store: _audit(store, counts))
    for kind, path in wanted.items():
        _write(path, lines[kind])
    _print_summary(wanted, counts, dataset, left_out, json=json)


async def _audit(store: RunStore, written: Mapping[str, int]) -> None:
    await store.audit.add(local_event("training data written", details=dict(written)))


def _describe_empty(
    kind: str,
    dataset: RunDataset,
    left_out: Counter[str],
    from_runs: bool,
    evaluations: Sequence[Path],
) -> str:
    from podium.train.run_data import ORACLE_ANSWERED

    reasons = [*_reasons(left_out), *_reasons(dataset.unused[kind])]
    if reasons:
        hint = _HINTS[kind]
        if kind == "tasks" and evaluations and not from_runs:
            hint = "samples of an evaluation hold no correct answers: train on its tasks"
        elif dataset.unused[kind][ORACLE_ANSWERED]:
            hint = (
                "evaluate real workers: podium eval run TASKS.jsonl --strategy "
                "best-single --output DIR, without --oracle"
            )
        left = "; ".join(reasons)
        return f"nothing was written: no {kind}; skipped {left}; {hint}"
    if evaluations:
        return f"nothing was written: no {kind}; the evaluation has no samples yet"
    return (
        "nothing was written: no run has feedback; give it on a run's page or with podium runs "
        "feedback, or grade runs with podium runs grade"
    )


def _write(path: Path, documents: Iterable[Mapping[str, Any]]) -> None:
    lines = (json_format.dumps(document, ensure_ascii=False) for document in documents)
    with explain_write_errors(path.parent, 0):
        write_atomically(path, "".join(f"{_UNSAFE.sub(_escape, line)}\n" for line in lines))


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def _print_summary(
    wanted: Mapping[str, Path],
    written: Mapping[str, int],
    dataset: RunDataset,
    left_out: Counter[str],
    *,
    json: bool,
) -> None:
    if json:
        echo_json(
            {
                "written": {
                    kind: {"file": str(path), "lines": written[kind]}
                    for kind, path in wanted.items()
                },
                "left_out": dict(left_out),
                "unused": {kind: dict(dataset.unused[kind]) for kind in wanted},
            }
        )
        return
    for kind, path in wanted.items():
        echo(f"{pluralize(written[kind], kind.removesuffix('s'))} in {path}")
        for reason in _reasons(dataset.unused[kind]):
            echo(f"  without {reason}")
    for reason in _reasons(left_out):
        echo(f"skipped {reason}")


def _reasons(counts: Counter[str]) -> list[str]:
    return [f"{pluralize(count, 'run')}: {reason}" for reason, count in counts.most_common()]
