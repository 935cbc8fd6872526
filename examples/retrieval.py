"""Retrieval: one worker finds passages, the next answers from them and from nothing else.

The writer is a script, so that this runs without a model: put a model's worker in its place.
"""

from podium import Podium, Reply, Request, ScriptedWorker, Step, Worker, WorkerProfile, Workflow

PASSAGES = (
    "The warranty of the kettle is three years.",
    "The kettle holds 1.7 litres.",
    "Returns are free for thirty days.",
)
QUESTION = "How long is the warranty of the kettle?"


class Retriever(Worker):
    """Finds the passage that shares the most words with the question."""

    profile = WorkerProfile(name="retriever", description="finds passages of our manuals")

    async def reply(self, request: Request) -> Reply:
        words = set(request.messages[-1].text.lower().split())
        return Reply(max(PASSAGES, key=lambda text: len(words & set(text.lower().split()))))


writer = ScriptedWorker(
    "writer", lambda request: next(text for text in PASSAGES if text in request.text)
)
plan = Workflow(
    (Step("retriever", QUESTION), Step("writer", "Answer from the passage alone.", (0,)))
)
with Podium([Retriever(), writer]) as podium:
    print(podium.run(plan, QUESTION).answer)
