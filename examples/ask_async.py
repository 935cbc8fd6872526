"""Ask several questions at once."""

import asyncio

from podium import AsyncPodium

QUESTIONS = ("Compare tea and coffee", "Compare trains and cars", "What is the capital of Japan?")


async def main() -> None:
    async with AsyncPodium() as podium:
        runs = await asyncio.gather(*(podium.ask(question) for question in QUESTIONS))
    for question, run in zip(QUESTIONS, runs, strict=True):
        print(f"{question}: {run.answer}")


asyncio.run(main())
