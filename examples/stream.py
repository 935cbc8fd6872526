"""Print the answer while it is written, and say when each step is done."""

from podium import Podium
from podium.core.events import StepDelta, StepDone

with Podium() as podium:
    for event in podium.stream("Compare tea and coffee"):
        match event:
            case StepDelta(text=text):
                print(text, end="", flush=True)
            case StepDone(step=step):
                print(f"\n[{step.worker}: {step.status}]")
