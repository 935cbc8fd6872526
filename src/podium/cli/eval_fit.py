"""`podium eval fit` and `podium eval cross-validate`: train and measure strategies that learn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from podium.cli import eval_options, options
from podium.cli.eval_session import EvalResources, EvalSession, default_limit, print_left_out
from podium.cli.options import with_option_groups
from podium.cli.output import echo, echo_json

if TYPE_CHECKING:  # slow to import, and --help must be quick
    from podium.evals.strategies.cross_validation import CrossValidation
    from podium.evals.strategies.learned import LearnedStrategy

Encoder = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The encoder of questions: hashed, minilm, or module:function for your own.",
    ),
]

DEFAULT_LEARNERS: Final = "constant,neighbours,routerdc"


@with_option_groups
def fit(
    strategy: Annotated[
        str,
        typer.Argument(
            metavar="STRATEGY",
            help="constant, neighbours, router, routerdc, smoothie, smoothie-local or masrouter.",
        ),
    ],
    suite: Annotated[
        str, typer.Argument(metavar="SUITE", help="The suite; default its training split.")
    ],
    pool: options.PoolFiles,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            "-o",
            metavar="FILE",
            dir_okay=False,
            help="The file to write; default fitted/STRATEGY.json.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Training questions; default 500, or all of a recorded suite."
        ),
    ] = None,
    data: eval_options.Data = None,
    seed: eval_options.Seed = None,
    repeats: eval_options.Repeats = None,
    encoder: Encoder = None,
    oracle: eval_options.Oracle = False,
    concurrency: eval_options.Concurrency = None,
    cache: eval_options.Cache = None,
    fresh: eval_options.Fresh = False,
) -> None:
    """Train a strategy that learns, on the suite's training split.

    Every worker answers every question; replies are cached, so repeating the command calls no
    worker. Measure the result with: podium eval run SUITE --strategy STRATEGY:FILE.
    """
    from podium.evals.strategies.fit import fit as fit_strategy
    from podium.evals.strategies.fit import load_training_cases, training_suite
    from podium.evals.strategies.learned import write_learned

    name = training_suite(suite)
    session = EvalSession(
        options=pool,
        suite=name,
        data=data,
        oracle=oracle,
        concurrency=concurrency,
        cache=cache,
        keeps_replies=not fresh,
    )

    async def learn(resources: EvalResources) -> LearnedStrategy:
        cases, left_out = load_training_cases(
            name, resources.ensemble.pool, data=data, limit=limit, seed=seed or 0
        )
        print_left_out(left_out)
        return await fit_strategy(
            strategy,
            resources.ensemble,
            cases,
            suite=name,
            seed=seed or 0,
            concurrency=resources.concurrency,
            repeats=repeats or resources.tries,
            encoder=encoder,
            on_progress=resources.watch,
        )

    learned = session.run(learn)
    path = file or Path("fitted") / f"{strategy}.json"
    write_learned(path, learned)
    echo(f"{path}: learned from {name}; measure it with --strategy {strategy}:{path}")


@with_option_groups
def cross_validate(
    suites: Annotated[
        list[str],
        typer.Argument(
            metavar="SUITE...",
            help="etudes, a benchmark's name, a recorded suite, or a .jsonl or .csv file of tasks.",
        ),
    ],
    pool: options.PoolFiles,
    strategy: Annotated[
        str, typer.Option(metavar="A,B,…", help="The strategies, separated by commas.")
    ] = DEFAULT_LEARNERS,
    folds: Annotated[int, typer.Option(metavar="N", min=2, help="The number of folds.")] = 5,
    limit: eval_options.Limit = None,
    data: eval_options.Data = None,
    seed: eval_options.Seed = None,
    repeats: eval_options.Repeats = None,
    encoder: Encoder = None,
    file: eval_options.ResultsFile = None,
    json: options.Json = False,
    oracle: eval_options.Oracle = False,
    concurrency: eval_options.Concurrency = None,
    cache: eval_options.Cache = None,
    fresh: eval_options.Fresh = False,
) -> None:
    """Cross-validate strategies that learn, where a suite has no training split."""
    common = EvalSession(
        options=pool,
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
        result = _cross_validate(
            replace(common, suite=suite),
            limit=limit,
            seed=seed or 0,
            folds=folds,
            repeats=repeats,
            encoder=encoder,
        )
        documents.append({"suite": suite, "seed": seed or 0, **result.document()})
        if not json:
            echo("\n".join(["\n\n".join(result.tables()), *result.notes()]))
    document = documents[0] if len(documents) == 1 else {"suites": documents}
    if json:
        echo_json(document)
    if file is not None:
        from podium.evals.log import write_json

        write_json(file, document)


def _cross_validate(
    session: EvalSession,
    *,
    limit: int | None,
    seed: int,
    folds: int,
    repeats: int | None,
    encoder: str | None,
) -> CrossValidation:
    from podium.evals.report import EvalSpec
    from podium.evals.strategies.cross_validation import cross_validate

    spec = EvalSpec(
        suite=session.suite,
        data=session.data,
        strategies=tuple(session.strategies) or ("",),
        limit=limit or default_limit(session.suite),
        seed=seed,
    )

    async def measure(resources: EvalResources) -> CrossValidation:
        cases, left_out = spec.load_cases(resources.ensemble)
        print_left_out(left_out)
        return await cross_validate(
            resources.ensemble,
            cases,
            session.strategies,
            count=folds,
            seed=seed,
            concurrency=resources.concurrency,
            repeats=repeats or resources.tries,
            encoder=encoder,
            on_progress=resources.watch,
        )

    return session.run(measure)
