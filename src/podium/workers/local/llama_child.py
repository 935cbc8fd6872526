"""The process that runs one local model: llama.cpp's own server, on loopback.

Run as a program by `podium.workers.local.llama_server`, never imported. It reads its settings as
one line of JSON, answers with one line (`{"address": …}` or `{"error": …}`) and serves until its
input ends, which also happens if the parent dies. It is a separate process because the binding
holds Python's lock while it loads or unloads a model, and because llama.cpp prints to the terminal.
"""

import json
import os
import re
import signal
import sys
import tempfile
from typing import Any, BinaryIO

ERRORS_ONLY = 1
"""llama.cpp's log level that still explains why a model cannot be loaded."""

PROMPT_CACHE_MIB = 256
"""Memory for the prompt cache; llama.cpp's default is 8 GiB.

With adapters there is none: llama.cpp does not record which adapter read a prompt. It clears a slot
when its adapter changes.
"""

MIN_SLOT_SIMILARITY = 0.5
"""With adapters, the share of a prompt that a slot must have in common to be reused.

llama.cpp's default of a tenth would let a worker whose prompt only begins like the conductor's take
its slot.
"""

IMPORT_REMEDY = "reinstall xllamacpp; on a bare Linux also the system's libgomp (libgomp1)"

LOG_PREFIX = re.compile(r"^[\d.]+ E ")


def main() -> None:
    """Load the model, print its address, and serve until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    settings = json.loads(sys.stdin.readline())
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    with tempfile.TemporaryFile() as log, open(os.devnull, "wb") as nowhere:
        _redirect(log)
        try:
            server = _load(settings)
        except ImportError as error:
            answer = {"error": f"xllamacpp cannot be imported: {error}; {IMPORT_REMEDY}"}
        except Exception as error:  # noqa: BLE001 - the parent says what this process cannot
            answer = {"error": _reason(log) or str(error) or type(error).__name__}
        else:
            answer = {"address": server.listening_address}
        _redirect(nowhere)
    answers.write(json.dumps(answer) + "\n")
    answers.flush()
    sys.stdin.read()
    os._exit(0)


def _load(settings: dict[str, Any]) -> Any:
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = settings["path"]
    parameters.model_alias = {os.path.basename(settings["path"])}
    parameters.n_ctx = settings["context"]
    parameters.n_parallel = settings["slots"]
    parameters.kv_unified = True  # one busy slot may use what the idle ones leave
    parameters.cache_ram_mib = PROMPT_CACHE_MIB
    parameters.chat_template = settings["template"]
    parameters.n_gpu_layers = settings["gpu_layers"]
    parameters.cpuparams.n_threads = settings["threads"]
    parameters.cpuparams_batch.n_threads = settings["reading_threads"]
    parameters.lora_init_without_apply = True
    parameters.lora_adapters = [
        # A scale of nothing: requests that name no adapter get none.
        xllamacpp.CommonAdapterLoraInfo(path, 0.0)
        for path in settings["adapters"]
    ]
    if settings["adapters"]:
        # A slot more for each, so that each may keep what it has read.
        parameters.n_parallel += len(settings["adapters"])
        parameters.slot_prompt_similarity = MIN_SLOT_SIMILARITY
        parameters.cache_ram_mib = 0
    parameters.api_keys = [settings["key"]]
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.ui = False
    parameters.endpoint_slots = False  # it would show every prompt
    parameters.verbosity = ERRORS_ONLY
    return xllamacpp.Server(parameters)


def _redirect(file: BinaryIO) -> None:
    for descriptor in (sys.stdout.fileno(), sys.stderr.fileno()):
        os.dup2(file.fileno(), descriptor)


def _reason(log: BinaryIO) -> str:
    """Return the first error in the log, without its time."""
    log.seek(0)
    lines = log.read().decode(errors="replace").splitlines()
    return next((LOG_PREFIX.sub("", line).strip() for line in lines if line.strip()), "")


if __name__ == "__main__":
    main()
