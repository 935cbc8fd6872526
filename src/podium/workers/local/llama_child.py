"""The process that runs one local model: llama.cpp's own server, on loopback.

Run as a program by `podium.local.serving`, never imported. It reads its settings as one line
of JSON, answers with one line (`{"address": …}` or `{"error": …}`), serves until its input ends,
as it does when the parent dies in any way, and then is gone at once.

It is a process of its own because the binding keeps Python's lock while it loads and unloads a
model, which would stop every other run of the parent, and because llama.cpp writes what it likes
to the terminal and ends its process on some faults.
"""

import json
import os
import re
import signal
import sys
import tempfile
from typing import Any, BinaryIO

ERRORS_ONLY = 1
"""llama.cpp's level of logging at which it still says why a model cannot be loaded."""

PROMPT_CACHE_MIB = 256
"""The most memory for prompts that were read before; llama.cpp itself would take 8 GiB. With
adapters there is none: llama.cpp does not note which adapter read a prompt, and would take what
one has read for another. What the slots hold it forgets when their adapter changes."""

SHARED_PROMPT = 0.5
"""With adapters, the share of a prompt that a slot must have read for it to go there although
another slot is older. llama.cpp would go by a tenth, and let a worker whose prompt only begins
like the conductor's take its slot and forget what is in it."""

IMPORT_REMEDY = "reinstall xllamacpp; on a bare Linux also the system's libgomp (libgomp1)"

LOG_PREFIX = re.compile(r"^[\d.]+ E ")


def main() -> None:
    """Load the model, say where it listens, and serve until the parent is gone."""
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
        parameters.slot_prompt_similarity = SHARED_PROMPT
        parameters.cache_ram_mib = 0
    parameters.api_keys = [settings["key"]]
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.ui = False
    parameters.endpoint_slots = False  # it would show every prompt
    parameters.verbosity = ERRORS_ONLY
    return xllamacpp.Server(parameters)


def _redirect(file: BinaryIO) -> None:
    """Send all that C++ code prints into the file."""
    for descriptor in (sys.stdout.fileno(), sys.stderr.fileno()):
        os.dup2(file.fileno(), descriptor)


def _reason(log: BinaryIO) -> str:
    """The first complaint in the log, without its time: those after it only pass it on."""
    log.seek(0)
    lines = log.read().decode(errors="replace").splitlines()
    return next((LOG_PREFIX.sub("", line).strip() for line in lines if line.strip()), "")


if __name__ == "__main__":
    main()
