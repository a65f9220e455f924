"""One fault: what was done, what became of it, and whether that is right."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.faults.content import REFUSED, look
from tests.faults.forks import Child, Ended, ask, command
from tests.faults.work import Bench, Command

Verdict = Literal["right on rerun", "refused clearly", "unaffected", "WRONG"]
VERDICTS: tuple[Verdict, ...] = ("right on rerun", "refused clearly", "unaffected", "WRONG")


@dataclass(frozen=True)
class Outcome:
    """What became of a fault.

    Attributes
    ----------
    verdict
        See :data:`VERDICTS`.
    how
        What exactly was done, to do it again.
    said
        What the command said, or what is wrong.
    """

    verdict: Verdict
    how: str
    said: str = ""


class Skipped(Exception):
    """This fault cannot be injected here; says why."""


class Wrong(Exception):
    """A wrong or half result, a traceback, or a hang."""


class Trial:
    """Folders of one fault, and the questions that are asked after it.

    Parameters
    ----------
    bench
        Inputs and clean runs.
    one
        The command.
    rng
        Decides where and when.
    folder
        Empty; of this fault alone.
    """

    def __init__(self, bench: Bench, one: Command, rng: random.Random, folder: Path) -> None:
        self.bench, self.one, self.rng, self.folder = bench, one, rng, folder
        self.clean = bench.clean[one.name]
        self.out, self.log = folder / "out", folder / "log"
        self.inputs = bench.inputs
        for path in (self.out, self.log):
            path.mkdir(parents=True, mode=0o777)
            path.chmod(0o777)

    def own_inputs(self) -> Path:
        """Copy what the command reads, so that it can be damaged."""
        self.inputs = self.folder / "in"
        shutil.copytree(self.bench.inputs, self.inputs)
        return self.inputs

    def start(
        self, *more: str, before: Callable[[], object] = lambda: None, out: Path | None = None
    ) -> Child:
        """Start the command; `before` is called in its process first."""
        arguments = [*self.bench.arguments(self.one, out or self.out, self.inputs), *more]

        def run() -> None:
            before()
            command(arguments)

        return Child(run, self.log)

    def run(self, *more: str, before: Callable[[], object] = lambda: None) -> Ended:
        """Run the command to its end."""
        return self.start(*more, before=before).end()

    # what lies there

    def standing(self, out: Path | None = None) -> dict[str, dict[str, str]]:
        """What lies at the places of the outputs."""
        place = out or self.out
        return {
            output: ask(lambda path=place / output: look(path), self.log)
            for output in self.one.outputs
        }

    def compare(self, *, whole: bool) -> None:
        """Compare the outputs with those of a clean run, bit for bit.

        Parameters
        ----------
        whole
            Whether all of them have to be there. Otherwise one that is absent, or that is refused
            when it is opened, is as good.

        Raises
        ------
        Wrong
            Something opens and is not what a clean run leaves; or something is missing.
        """
        for output, found in self.standing().items():
            expected = self.clean.content[output]
            for name, text in found.items():
                if text.startswith(REFUSED):
                    if whole:
                        raise Wrong(f"{output} was said to be done, and is refused: {text}")
                elif text != expected.get(name):
                    raise Wrong(f"{output}/{name} opens and is not what a clean run leaves")
            if whole and found.keys() != expected.keys():
                lacking = sorted(expected.keys() - found.keys())
                raise Wrong(f"{output}: was said to be done, and lacks {lacking}")

    # how it went

    def settle(self, ended: Ended) -> bool:
        """Judge a run that met a fault; says whether it has done all of its work.

        Raises
        ------
        Wrong
            Half an output, one that differs, or no clear refusal.
        """
        if ended.code == 0:
            self.compare(whole=True)
            return True
        self.compare(whole=False)
        if not ended.killed and (complaint := ended.complaint()):
            raise Wrong(complaint)
        return False

    def again(self, *, may_remove: bool = False) -> Ended:
        """Run the command again, without a fault; replace what is in the way, as it says.

        Parameters
        ----------
        may_remove
            Whether what lies there may be so damaged that the command leaves it alone.

        Raises
        ------
        Wrong
            It does not come to the right result, even so.
        """
        ended = self.run()
        if ended.code == 0:
            self.compare(whole=True)
            return ended
        if complaint := ended.complaint():
            raise Wrong(f"on the rerun: {complaint}")
        self.compare(whole=False)
        forced = self.run("--overwrite")
        if forced.code != 0 and may_remove and not forced.complaint():
            for output in self.one.outputs:
                if (self.out / output).is_dir():
                    shutil.rmtree(self.out / output)
                else:
                    (self.out / output).unlink(missing_ok=True)
            forced = self.run()
        if forced.code != 0:
            raise Wrong(f"no way on: {ended.err.strip()!r}, then {forced.err.strip()!r}")
        self.compare(whole=True)
        return ended

    def after(self, ended: Ended, how: str) -> Outcome:
        """Judge a run that met a fault, and the one after it."""
        done = self.settle(ended)
        again = self.again()
        told = (ended.err if not ended.killed and not done else again.err).strip()
        if done:
            return Outcome("unaffected", how)
        if not ended.killed or again.code != 0:
            return Outcome("refused clearly", how, told)
        return Outcome("right on rerun", how, told)

    def leftovers(self) -> list[str]:
        """What lies beside the outputs, in the end."""
        return sorted(p.name for p in self.out.iterdir() if p.name not in self.one.outputs)
