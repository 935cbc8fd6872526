"""`podium eval fit` and `podium eval folds`: strategies that learn, taught and measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from podium.cli import eval_options as given
from podium.cli import options
from podium.cli.eval_session import EvalSession, Held
from podium.cli.measure import tell_left_out, usual_tasks
from podium.cli.output import say, say_json
from podium.cli.settings import Choice

if TYPE_CHECKING:  # what measures is slow to import, and help must be quick
    from podium.evals.strategies.folds import Folded
    from podium.evals.strategies.learned import Learned

Strategy = Annotated[
    str,
    typer.Argument(
        metavar="STRATEGY",
        help="constant, neighbours, router, routerdc, smoothie, smoothie-local or masrouter.",
    ),
]
LearnedFrom = Annotated[
    str,
    typer.Argument(
        metavar="SUITE", help="The suite; its training split is learned from, or a named one."
    ),
]
Dealt = Annotated[
    list[str],
    typer.Argument(
        metavar="SUITE...",
        help="etudes, a benchmark's name, a recorded suite, or a .jsonl or .csv file of tasks.",
    ),
]
FoldsFile = Annotated[
    Path | None,
    typer.Option(
        "--file", "-o", metavar="FILE", dir_okay=False, help="Write the figures there, as JSON."
    ),
]
Fitted = Annotated[
    Path | None,
    typer.Option(
        "--file",
        "-o",
        metavar="FILE",
        dir_okay=False,
        help="Where what was learned goes; fitted/STRATEGY.json, when left out.",
    ),
]
Lessons = Annotated[
    int | None,
    typer.Option(
        "--limit",
        metavar="N",
        min=1,
        help="How many questions to learn from; when left out, 500, and all that were recorded.",
    ),
]
Learners = Annotated[
    str, typer.Option("--strategy", metavar="A,B,…", help="Which ones; several with commas.")
]
Folds = Annotated[int, typer.Option(metavar="N", min=2, help="In how many parts.")]
Encoder = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="What makes vectors of questions: hashed, by words; minilm, by meaning; or "
        "module:function, one of your own.",
    ),
]

USUAL_LEARNERS: Final = "constant,neighbours,routerdc"


def fit(
    strategy: Strategy,
    suite: LearnedFrom,
    file: Fitted = None,
    limit: Lessons = None,
    data: given.Data = None,
    seed: given.Seed = None,
    repeats: given.Repeats = None,
    encoder: Encoder = None,
    pool: options.Pool = None,
    config: options.Config = None,
    oracle: given.Oracle = False,
    concurrency: given.Concurrency = None,
    cache: given.Cache = None,
    fresh: given.Fresh = False,
    offline: options.Offline = False,
) -> None:
    """Teach a strategy that learns, on the suite's training split.

    Every worker is asked every question; replies are kept, so the same again asks nobody.
    Measure it afterwards by its file: podium eval run SUITE --strategy STRATEGY:FILE.
    """
    from podium.evals.strategies.fit import fit as fitted
    from podium.evals.strategies.fit import training_cases, training_suite
    from podium.evals.strategies.learned import write_learned

    named, chance = training_suite(suite), seed or 0
    sitting = EvalSession(
        choice=Choice(pool=pool, config=config, offline=offline),
        suite=named,
        data=data,
        oracle=oracle,
        concurrency=concurrency,
        cache=cache,
        keeps_replies=not fresh,
    )

    async def taught(held: Held) -> Learned:
        cases, left_out = training_cases(
            named, held.ensemble.pool, data=data, limit=limit, seed=chance
        )
        tell_left_out(left_out)
        return await fitted(
            strategy,
            held.ensemble,
            cases,
            suite=named,
            seed=chance,
            concurrency=held.at_once,
            repeats=repeats or held.tries,
            encoder=encoder,
            watch=held.watch,
        )

    learned = sitting.hold(taught)
    path = file or Path("fitted") / f"{strategy}.json"
    write_learned(path, learned)
    say(f"{path}: learned from {named}; measure it with --strategy {strategy}:{path}")


def folds(
    suites: Dealt,
    strategy: Learners = USUAL_LEARNERS,
    count: Folds = 5,
    limit: given.Limit = None,
    data: given.Data = None,
    seed: given.Seed = None,
    repeats: given.Repeats = None,
    encoder: Encoder = None,
    file: FoldsFile = None,
    json: options.Json = False,
    pool: options.Pool = None,
    config: options.Config = None,
    oracle: given.Oracle = False,
    concurrency: given.Concurrency = None,
    cache: given.Cache = None,
    fresh: given.Fresh = False,
    offline: options.Offline = False,
) -> None:
    """Measure strategies that learn by cross-validation, where there is no training split.

    The tasks are dealt into parts; each part is measured by what was learned on the others.
    """
    common = EvalSession(
        choice=Choice(pool=pool, config=config, offline=offline),
        suite="",
        data=data,
        strategies=tuple(dict.fromkeys(filter(None, strategy.split(",")))),
        oracle=oracle,
        concurrency=concurrency,
        cache=cache,
        keeps_replies=not fresh,
    )
    documents = []
    for suite in suites:
        found = _folded(
            replace(common, suite=suite),
            limit=limit,
            seed=seed or 0,
            count=count,
            repeats=repeats,
            encoder=encoder,
        )
        documents.append({"suite": suite, "seed": seed or 0, **found.document()})
        if not json:
            say("\n".join(["\n\n".join(found.tables()), *found.notes()]))
    document = documents[0] if len(documents) == 1 else {"suites": documents}
    if json:
        say_json(document)
    if file is not None:
        from podium.evals.written import write_json

        write_json(file, document)


def _folded(
    sitting: EvalSession,
    *,
    limit: int | None,
    seed: int,
    count: int,
    repeats: int | None,
    encoder: str | None,
) -> Folded:
    """What the sitting's strategies learn of some parts of its suite, measured on the others."""
    from podium.evals.report import EvalSpec
    from podium.evals.strategies.folds import cross_validated

    wanted = EvalSpec(
        suite=sitting.suite,
        data=sitting.data,
        strategies=tuple(sitting.strategies) or ("",),
        limit=limit or usual_tasks(sitting.suite),
        seed=seed,
    )

    async def measured(held: Held) -> Folded:
        cases, left_out = wanted.posed(held.ensemble)
        tell_left_out(left_out)
        return await cross_validated(
            held.ensemble,
            cases,
            sitting.strategies,
            count=count,
            seed=seed,
            concurrency=held.at_once,
            repeats=repeats or held.tries,
            encoder=encoder,
            watch=held.watch,
        )

    return sitting.hold(measured)
