"""A browser for the tests that open a report: found, installed, or missed with a reason."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_browser() -> str:
    """Path of a Chromium, installed by apt-get where there is none and we may.

    Where that is not possible the test is skipped with the reason; in CI (`CI=true`) it fails.
    """
    found = _found()
    if found is None and shutil.which("apt-get"):
        _install()
        found = _found()
    if found is None:
        reason = f"no browser: none of {', '.join(NAMES)}, and apt-get could not install chromium"
        if os.environ.get("CI", "").lower() in ("1", "true"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def _found() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def _install() -> None:
    if os.geteuid() == 0:
        prefix = []
    elif shutil.which("sudo") and _runs(["sudo", "-n", "true"]):
        prefix = ["sudo", "-n"]
    else:
        return
    environment = ["env", "DEBIAN_FRONTEND=noninteractive"]
    for command in (
        ["apt-get", "update"],
        ["apt-get", "install", "-y", "--no-install-recommends", "chromium", "fonts-dejavu-core"],
    ):
        if not _runs([*prefix, *environment, *command]):
            return


def _runs(command: list[str]) -> bool:
    done = subprocess.run(command, capture_output=True, check=False, timeout=900)
    return done.returncode == 0
