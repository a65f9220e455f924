"""``python -m tests.faults``: disturb commands in every way, and count what becomes of them."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.harness import Plan, kinds, run_faults, table
from tests.faults.trial import VERDICTS
from tests.faults.work import COMMANDS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--faults", type=int, default=200, help="how many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, help="stop after so many")
    parser.add_argument("--kinds", help=f"by comma, of {', '.join(kinds(0))}")
    parser.add_argument("--commands", help=f"by semicolon, of {'; '.join(COMMANDS)}")
    parser.add_argument("--only", type=int, help="the fault of this number alone, to see it again")
    parser.add_argument("--pause", type=float, default=60.0, help="seconds of a SIGSTOP")
    parser.add_argument("--log", type=Path, help="JSON lines are appended; default: in the folder")
    parser.add_argument("--folder", type=Path, help="for everything; default: a temporary one")
    given = parser.parse_args()
    known = kinds(given.pause)
    names = given.kinds.split(",") if given.kinds else list(known)
    commands = given.commands.split(";") if given.commands else list(COMMANDS)
    for name, all_of_them in ((names, known), (commands, COMMANDS)):
        if unknown := sorted(set(name) - set(all_of_them)):
            parser.error(f"not known: {', '.join(unknown)}")
    names = [name for name in names if set(known[name].commands) & set(commands)]
    plan = Plan(known, names, commands, given.seed)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="croma-faults-"))
    folder = folder / f"run-{os.getpid()}"
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    log = given.log or folder.parent / "faults.jsonl"
    begun = time.monotonic()
    numbers = range(given.faults) if given.only is None else [given.only]
    with log.open("a", encoding="utf-8") as lines:
        found = run_faults(
            plan, folder, numbers, lines, lambda text: print(text, file=sys.stderr, flush=True),
            minutes=given.minutes,
        )  # fmt: skip
    print(table(plan, found))
    print(f"\nseed {given.seed}, {(time.monotonic() - begun) / 60:.1f} minutes", file=sys.stderr)
    if not any(verdict in VERDICTS for _, verdict in found):
        print("not one fault was injected", file=sys.stderr)
        return 1
    if any(verdict == "WRONG" for _, verdict in found):
        print(f"what went wrong is in {folder}, and {log} says how", file=sys.stderr)
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
