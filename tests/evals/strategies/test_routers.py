from __future__ import annotations

import json

import pytest

from podium.core.errors import UsageError

np = pytest.importorskip("numpy")

from podium.conductors.routing.arrays import Array, normalize_rows
from podium.conductors.routing.encoders import HashedEncoder
from podium.evals.strategies.routers import (
    ROUTERS,
    NeighbourRouter,
    RouterModel,
    WorkerOutcomes,
    choose_worker,
    router_class,
)
from podium_lab.routers import RESEARCH_ROUTERS
from podium_lab.routers.adamw import AdamW
from podium_lab.routers.routerdc import _contrasts, _cosine_matrix, _Training
from podium_lab.routers.smoothie import SmoothieGlobal, SmoothieLocal

WORKERS = ("poet", "clerk", "cook")
VERSES = [
    f"Write a verse about the {thing} in spring" for thing in ["river", "sky", "moon", "tree"]
]
SUMS = [f"Add {n} and {n + 3} and divide by two" for n in range(4)]
STEWS = [f"Cook a stew with {thing} and salt" for thing in ["leek", "lamb", "beans", "barley"]]

ALL_ROUTERS = (*ROUTERS, *RESEARCH_ROUTERS)


def split_outcomes(times: int = 5) -> WorkerOutcomes:
    """Everyone is right in one trade alone, the clerk a little more often on the whole."""
    questions, shares = [], []
    for n in range(times):
        for trade, texts in enumerate((VERSES, SUMS, STEWS)):
            for text in texts:
                questions.append(f"{text} number {n}")
                shares.append([1.0 if place == trade else 0.0 for place in range(3)])
                if n == 0:
                    shares[-1][1] = 1.0
    return WorkerOutcomes(tuple(questions), WORKERS, np.array(shares, dtype=np.float32))


def fit(name: str, outcomes: WorkerOutcomes) -> RouterModel:
    return router_class(name).fit(outcomes, HashedEncoder.fit, 0)


@pytest.mark.parametrize("name", ["neighbours", "routerdc"])
def test_a_router_finds_who_is_right_on_what(name: str) -> None:
    router = fit(name, split_outcomes())
    assert choose_worker(router, "Write a verse about the cloud in spring", WORKERS) == "poet"
    assert choose_worker(router, "Add 17 and 20 and divide by two", WORKERS) == "clerk"
    assert choose_worker(router, "Cook a stew with peas and salt", WORKERS) == "cook"


def test_a_constant_router_reads_no_question() -> None:
    router = fit("constant", split_outcomes())
    assert {choose_worker(router, text, WORKERS) for text in (*VERSES, *SUMS)} == {"clerk"}


def test_of_absent_workers_none_is_chosen() -> None:
    router = fit("constant", split_outcomes())
    assert choose_worker(router, "anything", ("cook", "stranger")) == "cook"
    with pytest.raises(UsageError, match="fit it again on this pool"):
        choose_worker(router, "anything", ("stranger",))


@pytest.mark.parametrize("name", ALL_ROUTERS)
def test_a_router_that_was_written_down_chooses_alike(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podium_lab.routers.routerdc.STEPS", 40)
    outcomes = split_outcomes(2)
    said = tuple(tuple(f"{worker} on {q}" for worker in WORKERS) for q in outcomes.questions)
    router = fit(name, WorkerOutcomes(outcomes.questions, WORKERS, outcomes.shares, said))
    document = json.loads(json.dumps(router.document()))
    again = router_class(name).read(router.workers, document)
    assert np.array_equal(again.scores(VERSES), router.scores(VERSES))


@pytest.mark.parametrize("name", ALL_ROUTERS)
def test_the_same_seed_gives_the_same_router(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podium_lab.routers.routerdc.STEPS", 40)
    outcomes = split_outcomes(2)
    said = tuple(tuple(f"{worker} on {q}" for worker in WORKERS) for q in outcomes.questions)
    whole = WorkerOutcomes(outcomes.questions, WORKERS, outcomes.shares, said)
    assert fit(name, whole).document() == fit(name, whole).document()


def test_one_question_is_enough_to_learn_from() -> None:
    one = WorkerOutcomes(("Add 1 and 2",), WORKERS, np.array([[0, 1, 0]], dtype=np.float32))
    for name in ("constant", "neighbours", "routerdc"):
        assert fit(name, one).scores(["Add 3 and 4"]).shape == (1, 3)


def test_neighbours_never_look_at_the_questions_own_outcome() -> None:
    """Were it not so, five neighbours would look perfect on pure noise."""
    rng = np.random.default_rng(0)
    words = ["ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen"]
    questions = tuple(" ".join(rng.choice(words, 6)) for _ in range(120))
    shares = (rng.random((120, 3)) < [0.2, 0.6, 0.2]).astype(np.float32)
    router = NeighbourRouter.fit(WorkerOutcomes(questions, WORKERS, shares), HashedEncoder.fit, 0)
    assert router.count > 5


def test_outcomes_must_fit_questions_and_workers() -> None:
    with pytest.raises(ValueError, match="shape"):
        WorkerOutcomes(("a",), ("b", "c"), np.zeros((1, 1), dtype=np.float32))
    with pytest.raises(UsageError, match="at least one question"):
        WorkerOutcomes((), ("b",), np.zeros((0, 1), dtype=np.float32))


def test_some_of_the_questions_keep_their_outcomes() -> None:
    outcomes = split_outcomes(1)
    part = outcomes.of([4, 8])
    assert part.questions == (outcomes.questions[4], outcomes.questions[8])
    assert part.shares.tolist() == [[0, 1, 0], [0, 1, 1]]


class TestRouterDC:
    def test_who_is_never_right_is_no_good_example_and_who_often_is_no_bad_one(self) -> None:
        shares = np.array([1.0, 0.0, 0.6, 0.0, 0.2, 0.0], dtype=np.float32)
        overall = np.array([0.5, 0.1, 0.4, 0.3, 0.2, 0.2], dtype=np.float32)
        assert _contrasts(shares, overall) == ([0, 2, 4], [3, 5, 1])
        everyone = np.ones(4, dtype=np.float32)
        assert _contrasts(everyone, overall[:4]) == ([0, 2, 3], [])
        nobody = np.zeros(4, dtype=np.float32)
        assert _contrasts(nobody, overall[:4])[0] == []

    def test_slopes_of_cosines_are_those_of_small_changes(self) -> None:
        rng = np.random.default_rng(1)
        one, other = rng.normal(size=(3, 5)), rng.normal(size=(4, 5))
        slopes = rng.normal(size=(3, 4))
        _, pulled = _cosine_matrix(one, other)
        to_one, to_other = pulled(slopes)
        for rows, found in ((one, to_one), (other, to_other)):
            moved = rows.copy()
            for place in np.ndindex(rows.shape):
                moved[place] += 1e-6
                before = (_cosine_matrix(one, other)[0] * slopes).sum()
                pair = (moved, other) if rows is one else (one, moved)
                after = (_cosine_matrix(*pair)[0] * slopes).sum()
                moved[place] = rows[place]
                assert (after - before) / 1e-6 == pytest.approx(found[place], abs=1e-4)

    def test_the_second_contrast_draws_questions_of_a_cluster_together(self) -> None:
        rng = np.random.default_rng(2)
        centres = np.eye(4, 12)[:2]
        vectors = normalize_rows(np.repeat(centres, 20, axis=0) + 0.1 * rng.normal(size=(40, 12)))
        lesson = _Training(vectors, np.zeros((40, 3), dtype=np.float32), rng)
        before = lesson.state[0].copy()
        for _ in range(200):
            lesson.step()
        apart = [_between(vectors @ projection) for projection in (before, lesson.state[0])]
        assert apart[1] < apart[0] - 0.2

    def test_slopes_of_the_second_contrast_are_those_of_small_changes(self) -> None:
        rng = np.random.default_rng(3)
        lesson = _Training(normalize_rows(rng.normal(size=(40, 6))), np.zeros((40, 2)), rng)
        rows = [row for place in range(5) if (row := lesson._companions(place)) is not None]
        replayed = {row[0]: row for row in rows}
        lesson._companions = replayed.get  # type: ignore[method-assign, assignment]
        lesson._projection = lesson._projection.astype(np.float64)
        batch = np.array([row[0] for row in rows])

        def loss() -> float:
            total = 0.0
            for row in rows:
                units = normalize_rows(lesson._vectors[row] @ lesson._projection)
                cosines = units[1:] @ units[0]
                total += float(np.log(np.exp(cosines).sum()) - cosines[0])
            return total / len(rows)

        gradient, _ = lesson._of_questions(batch)
        for place in ((0, 0), (3, 7), (5, 60)):
            before = loss()
            lesson._projection[place] += 1e-6
            assert (loss() - before) / 1e-6 == pytest.approx(gradient[place], abs=1e-4)
            lesson._projection[place] -= 1e-6


def _between(rows: Array) -> float:
    """How alike the rows of the first half are to those of the second."""
    return float((normalize_rows(rows[:20]) @ normalize_rows(rows[20:]).T).mean())


class TestSmoothie:
    def outcomes(self) -> WorkerOutcomes:
        """Two agree on verses and two on sums; the clerk is always among them."""
        replies = [("a river flows", "a river flows", "salt and leek") for _ in VERSES]
        replies += [("words words", "forty two", "forty two") for _ in SUMS]
        shares = np.zeros((8, 3), dtype=np.float32)
        return WorkerOutcomes((*VERSES, *SUMS), WORKERS, shares, tuple(replies))

    def test_who_agrees_with_everyone_is_trusted_without_a_label(self) -> None:
        router = SmoothieGlobal.fit(self.outcomes(), HashedEncoder.fit, 0)
        assert choose_worker(router, SUMS[0], WORKERS) == "clerk"

    def test_local_trust_changes_with_the_question(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("podium_lab.routers.smoothie.NEAREST", 4)
        router = SmoothieLocal.fit(self.outcomes(), HashedEncoder.fit, 0)
        verse, total = router.scores([VERSES[1], SUMS[1]])
        assert verse.argmin() == WORKERS.index("cook")
        assert total.argmin() == WORKERS.index("poet")

    def test_two_workers_or_no_words_are_too_little(self) -> None:
        shares: Array = np.zeros((1, 2), dtype=np.float32)
        two = WorkerOutcomes(("q",), ("a", "b"), shares, (("x", "y"),))
        with pytest.raises(UsageError, match="at least 3 workers"):
            SmoothieGlobal.fit(two, HashedEncoder.fit, 0)
        with pytest.raises(UsageError, match="no replies"):
            SmoothieGlobal.fit(split_outcomes(1), HashedEncoder.fit, 0)


def test_the_optimiser_walks_downhill() -> None:
    place: Array = np.array([4.0, -3.0], dtype=np.float32)
    optimiser = AdamW(0.1)
    for _ in range(200):
        optimiser.update([place], [2 * (place - 1)])
    assert place.tolist() == pytest.approx([1, 1], abs=0.05)
