"""Numbers that cannot drift: `python -m tests.drift capture | check | matrix`.

`capture` computes the table anew (a change of numbers that is meant; say so in the changelog),
`check` compares in this process, `matrix` in every environment, two at a time.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.drift import child, matrix


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.drift", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("capture", help="write the table")
    check = commands.add_parser("check", help="compare with the table in this process")
    check.add_argument("--json", action="store_true", help="print what the matrix reads")
    several = commands.add_parser("matrix", help="compare in every environment")
    several.add_argument("--only", default="", help="environments whose name has this in it")
    several.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE",
        help="one environment with these variables instead of all; repeatable",
    )  # fmt: skip
    several.add_argument("--at-once", type=int, default=2, help="child processes; default 2")
    several.add_argument("--folder", type=Path, default=Path("build/drift"), help="what is made")
    asked = parser.parse_args()
    if asked.command == "capture":
        return child.capture_table()
    if asked.command == "check":
        return child.check_here(as_json=asked.json)
    return matrix.run(asked.folder, only=asked.only, settings=asked.set, at_once=asked.at_once)


if __name__ == "__main__":
    sys.exit(main())
