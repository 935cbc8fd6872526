import asyncio
import gc
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from podium.core.errors import RequestRefused, Unavailable
from podium.workers.local import llama_server as serving
from podium.workers.local.llama_server import (
    SMALL_MODEL_BYTES,
    ModelServer,
    ModelSettings,
    SharedModel,
    shared_model,
)

READY = """
import json, os, sys
settings = json.loads(sys.stdin.readline())
print(json.dumps({"address": f"http://127.0.0.1:{os.getpid()}"}), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def child(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A program in place of llama.cpp's: it is ready at once, unless the test gives another."""
    program = tmp_path / "child.py"
    program.write_text(getattr(request, "param", READY), "utf-8")
    monkeypatch.setattr(serving, "CHILD", program)
    return program


def running(program: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("child", [program], indirect=True, ids=[""])


def settings(name: str = "a.gguf", slots: int = 4) -> ModelSettings:
    return ModelSettings(path=name, slots=slots)


def test_the_same_settings_are_the_same_model_and_others_another() -> None:
    one = shared_model(settings())
    assert shared_model(settings()) is one
    assert shared_model(settings("b.gguf")) is not one
    assert shared_model(settings(slots=1)) is not one


THREADS = """
import json, sys
settings = json.loads(sys.stdin.readline())
address = f"{settings['threads']} and {settings['reading_threads']}"
print(json.dumps({"address": address}), flush=True)
sys.stdin.read()
"""


@running(THREADS)
@pytest.mark.usefixtures("child")
@pytest.mark.parametrize(
    ("size", "threads", "message"),
    [
        (SMALL_MODEL_BYTES - 1, -1, f"1 and {os.cpu_count()}"),
        (SMALL_MODEL_BYTES - 1, 3, "3 and 3"),
        (SMALL_MODEL_BYTES, -1, "-1 and -1"),
    ],
)
async def test_a_small_model_uses_one_thread_by_default(
    size: int, threads: int, message: str, tmp_path: Path
) -> None:
    weights = tmp_path / "a.gguf"
    with weights.open("wb") as file:
        file.truncate(size)  # a hole, which takes no room
    model = SharedModel(ModelSettings(path=str(weights), threads=threads))
    assert (await model.serving()).address == message
    await model.close()


@pytest.mark.usefixtures("child")
async def test_concurrent_users_of_a_model_share_one_process() -> None:
    model = SharedModel(settings())
    first, second = await asyncio.gather(model.serving(), model.serving())
    assert first is second
    assert await model.serving() is first
    assert first.alive
    await model.close()
    assert not first.alive


@pytest.mark.usefixtures("child")
def test_a_model_may_be_used_from_one_event_loop_after_another() -> None:
    model = SharedModel(settings())
    first = asyncio.run(model.serving())
    second = asyncio.run(model.serving())
    assert first is second
    asyncio.run(model.close())


@pytest.mark.usefixtures("child")
async def test_the_last_user_to_leave_unloads_the_model() -> None:
    model = SharedModel(settings())
    model.acquire()
    model.acquire()
    server = await model.serving()
    await model.release()
    assert server.alive
    await model.release()
    assert not server.alive


@pytest.mark.usefixtures("child")
async def test_an_unused_model_ends_its_process() -> None:
    model = shared_model(settings("forgotten.gguf"))
    process = (await model.serving()).process
    await asyncio.sleep(0)  # the loop itself holds what it woke this test with
    del model
    gc.collect()
    assert process.wait(10) == 0


async def test_a_process_that_died_is_started_again(child: Path) -> None:
    model = SharedModel(settings())
    first = await model.serving()
    first.process.kill()
    first.process.wait()
    second = await model.serving()
    assert second is not first
    assert second.alive
    await model.close()


@pytest.mark.usefixtures("child")
async def test_adapters_named_before_the_first_call_are_loaded_with_the_model() -> None:
    model = SharedModel(settings())
    model.acquire("one.gguf")
    model.acquire("two.gguf")
    model.acquire("one.gguf")
    server = await model.serving("two.gguf")
    assert server.adapters == ("one.gguf", "two.gguf")
    assert await model.serving("one.gguf") is server
    assert await model.serving() is server
    await model.close()


@pytest.mark.usefixtures("child")
async def test_a_later_adapter_gets_a_new_process_and_the_old_one_lives_while_it_is_used() -> None:
    model = SharedModel(settings())
    old = await model.serving()
    process = old.process
    model.acquire("late.gguf")
    new = await model.serving("late.gguf")
    assert new.adapters == ("late.gguf",)
    assert old.alive
    del old
    assert process.poll() is not None
    assert new.alive
    await model.close()


@running("""print('{"error": "invalid magic characters"}')""")
async def test_a_model_that_cannot_be_loaded_is_refused_with_llamacpps_reason(child: Path) -> None:
    with pytest.raises(RequestRefused, match=r"cannot load a\.gguf: invalid magic characters"):
        await SharedModel(settings()).serving()


@running("import os; os.abort()")
async def test_a_crash_while_loading_is_unavailable_with_its_exit_code(child: Path) -> None:
    with pytest.raises(Unavailable, match=r"exit code -6 while loading a\.gguf"):
        await SharedModel(settings()).serving()


SLOW_THE_FIRST_TIME = (
    """
import pathlib, sys, time
mark = pathlib.Path(sys.argv[0] + ".loading")
if not mark.exists():
    mark.touch()
    time.sleep(20)
"""
    + READY
)


async def loading(model: SharedModel, child: Path) -> asyncio.Task[ModelServer]:
    """A call for which the model is being loaded."""
    call = asyncio.create_task(model.serving())
    async with asyncio.timeout(10):
        while not child.with_name("child.py.loading").exists():
            await asyncio.sleep(0.005)
    return call


@running(SLOW_THE_FIRST_TIME)
def test_a_call_cancelled_while_the_model_loads_leaves_at_once(child: Path) -> None:
    async def interrupted() -> None:
        call = await loading(SharedModel(settings()), child)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    begun = time.monotonic()
    asyncio.run(interrupted())  # which waits for the thread that was reading
    assert time.monotonic() - begun < 10


@running(SLOW_THE_FIRST_TIME)
async def test_a_second_waiter_gets_the_model_when_the_first_is_cancelled(child: Path) -> None:
    model = SharedModel(settings())
    first = await loading(model, child)
    second = asyncio.create_task(model.serving())
    first.cancel()
    async with asyncio.timeout(10):
        assert (await second).alive
    await model.close()


@running(READY + "while True: pass")
async def test_a_process_that_does_not_leave_is_killed(
    child: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "CLOSE_SECONDS", 0.01)
    model = SharedModel(settings())
    server = await model.serving()
    await model.close()
    assert server.process.returncode == -9


@pytest.mark.parametrize("ending", ["", "import os; os._exit(1)"])
@running(READY + "open(sys.argv[0] + '.left', 'w')")
def test_no_process_outlives_its_parent(child: Path, ending: str) -> None:
    program = (
        "import asyncio\n"
        "from pathlib import Path\n"
        "from podium.workers.local import llama_server as serving\n"
        f"serving.CHILD = Path({str(child)!r})\n"
        "model = serving.shared_model(serving.ModelSettings(path='a.gguf'))\n"
        "asyncio.run(model.serving(), debug=False)\n"  # or it tells of steps that took long
        f"{ending}\n"
    )
    parent = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert parent.stderr == ""
    left = child.with_name("child.py.left")
    deadline = time.monotonic() + 30
    while not left.exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert left.exists()
