"""`podium eval fit` and `podium eval cross-validate`: train and measure strategies that learn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from podium.cli import eval_options, options
from podium.cli.eval_options import EvalOptions
from podium.cli.eval_session import EvalResources, EvalSession, default_limit, print_left_out
from podium.cli.options import Omit, with_option_groups
from podium.cli.output import echo, echo_json

if TYPE_CHECKING:  # slow to import, and --help must be quick
    from podium.evals.strategies.fit import CrossValidation
    from podium.evals.strategies.registry import LearnedStrategy

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
    given: Annotated[EvalOptions, Omit(("limit",))],
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
    encoder: Encoder = None,
) -> None:
    """Train a strategy that learns, on the suite's training split.

    Every worker answers every question; replies are cached, so repeating the command calls no
    worker. Measure the result with: podium eval run SUITE --strategy STRATEGY:FILE.
    """
    from podium.evals.strategies.fit import fit as fit_strategy
    from podium.evals.strategies.fit import load_training_cases, training_suite
    from podium.evals.strategies.registry import write_learned

    name = training_suite(suite)
    session = EvalSession(pool_options=pool, eval_options=given, suite=name)

    async def learn(resources: EvalResources) -> LearnedStrategy:
        cases, left_out = load_training_cases(
            name, resources.setup.pool, data=given.data, limit=limit, seed=given.seed or 0
        )
        print_left_out(left_out)
        return await fit_strategy(
            strategy,
            resources.setup,
            cases,
            suite=name,
            seed=given.seed or 0,
            concurrency=resources.concurrency,
            repeats=given.repeats or resources.repeats,
            encoder=encoder,
            on_progress=resources.on_progress,
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
    given: EvalOptions,
    strategy: Annotated[
        str, typer.Option(metavar="A,B,…", help="The strategies, separated by commas.")
    ] = DEFAULT_LEARNERS,
    fold_count: Annotated[int, typer.Option(metavar="N", min=2, help="The number of folds.")] = 5,
    encoder: Encoder = None,
    file: eval_options.ResultsFile = None,
    json: options.Json = False,
) -> None:
    """Cross-validate strategies that learn, where a suite has no training split."""
    common = EvalSession(
        pool_options=pool,
        eval_options=given,
        suite="",
        strategies=tuple(dict.fromkeys(filter(None, strategy.split(",")))),
    )
    documents = []
    for suite in suites:
        result = _cross_validate(replace(common, suite=suite), fold_count, encoder)
        documents.append({"suite": suite, "seed": given.seed or 0, **result.document()})
        if not json:
            echo("\n".join(["\n\n".join(result.tables()), *result.notes()]))
    document = documents[0] if len(documents) == 1 else {"suites": documents}
    if json:
        echo_json(document)
    if file is not None:
        from podium.evals.log import write_json

        write_json(file, document)


def _cross_validate(session: EvalSession, fold_count: int, encoder: str | None) -> CrossValidation:
    from podium.evals.report import EvalSpec
    from podium.evals.strategies.fit import cross_validate

    given = session.eval_options
    spec = EvalSpec(
        suite=session.suite,
        data=given.data,
        strategies=tuple(session.strategies) or ("",),
        limit=given.limit or default_limit(session.suite),
        seed=given.seed or 0,
    )

    async def measure(resources: EvalResources) -> CrossValidation:
        cases, left_out = spec.load_cases(resources.setup)
        print_left_out(left_out)
        return await cross_validate(
            resources.setup,
            cases,
            session.strategies,
            fold_count=fold_count,
            seed=spec.seed,
            concurrency=resources.concurrency,
            repeats=given.repeats or resources.repeats,
            encoder=encoder,
            on_progress=resources.on_progress,
        )

    return session.run(measure)
