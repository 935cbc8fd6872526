"""Cap a run: it returns the best answer so far when its budget is spent."""

from podium import Budget, Podium

with Podium() as podium:
    run = podium.ask("Compare tea and coffee", budget=Budget(calls=2, seconds=60))
    print(f"{run.status} after {run.spent.calls} calls: {run.error or run.answer}")
