"""A grader of your own: a function that says whether an answer is right."""

import asyncio

from podium import AsyncPodium, Task, grader


@grader
def is_short(answer: str) -> bool:
    return 0 < len(answer.split()) <= 20


@grader
def names_both(answer: str) -> bool:
    return all(word in answer.lower() for word in ("tea", "coffee"))


TASKS = (
    Task(id="short", question="Compare tea and coffee in 20 words.", grader=is_short),
    Task(id="both", question="Compare tea and coffee.", grader=names_both),
)


async def main() -> None:
    async with AsyncPodium() as podium:
        for task in TASKS:
            run = await podium.ask(task.question)
            print(f"{task.id}: {'right' if await task.grader(run.answer or '') else 'wrong'}")


asyncio.run(main())
