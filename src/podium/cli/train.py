"""`podium train`: a recipe in, a trained conductor or specialists out.

Everything is checked before anything heavy is imported: the recipe, the machine, the workers,
the tasks. What a training would take is told by `dry_run`; the trainers themselves are
`podium.train.sft`, `podium.train.grpo` and `podium_lab.evolution.training`.
"""

from __future__ import annotations

import asyncio
import importlib
import json as json_format
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from podium._util.lab import lab_extra
from podium.cli import options
from podium.cli import train_data as use
from podium.cli.app import NounGroup
from podium.cli.formatting import counted, money, one_line
from podium.cli.models import fetch
from podium.cli.output import Exit, complain, say, say_json
from podium.config.schema import PromptLength
from podium.core.errors import ConfigError, UsageError
from podium.train import exercises as pools
from podium.train import preflight
from podium.train.curves import write_curves
from podium.train.exercises import load_problems
from podium.train.preflight import Estimate, calls_a_run, estimate
from podium.train.recipe import Kind, Recipe, read_recipe
from podium.train.router import read_router_recipe
from podium.train.runtime import is_main_process, last_checkpoint
from podium.workers.local.sources import ShippedAdapter, parse_source, read_config, weights_file
from podium.workers.local.weights import locate


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


app = typer.Typer(cls=NounGroup, rich_markup_mode=None, add_completion=False)

RecipeFile = Annotated[
    Path, typer.Argument(metavar="RECIPE.toml", help="The recipe; recipes/ holds ready ones.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print every value and what it would take, and stop.")
]
Json = Annotated[bool, typer.Option("--json", help="With --dry-run: print one JSON object.")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on from the last checkpoint of this recipe.")
]
Output = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Where everything goes that comes out.")
]
RouterFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", dir_okay=False, help="The router's file, instead of the one in the recipe."
    ),
]
Steps = Annotated[int | None, typer.Option(metavar="N", min=1, help="Updates of the model.")]
Seed = Annotated[int | None, typer.Option(metavar="N", help="What all that is random begins with.")]
Ray = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Carry plans out on the Ray cluster at that address; auto for the one of this "
        "machine.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A value instead of the recipe's, such as prompt.few_shot=false; paths count from the "
        "recipe's directory, nothing after = takes the key out; may be repeated.",
    ),
]


@app.command()
def sft(
    recipe: RecipeFile,
    dry_run: DryRun = False,
    json: Json = False,
    resume: Resume = False,
    output: Output = None,
    steps: Steps = None,
    seed: Seed = None,
    set_: Set = None,
) -> None:
    """Teach by example: the études' specialists, a conductor's first plans, or your own."""
    read = _read("sft", recipe, output, steps, seed, set_)
    show(read, json=json) if dry_run else _train(read, resume=resume)


@app.command()
def grpo(
    recipe: RecipeFile,
    dry_run: DryRun = False,
    json: Json = False,
    resume: Resume = False,
    output: Output = None,
    steps: Steps = None,
    seed: Seed = None,
    ray: Ray = None,
    set_: Set = None,
) -> None:
    """Teach a conductor by whether the answers of its plans were right."""
    said = [*(set_ or ()), *([] if ray is None else [f"run.ray={json_format.dumps(ray)}"])]
    read = _read("grpo", recipe, output, steps, seed, said)
    show(read, json=json) if dry_run else _train(read, resume=resume)


@app.command()
def evolve(
    recipe: RecipeFile,
    dry_run: DryRun = False,
    json: Json = False,
    resume: Resume = False,
    output: Output = None,
    steps: Steps = None,
    seed: Seed = None,
    set_: Set = None,
) -> None:
    """Evolve a coordinator, which picks a worker and a role turn by turn, by its answers."""
    read = _read("evolve", recipe, output, steps, seed, set_)
    show(read, json=json) if dry_run else _train(read, resume=resume)


@app.command()
def router(
    recipe: RecipeFile, output: RouterFile = None, seed: Seed = None, set_: Set = None
) -> None:
    """Teach podium-mini who answers what best and for how much, from evaluation logs.

    Logs are written by podium train data. Needs numpy and no torch.
    """
    said = [*(set_ or ()), *([] if seed is None else [f"router.seed={seed}"])]
    if output is not None:
        said.append(f"router.output={json_format.dumps(str(output.absolute()))}")
    read = read_router_recipe(recipe, said)
    from podium.tasks.sources import optional  # it loads the graders

    for package in read.packages:
        optional(package, "training a router", extra="router")
    from podium.train.router import load_outcomes, train_router

    evidence = load_outcomes(read)  # nothing is fetched for a log that teaches nothing
    if read.router.encoder == "minilm":
        from podium.conductors.routing.embedding import MODEL

        asyncio.run(fetch(MODEL))
    say("\n".join(train_router(read, evidence).lines()))


@app.command()
def data(
    recipe: Annotated[
        Path | None,
        typer.Argument(metavar="RECIPE.toml", help="The recipe whose tasks are wanted."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The recipe's tasks, or a router's log: JSONL.",
        ),
    ] = None,
    from_runs: Annotated[
        bool, typer.Option("--from-runs", help="Learn from the runs that were judged.")
    ] = False,
    from_evaluation: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="Learn from an evaluation's samples; may be repeated."),
    ] = None,
    tasks: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --from-runs: tasks for podium train grpo."),
    ] = None,
    plans: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Good plans as examples for podium train sft."),
    ] = None,
    prompt: Annotated[
        PromptLength,
        typer.Option(metavar="full|compact|trained", help="How --plans asks for a plan."),
    ] = "full",
    set_: Set = None,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Write data to train with: the tasks of a recipe, or what can be learned from use.

    With --from-runs and --from-evaluation: for a router, what each worker earned (-o); for a
    conductor, tasks with their right answers (--tasks), and plans that were good (--plans). Runs
    of keys that are kept out of training are left out, and whatever is left out is counted.
    """
    if from_runs or from_evaluation:
        if recipe is not None:
            raise UsageError("a recipe has tasks of its own; leave it out, or what to learn from")
        sources = use.Sources(runs=from_runs, evaluations=from_evaluation or (), config=config)
        files = use.Files(outcomes=output, tasks=tasks, plans=plans)
        use.write_use(sources, files, prompt, json=json)
        return
    if recipe is None or output is None:
        raise UsageError(
            "name a recipe, and with -o the file for its tasks; or say what to learn from, with "
            "--from-runs or --from-evaluation DIR"
        )
    from podium.tasks import save_suite  # it loads the graders

    found = load_problems(read_recipe(recipe, set_ or ()))
    save_suite(output, found.train)
    say(f"{counted(len(found.train), 'task')} in {output}")


@app.command()
def export(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="The directory of a trained adapter.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE.gguf", help="The file to write.")
    ],
    base: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="What it is an adapter of: a model from podium models list, or a GGUF file; "
            "left out, what the adapter itself names.",
        ),
    ] = None,
) -> None:
    """Write an adapter as a GGUF file, which llama.cpp loads over its base."""
    preflight.require_packages()
    from podium.train.gguf import export_adapter

    say(str(export_adapter(directory, output, base=base or _base_of(directory))))


@app.command()
def unpack(
    adapter: Annotated[
        str,
        typer.Argument(
            metavar="ADAPTER", help="One that Podium ships (embedded/NAME), or a GGUF file."
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="The directory to write.")
    ],
    base: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="What it is an adapter of: a model from podium models list, or a GGUF file; "
            "left out, what the adapter was shipped for.",
        ),
    ] = None,
) -> None:
    """Write an adapter from a GGUF file as training and transformers take it."""
    preflight.require_packages()
    from podium.train.gguf import unpack_adapter

    found = parse_source(adapter)
    if base is None:
        if not isinstance(found, ShippedAdapter):
            raise ConfigError(f"{adapter} does not say what it is an adapter of; name it by --base")
        base = found.base
    say(str(unpack_adapter(asyncio.run(locate(adapter)), output, base=base)))


@app.command()
def curves(
    trainings: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR", help="The directories of trainings, or their files of metrics."
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE.svg", help="The file to write.")
    ],
) -> None:
    """Draw how trainings went, several in one picture."""
    for course in write_curves(trainings, output):
        if course.left_out:
            lines = counted(course.left_out, "line")
            complain(f"{course.name}: without {lines} of the metrics that cannot be read")
    say(str(output))


def _read(
    kind: Kind,
    path: Path,
    output: Path | None,
    steps: int | None,
    seed: int | None,
    overrides: list[str] | None,
) -> Recipe:
    """The recipe with what the command line says instead."""
    said = list(overrides or ())
    if output is not None:
        said.append(f"run.output={json_format.dumps(str(output.absolute()))}")
    if steps is not None:
        said.append(f"{kind}.steps={steps}")
    if seed is not None:
        said.append(f"run.seed={seed}")
    return read_recipe(path, said, kind=kind)


# ---- training


def _train(recipe: Recipe, *, resume: bool) -> None:
    preflight.require_packages(recipe.kind)
    preflight.require_trackers(recipe)
    preflight.check_files(recipe)
    if is_main_process():
        preflight.check_output(recipe, resume=resume)
        if recipe.data.kind != "etudes" and recipe.kind != "sft":
            load_problems(recipe)
        if recipe.pool.file is not None:
            asyncio.run(pools.check_pool(pools.pool_settings(recipe), os.environ))
        preflight.claim_output(recipe)
    if resume and not preflight.has_checkpoint(recipe.output):
        complain(f"{recipe.output} holds no checkpoint yet, so it begins from the start")
        resume = False
    try:
        _trainer(recipe.kind)(recipe, resume=resume)
    except KeyboardInterrupt:
        if is_main_process():
            complain(f"interrupted; {_how_to_go_on(recipe)}")
        raise typer.Exit(Exit.INTERRUPTED) from None
    if is_main_process():
        say(str(recipe.output))


def _trainer(kind: str) -> Callable[..., None]:
    """Import what trains this kind of recipe, which may take seconds."""
    if kind == "evolve":
        with lab_extra():
            from podium_lab.evolution.training import train
        return train
    found: Callable[..., None] = importlib.import_module(f"podium.train.{kind}").train
    return found


def _how_to_go_on(recipe: Recipe) -> str:
    kept = last_checkpoint(recipe.output)
    if kept is None:
        return "there is no checkpoint yet, and the same command begins anew"
    return f"the same command goes on from step {kept.step} with --resume"


# ---- export


def _base_of(directory: Path) -> str:
    """The weights of the base that the adapter itself names."""
    base = read_config(directory).base
    if not base:
        raise ConfigError(f"{directory} does not say what it is an adapter of; name it by --base")
    file = weights_file(base)
    if file is None:
        raise ConfigError(
            f"{directory} is an adapter of {base}, and it is exported over a GGUF file; name that "
            f"of the same model by --base"
        )
    return file
