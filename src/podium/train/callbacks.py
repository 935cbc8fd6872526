"""What both ways of training tell their trainer to do at the end of a step."""

from __future__ import annotations

from typing import Any

from accelerate.utils import gather_object
from transformers import PrinterCallback, TrainerCallback

from podium.train.logbook import Logbook


class StopInTime(TrainerCallback):
    """Stops with a checkpoint once the minutes are over, all processes after the same step."""

    def __init__(self, minutes: float | None, logbook: Logbook) -> None:
        self._minutes = minutes
        self._logbook = logbook

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """Look at the clock; what one process sees counts for all."""
        if self._minutes is None:
            return control
        is_over = self._logbook.seconds > self._minutes * 60
        if any(gather_object([is_over])):
            control.should_save = True
            control.should_training_stop = True
        return control


def silence(trainer: Any) -> None:
    """Let the logbook alone tell how it goes."""
    trainer.remove_callback(PrinterCallback)
