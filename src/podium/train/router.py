"""`podium train router`: read a recipe and its logs, train a router, summarize it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os.path import normpath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from podium._util.tables import Table
from podium.config.workers import Name
from podium.train.data_schema import Weight
from podium.train.recipe import read_tables

if TYPE_CHECKING:  # the extra `router`: other trainings do without
    from podium.conductors.routing.encoders import Encoder
    from podium.conductors.routing.learning import RouterFit
    from podium.conductors.routing.router import RewardMatrix


class RecipeRouterTable(Table):
    """The table `[router]`: data and method of learning."""

    logs: Annotated[tuple[Name, ...], Field(strict=False, min_length=1)] = Field(
        description="the evaluation logs to learn from, JSON lines; paths count from the recipe"
    )
    output: Name = Field(default="router.json", description="the file to write")
    encoder: Literal["minilm", "hashed"] = Field(
        default="minilm",
        description="how questions are embedded: `minilm`, the first three layers of "
        "all-MiniLM-L6-v2 (fetched by `podium models pull all-minilm-l6-v2`), or `hashed`, counts "
        "of words and word pairs without a model",
    )
    folds: int = Field(
        default=5,
        ge=3,
        description="folds of cross-validation, for every choice",
    )
    seed: int = Field(default=0, description="the random seed")


class CostsTable(Table):
    """Costs of a question by worker, for logs without costs."""

    usd: dict[str, Weight] = Field(
        default_factory=dict,
        description="US dollars by the worker's name, instead of the log's cost",
    )


class RouterRecipe(Table):
    """A whole recipe."""

    router: RecipeRouterTable
    costs: CostsTable = CostsTable()

    @property
    def packages(self) -> tuple[str, ...]:
        reading = ("tokenizers", "safetensors") if self.router.encoder == "minilm" else ()
        return ("numpy", *reading)

    def resolve_paths(self, directory: Path) -> RouterRecipe:
        def at(path: str) -> str:
            return normpath(directory / Path(path).expanduser())

        paths = {"logs": tuple(map(at, self.router.logs)), "output": at(self.router.output)}
        return self.model_copy(update={"router": self.router.model_copy(update=paths)})


def read_router_recipe(path: Path, overrides: Sequence[str] = ()) -> RouterRecipe:
    return read_tables(RouterRecipe, path, overrides).resolve_paths(path.absolute().parent)


@dataclass(frozen=True, slots=True)
class TrainedRouter:
    """A router, its file and its training data."""

    path: Path
    rewards: RewardMatrix
    fit: RouterFit

    def lines(self) -> list[str]:
        found, learned = self.rewards, self.fit
        means = found.rewards[found.complete_rows].mean(axis=0)
        rows = [
            f"{worker.name}: {mean:.3f} on the average, {worker.cost:.6g} USD a question"
            for worker, mean in zip(found.workers, means, strict=True)
        ]
        return [
            f"{len(found.questions)} questions, {len(found.workers)} workers; figures are of the "
            f"{int(found.complete_rows.sum())} questions that every worker was asked",
            *rows,
            f"on questions left out, routing earned {learned.scores[learned.ridge]:.3f} over the "
            f"whole quality bias, with a ridge of {learned.ridge:g}",
            str(self.path),
        ]


def load_outcomes(recipe: RouterRecipe) -> RewardMatrix:
    """Read the recipe's logs; raises if there is too little to learn from."""
    from podium.conductors.routing.learning import MIN_QUESTIONS
    from podium.conductors.routing.router import read_log

    rewards = read_log([Path(path) for path in recipe.router.logs]).reward_matrix(recipe.costs.usd)
    rewards.check(MIN_QUESTIONS)
    return rewards


def train_router(recipe: RouterRecipe, rewards: RewardMatrix) -> TrainedRouter:
    from podium.conductors.routing.learning import RouterTraining, fit_router

    table = recipe.router
    options = RouterTraining(folds=table.folds, seed=table.seed)
    source = ", ".join(Path(path).name for path in table.logs)
    found = fit_router(rewards, _encoder(recipe, rewards), options, source=source)
    path = Path(table.output)
    found.router.save(path)
    return TrainedRouter(path, rewards, found)


def _encoder(recipe: RouterRecipe, rewards: RewardMatrix) -> Encoder:
    from podium.conductors.routing.encoders import Embedder, HashedEncoder

    if recipe.router.encoder == "minilm":
        return Embedder.quick()
    return HashedEncoder.fit(rewards.questions)
