"""A worker of your own: any program can be one."""

from podium import Podium, Reply, Request, Worker, WorkerProfile


class WordCounter(Worker):
    """Counts the words of the last message."""

    profile = WorkerProfile(name="counter", description="counts words")

    async def reply(self, request: Request) -> Reply:
        return Reply(f"{len(request.messages[-1].text.split())} words")


with Podium([WordCounter()], conductor="router") as podium:
    print(podium.ask("How many words does this sentence have?").answer)
