"""Ask a question, and see who answered and what it cost.

PODIUM_POOL=scripted python examples/ask.py    # without PODIUM_POOL: your own configuration
"""

from podium import Podium

with Podium() as podium:
    run = podium.ask("Compare tea and coffee")
    print(run.answer)
    for step in run.steps:
        print(f"{step.worker}: {step.status}")
    print(f"{run.status}, {run.cost_usd} USD")
