"""What both ways of training tell their trainer: when to stop, and to leave the words to us."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from accelerate.utils import gather_object
from transformers import PrinterCallback, TrainerCallback
from transformers.utils import logging

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


@contextmanager
def silence(trainer: Any) -> Iterator[None]:
    """For as long as this lasts, let the logbook alone tell how it goes."""
    trainer.remove_callback(PrinterCallback)
    usual = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(usual)
