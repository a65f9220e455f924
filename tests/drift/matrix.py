"""Run the comparison in every environment, and print what was found as a table."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.drift.environments import Environment, all_environments, contradictions, processor
from tests.drift.newest import NEWEST, CannotBeHad, newest_python

_ROOT = Path(__file__).resolve().parents[2]
_LOCALES = "/usr/share/i18n/locales"
_APT = threading.Lock()
_HEAD = "| environment | Python | C library | numpy | OpenBLAS | exact arrays | others | |"


class NotMade(RuntimeError):
    """An environment could not be made."""


def run(folder: Path, *, only: str, settings: list[str], at_once: int) -> int:
    """Run all environments; 1 where numbers drift or an environment could not be made.

    What this processor cannot run is named and left out: nothing else is.
    """
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if settings:
        asked = [Environment(" ".join(settings), dict(text.split("=", 1) for text in settings))]
    else:
        asked = [e for e in all_environments() if only.lower() in e.name.lower()]
    if not asked:
        print(f"no environment has {only!r} in its name", file=sys.stderr)
        return 1
    flags = processor()
    able = [e for e in asked if set(e.needs) <= flags]
    print(f"{_HEAD}\n|---|---|---|---|---|---|---|---|", flush=True)
    bad = False
    with ThreadPoolExecutor(at_once) as pool:
        for told, off in pool.map(lambda e: _one(e, folder), able):
            print(told, flush=True)
            bad |= bool(off)
            for line in off:
                print(f"    {line}", file=sys.stderr, flush=True)
    for one in asked:
        if one not in able:
            lacks = ", ".join(sorted(set(one.needs) - flags))
            print(f"| {one.name} | | | | | | | not run: this processor has no {lacks} |")
    if bad:
        print("numbers drift, or an environment could not be made: see above", file=sys.stderr)
    return int(bad)


def _one(environment: Environment, folder: Path) -> tuple[str, list[str]]:
    """Run one; returns its line of the table, and what is wrong."""
    try:
        seen = _seen(environment, folder)
    except (NotMade, CannotBeHad) as err:
        return f"| {environment.name} | | | | | | | **not made** |", [f"{environment.name}: {err}"]
    off = [f"{environment.name}: {one}" for one in seen["off"]]
    off += [
        f"{environment.name} was not what it was to be: {wrong}"
        for wrong in contradictions(environment, seen, NEWEST)
    ]
    facts = (
        environment.name, seen["python"], seen["libc"], seen["numpy"], ", ".join(seen["blas"]),
        f"{seen['exact']} the same bits", f"{seen['others']} within digits",
        f"**{len(off)} off**" if off else "same",
    )  # fmt: skip
    return f"| {' | '.join(map(str, facts))} |", off


def _seen(environment: Environment, folder: Path) -> dict[str, Any]:
    python: str | Path = sys.executable
    environ = {**os.environ, "PYTHONHASHSEED": "random", **environment.variables}
    path = [str(_ROOT)]
    if environment.core:
        environ["OPENBLAS_CORETYPE"] = environment.core
    if environment.newest:
        python = newest_python(folder / f"python{NEWEST}")
    if environment.numpy:
        path.insert(0, str(_numpy(folder / f"numpy-{environment.numpy}", environment.numpy)))
    if environment.locale:
        environ |= {"LC_ALL": environment.locale, "LANG": environment.locale}
        if environment.locale != "C":
            environ["LOCPATH"] = str(_locale(folder / "locales", environment.locale))
    environ["PYTHONPATH"] = os.pathsep.join(path)
    command = [str(python), "-m", "tests.drift", "check", "--json"]
    done = subprocess.run(
        command, cwd=_ROOT, env=environ, stdin=subprocess.DEVNULL, capture_output=True,
        encoding="utf-8", errors="replace",
    )  # fmt: skip
    lines = done.stdout.strip().splitlines()
    try:
        return dict(json.loads(lines[-1]))
    except (IndexError, ValueError):
        last = " | ".join(done.stderr.strip().splitlines()[-4:])
        raise NotMade(f"the child ended with {done.returncode}: {last}") from None


def _numpy(place: Path, minor: str) -> Path:
    """Lay another numpy over that of this environment."""
    if not list(place.glob("numpy-*.dist-info")):
        shutil.rmtree(place, ignore_errors=True)
        _make(
            sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install",
            "--no-deps", "--only-binary=:all:", "--target", str(place), f"numpy=={minor}.*",
        )  # fmt: skip
    return place


def _locale(place: Path, name: str) -> Path:
    """Compile a locale into a folder of ours."""
    # One at a time: apt is locked while it installs what both need.
    with _APT:
        if (place / name).is_dir():
            return place
        if not os.path.isdir(_LOCALES):
            if shutil.which("apt-get") is None or os.geteuid() != 0:
                raise NotMade(f"there is no {_LOCALES}: install the package locales")
            _make("apt-get", "update")
            _make("apt-get", "install", "--yes", "--no-install-recommends", "locales")
        place.mkdir(exist_ok=True)
        source, _, charset = name.partition(".")
        partial = place / f".{name}"
        shutil.rmtree(partial, ignore_errors=True)
        _make("localedef", "--inputfile", source, "--charmap", charset, str(partial))
        partial.rename(place / name)
        return place


def _make(*command: str) -> None:
    done = subprocess.run(
        command, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        last = " | ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
        raise NotMade(f"{' '.join(command[:3])} ... failed: {last}")
