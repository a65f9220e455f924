"""One step of a case of `load`, in a process of its own: through the API, or the command line."""

from __future__ import annotations

import contextlib
import io
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

from benchmarks import child
from benchmarks.load_cases import CASES, PROBE, Case, write

__all__ = ["make", "run"]

N_DRAWS = 200

_EXIT = {2: "refused", 3: "refused", 4: "refused", 5: "a metric failed"}


def make(meter: child.Meter, case: str, folder: str) -> dict[str, Any]:
    """Write the files of a case."""
    write(CASES[case].shape, Path(folder))
    return {}


def run(meter: child.Meter, case: str, step: str, face: str, folder: str) -> dict[str, Any]:
    """Run one step and tell what came of it.

    Returns
    -------
    dict
        ``outcome`` (``works``, ``refused: ...``, ``CRASH ...``), ``seconds``, and in bytes ``peak``
        above what the process held once its libraries were loaded, ``whole`` above a bare Python,
        ``planned`` (None where no plan tells), which counts like ``whole``; ``longest_line`` of
        what was said, in characters.
    """
    one, place = CASES[case], Path(folder)
    planned = _planned(one, step, place)
    _load_libraries()
    meter.peak()
    loaded = meter.peak()
    started = time.perf_counter()
    said: list[str] = []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        if face == "api":
            outcome = _through_api(one, step, place)
        else:
            outcome, said = _through_cli(one, step, place)
    seconds = time.perf_counter() - started
    whole = meter.peak()
    longest = max(map(len, [outcome, *said, *(str(w.message) for w in warned)]))
    return {
        "outcome": outcome, "seconds": seconds, "peak": whole - loaded, "whole": whole,
        "planned": planned, "longest_line": longest,
    }  # fmt: skip


def _load_libraries() -> None:
    import dask.array  # noqa: F401
    import numba  # noqa: F401
    import pandas  # noqa: F401
    import xarray  # noqa: F401
    import zarr  # noqa: F401

    import croma_dask  # noqa: F401


def stores(one: Case, place: Path) -> list[str]:
    """Places of the stores of a case."""
    if one.models == 1:
        return [str(place / "cohort.zarr")]
    return [str(place / "models" / f"model-{i:04d}.zarr") for i in range(one.models)]


def _planned(one: Case, step: str, place: Path) -> int | None:
    """What the plan says of a step, in this process and before anything is measured."""
    import croma_dask as cd

    names = stores(one, place)
    cohort = names[0] if one.models == 1 else names
    with warnings.catch_warnings(), contextlib.suppress(cd.CromaDaskError):
        warnings.simplefilter("ignore")
        if step == "score":
            return int(cd.plan(cohort, confounder="center", **_scoring(one)).peak_memory)
        if step == "benchmark":
            plan = cd.plan_embedding_benchmark(cohort, label="label", batch="center")
            return int(plan.peak_memory)
        if step == "probe":
            from croma_dask.probe.cohorts import plan_probe_sweep

            return int(plan_probe_sweep(cohort, **_probing(one)).peak)
    return None


def _scoring(one: Case) -> dict[str, Any]:
    return dict(one.score)


def _probing(one: Case) -> dict[str, Any]:
    from croma_dask.probe.linear import linear_schedule

    return {
        "confounder": "center", "iterations": PROBE["iterations"],
        "schedule": linear_schedule(
            one.shape.levels, one.shape.labels, PROBE["slides"], PROBE["splits"]
        ),
        "validation_fraction": PROBE["validation_fraction"],
    }  # fmt: skip


def _through_api(one: Case, step: str, place: Path) -> str:
    import croma_dask as cd

    try:
        _CALLS[step](cd, one, place)
    except cd.CromaDaskError as err:
        return f"refused: {err}"
    except Exception as err:  # noqa: BLE001 - a crash is what is looked for
        last = traceback.extract_tb(err.__traceback__)[-1]
        return f"CRASH {type(err).__name__}: {err} ({Path(last.filename).name}:{last.lineno})"
    return "works"


def _cohort(one: Case, place: Path) -> Any:
    names = stores(one, place)
    return names[0] if one.models == 1 else names


def _ingest(cd: Any, one: Case, place: Path) -> None:
    for name in stores(one, place):
        Path(name).parent.mkdir(exist_ok=True)
        cd.ingest(place / "features.npy", place / "manifest.csv", name, overwrite=True)


def _plan(cd: Any, one: Case, place: Path) -> None:
    str(cd.plan(_cohort(one, place), confounder="center", **_scoring(one)))


def _score(cd: Any, one: Case, place: Path) -> None:
    from croma_dask.results import save

    found = cd.score(_cohort(one, place), confounder="center", **_scoring(one))
    repr(found)
    save(found, place / "result.zarr", overwrite=True)


def _bootstrap(cd: Any, one: Case, place: Path) -> None:
    cd.bootstrap(cd.open_result(place / "result.zarr"), n_draws=N_DRAWS)


def _breakdown(cd: Any, one: Case, place: Path) -> None:
    result = cd.open_result(place / "result.zarr")
    cd.breakdown(result, one.by)
    cd.worst_groups(result, 5)


def _report(cd: Any, one: Case, place: Path) -> None:
    cd.report(place / "result.zarr", place / "report.html", n_draws=N_DRAWS, overwrite=True)


def _probe(cd: Any, one: Case, place: Path) -> None:
    from croma_dask.probe.cohorts import sweep_cohort

    sweep_cohort(_cohort(one, place), **_probing(one))


def _benchmark(cd: Any, one: Case, place: Path) -> None:
    cd.embedding_benchmark(_cohort(one, place), label="label", batch="center")


_CALLS = {
    "ingest": _ingest, "plan": _plan, "score": _score, "bootstrap": _bootstrap,
    "breakdown": _breakdown, "report": _report, "probe": _probe, "benchmark": _benchmark,
}  # fmt: skip


def command(one: Case, step: str, place: Path) -> list[str]:
    """Words of the command of a step."""
    names = stores(one, place)
    result = str(place / "result.zarr")
    scoring: list[str] = ["--confounder", "center"]
    for name, value in one.score.items():
        option = {"k_candidates": "--k"}.get(name, f"--{name}")
        several = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        scoring += [option, several]
    return {
        "ingest": ["ingest", str(place / "features.npy"), str(place / "manifest.csv"), names[0],
                   "--overwrite"],
        "plan": ["plan", *names, *scoring],
        "score": ["score", *names, *scoring, "--out", result, "--overwrite"],
        "bootstrap": ["bootstrap", result, "--draws", str(N_DRAWS)],
        "breakdown": ["breakdown", result, "--by", one.by],
        "report": ["report", result, "--out", str(place / "report.html"), "--overwrite",
                   "--draws", str(N_DRAWS)],
        "probe": ["probe", names[0], "--confounder", "center", "--schedule",
                  f"linear:{PROBE['slides']}:{PROBE['splits']}",
                  "--iterations", str(PROBE["iterations"]),
                  "--validation-fraction", str(PROBE["validation_fraction"])],
        "benchmark": ["benchmark", names[0], "--label-key", "label", "--batch-key", "center",
                      "--output-dir", str(place / "tables"), "--force"],
    }[step]  # fmt: skip


def _through_cli(one: Case, step: str, place: Path) -> tuple[str, list[str]]:
    from croma_dask.cli import main

    out, err = io.StringIO(), io.StringIO()
    code: Any = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(command(one, step, place), prog_name="croma-dask")
        except SystemExit as ended:
            code = ended.code
        except Exception as problem:  # noqa: BLE001 - as above
            last = traceback.extract_tb(problem.__traceback__)[-1]
            where = f"{Path(last.filename).name}:{last.lineno}"
            return f"CRASH {type(problem).__name__}: {problem} ({where})", []
    lines = [*out.getvalue().splitlines(), *err.getvalue().splitlines()]
    if code in (0, None):
        return "works", lines
    told = [line for line in err.getvalue().splitlines() if line.startswith("error: ")]
    message = told[-1].removeprefix("error: ") if told else err.getvalue().strip()
    return f"{_EXIT.get(code, f'CRASH exit {code}')}: {message}", lines
