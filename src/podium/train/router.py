"""`podium train router`: evaluation logs in, a router out.

How a router learns is `podium.routing.learning`; here a recipe is carried out, and what came of it
is put into words. Needs numpy and no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from podium.routing.embedding import Embedder
from podium.routing.encoders import Encoder, HashedEncoder
from podium.routing.evidence import Evidence
from podium.routing.evolution import Evolution
from podium.routing.learning import LEAST_QUESTIONS, Taught, Teaching, taught
from podium.routing.log import read_log
from podium.train.router_recipe import RouterRecipe


@dataclass(frozen=True, slots=True)
class Trained:
    """The router that was written, what it learned from, and how it came about."""

    path: Path
    evidence: Evidence
    taught: Taught

    def lines(self) -> list[str]:
        """What a person wants to know of it."""
        found, learned = self.evidence, self.taught
        means = found.rewards[found.whole].mean(axis=0)
        rows = [
            f"{worker.name}: {mean:.3f} on the average, {worker.cost:.6g} USD a question"
            for worker, mean in zip(found.workers, means, strict=True)
        ]
        evolved = (
            f"evolved for {learned.generations} generation{'s' * (learned.generations != 1)}"
            if learned.generations
            else "evolution brought nothing that chance would not, so it was left out"
        )
        return [
            f"{len(found.questions)} questions, {len(found.workers)} workers; figures are of the "
            f"{int(found.whole.sum())} questions that every worker was asked",
            *rows,
            f"on questions left out, routing earned {learned.areas[learned.hold]:.3f} over the "
            f"whole dial, by a head held back {learned.hold}; {evolved}",
            str(self.path),
        ]


def learned_from(recipe: RouterRecipe) -> Evidence:
    """What the recipe's logs tell; refused where it is too little to learn from."""
    evidence = read_log([Path(path) for path in recipe.router.logs]).evidence(recipe.costs.usd)
    evidence.check(LEAST_QUESTIONS)
    return evidence


def train_router(recipe: RouterRecipe, evidence: Evidence) -> Trained:
    """Learn from that evidence as the recipe says, and write the router."""
    table = recipe.router
    evolution = Evolution(
        generations=recipe.evolution.generations,
        population=recipe.evolution.population,
        spread=recipe.evolution.spread,
        seed=table.seed,
    )
    teaching = Teaching(
        temperature=table.temperature,
        parts=table.parts,
        evolution=evolution if evolution.generations else None,
        seed=table.seed,
    )
    source = ", ".join(Path(path).name for path in table.logs)
    found = taught(evidence, _encoder(recipe, evidence), teaching, source=source)
    path = Path(table.output)
    found.router.save(path)
    return Trained(path, evidence, found)


def _encoder(recipe: RouterRecipe, evidence: Evidence) -> Encoder:
    if recipe.router.encoder == "minilm":
        return Embedder.quick()
    return HashedEncoder.fitted(evidence.questions)
