"""What a notebook shows: tables of results, cohorts and plans, and progress in place."""

from __future__ import annotations

import html
import sys
import threading
import time
from collections.abc import Callable
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import croma_dask as cd
from croma_dask import markup
from croma_dask.cohort import view
from croma_dask.kinds import kind_of
from croma_dask.progress import Progress
from tests.faces.conftest import make_cohort

NASTY = '<script>alert("x")</script>&amp;'


class Page(HTMLParser):
    """Text of the cells, and every element; fails on what is not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.rows: list[list[str]] = []
        self.words = ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {f"{name}={value}" for name, value in attrs}
        if tag == "br":
            return
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def never(block: Any) -> Any:
    """A task that must not run."""
    raise AssertionError("values along sample were computed")


def guarded(dataset: xr.Dataset) -> xr.Dataset:
    """The same with everything along `sample` lazy, and forbidden."""
    along = {
        name: (variable.dims, da.zeros(variable.shape, chunks=50, dtype=variable.dtype)
               .map_blocks(never, dtype=variable.dtype, meta=np.empty((0,) * variable.ndim)))
        for name, variable in dataset.variables.items() if "sample" in variable.dims
    }  # fmt: skip
    coords = {name: along.pop(name) for name in list(along) if name in dataset.coords}
    return dataset.assign(along).assign_coords(coords)


def guarded_tree(tree: xr.DataTree) -> xr.DataTree:
    found = xr.DataTree.from_dict({n: guarded(c.to_dataset()) for n, c in tree.children.items()})
    found.attrs = tree.attrs
    return found


# Results --------------------------------------------------------------------------------------


def test_result__is_shown_with_the_numbers_it_has(store: str, scored: Callable) -> None:
    tree = scored(store)
    page = Page(tree.croma._repr_html_())
    head, *rows = page.rows
    assert head[:3] == ["metric", "at", "value"]
    assert [row[0] for row in rows] == ["RI", "MaRI", "CRoMa", "CRoMa"]
    croma = tree["CRoMa"]
    for at, m in enumerate((1, 3)):
        shown = dict(zip(head, rows[2 + at], strict=True))
        assert shown["at"] == f"m = {m}"
        for title, name in (("value", "value"), ("LTM", "ltm_alpha"), ("F(0)", "f0")):
            assert shown[title] == f"{float(croma[name].sel(m=m)):.4f}"
    assert rows[0][-1] == "", "RI has no F(0)"
    assert "160 of 160 samples" in page.words
    assert "'center'" in page.words


def test_result__text_says_the_same(store: str, scored: Callable) -> None:
    tree = scored(store)
    text = repr(tree.croma)
    assert cd.__version__ in text
    assert tree.croma.summary() in text
    one = repr(tree["RI"].to_dataset().croma)
    assert "RI" in one
    assert "CRoMa" not in one


def test_result__nothing_along_sample_is_read(store: str, scored: Callable) -> None:
    tree = scored(store)
    lazy = guarded_tree(tree)
    with pytest.raises(AssertionError, match="along sample"):
        lazy["CRoMa"]["sample_values"].compute()
    assert lazy.croma._repr_html_() == tree.croma._repr_html_()
    assert repr(lazy.croma) == repr(tree.croma)
    assert lazy["RI"].to_dataset().croma._repr_html_()


def test_result__warnings_are_told(store: str, scored: Callable) -> None:
    tree = scored(store)
    assert "support" not in Page(tree.croma._repr_html_()).words.split("F(0)", 1)[1]
    croma = tree["CRoMa"].to_dataset()
    croma["support"] = croma["support"] * 0.75
    croma.attrs |= {"index": "ivf", "recall": 0.9371, "n_zero_rows": 12}
    for shown in (Page(croma.croma._repr_html_()).words, repr(croma.croma)):
        assert "support 0.7500" in shown
        assert "approximate (ivf; recall at least 0.937)" in shown
        assert "12 rows of zeros" in shown


def test_result__names_are_escaped(store: str, scored: Callable) -> None:
    tree = scored(store)
    tree.attrs |= {"dataset": NASTY, "label_column": NASTY, "confounder_column": NASTY}
    shown = tree.croma._repr_html_()
    page = Page(shown)
    assert page.names == {"div", "strong", "table", "thead", "tbody", "tr", "th", "td"}
    assert NASTY in page.words
    assert "color" not in shown, "the page's own colours serve light and dark"


@pytest.fixture(scope="module")
def panel(store: str, tmp_path_factory: pytest.TempPathFactory) -> xr.DataTree:
    other = tmp_path_factory.mktemp("other") / "cohort.zarr"
    cd.write_cohort(other, make_cohort(seed=9)[0], make_cohort()[1])
    cohorts = {"<b>one</b>": store, "two": other}
    return cd.score(cohorts, confounder="center", k_candidates=(15, 21), m=(1, 3))


def test_panel__has_a_row_for_every_model(panel: xr.DataTree) -> None:
    page = Page(panel.croma._repr_html_())
    head, *rows = page.rows
    assert head[:2] == ["metric", "model"]
    assert [row[1] for row in rows] == ["<b>one</b>", "two"] * 4
    assert [row[2] for row in rows[-4:]] == ["m = 1", "m = 1", "m = 3", "m = 3"]
    at = head.index("value")
    expected = panel["CRoMa"]["value"].transpose("m", "model").values.ravel()
    assert [row[at] for row in rows[-4:]] == [f"{v:.4f}" for v in expected]
    assert "2 models" in page.words
    assert "<b>one</b>" in repr(panel.croma)


def test_panel__nothing_along_sample_is_read(panel: xr.DataTree) -> None:
    lazy = guarded_tree(panel)
    assert lazy.croma._repr_html_() == panel.croma._repr_html_()
    assert repr(lazy.croma) == repr(panel.croma)


def test_bootstrap__is_shown_as_intervals(store: str, scored: Callable, panel: xr.DataTree) -> None:
    found = scored(store)["RI"].to_dataset().croma.bootstrap(n_draws=20, seed=3, level=0.9)
    ri = found["RI"] if found.children else found
    interval = f"{float(ri['value_low']):.4f} to {float(ri['value_high']):.4f}"
    page = Page(found.croma._repr_html_())
    assert page.rows[1] == ["RI", "value", f"{float(ri['value']):.4f}", interval]
    for shown in (page.words, repr(found.croma)):
        assert "90 % intervals from 20 draws of 80 groups by 'group_id' (seed 3)" in shown
        assert interval in shown
    page = Page(panel.croma.bootstrap(n_draws=20).croma._repr_html_())
    assert page.rows[0] == ["metric", "model", "of", "value", "interval"]
    assert page.rows[2][:3] == ["RI", "two", "value"]
    assert [row[2] for row in page.rows[5:8]] == ["value, m = 1", "LTM, m = 1", "F(0), m = 1"]


def test_breakdown__is_shown_as_a_table(panel: xr.DataTree) -> None:
    found = panel.croma.breakdown(("label", "confounder"))
    page = Page(found.croma._repr_html_())
    assert "by label x center" in page.words
    head, *rows = page.rows
    assert head[:4] == ["model", "m", "label", "confounder"]
    assert len(rows) == 2 * 2 * 9
    for row in rows[:3]:
        one = found.sel(model=row[0], m=int(row[1]), label=row[2], confounder=row[3])
        assert row[head.index("f0")] == f"{float(one['f0']):.4f}"
        assert row[head.index("n_samples")] == str(int(one["n_samples"]))
    assert "F(0)" in repr(found.croma)


def test_explanation__is_shown_as_text(store: str) -> None:
    told = cd.open_cohort(store).croma.explain("tile/00003", confounder="center", k=3, m=1)
    assert "tile/00003" in repr(told.croma)
    assert "tile/00003" in Page(told.croma._repr_html_()).words


def test_long_tables__are_cut_and_say_so(
    store: str, scored: Callable, panel: xr.DataTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("croma_dask.notebook.MAX_ROWS", 3)
    page = Page(scored(store).croma._repr_html_())
    assert len(page.rows) == 1 + 3
    assert "And 1 more row" in page.words
    assert "lines more" in repr(panel.croma)
    assert "And 33 more rows" in panel.croma.breakdown(("label", "center")).croma._repr_html_()


def test_others__are_shown_too() -> None:
    plain = xr.Dataset({"a": ("x", [1, 2])})
    assert kind_of(plain) == "unknown"
    assert "a" in repr(plain.croma)
    assert Page(plain.croma._repr_html_()).names == {"div", "strong", "pre"}
    tree = xr.DataTree.from_dict({"/": plain, "b": plain})
    assert "/b" in repr(tree.croma)


# Cohorts --------------------------------------------------------------------------------------


def counts(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    return pd.crosstab(frame["label"], frame[column])


def shown_counts(page: Page, column: str) -> pd.DataFrame:
    start = next(n for n, row in enumerate(page.rows) if row[:1] == ["label"])
    head, *rows = page.rows[start:]
    return pd.DataFrame([[int(c) for c in row[1:]] for row in rows], [r[0] for r in rows], head[1:])


def test_cohort__shape_and_counts_without_the_embedding(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from croma_dask.cohort.store import StoredCohort

    def forbidden(*_: object) -> None:
        raise AssertionError("the embedding was read")

    monkeypatch.setattr(StoredCohort, "read_tiles", forbidden)
    monkeypatch.setattr(StoredCohort, "text", forbidden)
    cohort = cd.open_cohort(store)
    page = Page(cohort.croma._repr_html_())
    assert "160 samples x 6 features of float32" in page.words
    expected = counts(make_cohort()[1], "center")
    assert shown_counts(page, "center").to_dict() == expected.to_dict()
    assert "label x center" in repr(cohort.croma)


def test_cohort__in_memory_is_counted_where_it_is_not_lazy(store: str) -> None:
    lazy = cd.open_cohort(store)
    half = slice(0, 80)
    expected = counts(make_cohort()[1][half], "center")
    names = ["label", "center", "group_id"]
    loaded = lazy.isel(sample=half).assign_coords(
        {name: ("sample", lazy[name].values[half]) for name in names}
    )
    assert shown_counts(Page(loaded.croma._repr_html_()), "center").to_dict() == expected.to_dict()
    # Not in memory, and not as it was opened: nothing is computed for it.
    selected = guarded(lazy.isel(sample=half))
    assert "not counted" in Page(selected.croma._repr_html_()).words
    assert "80 samples x 6 features" in repr(selected.croma)


def test_cohort__large_ones_are_not_counted(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "MAX_STORED", 100)
    assert "not counted" in repr(cd.open_cohort(store).croma)


def test_cohort__names_are_escaped() -> None:
    n = 4
    cohort = xr.Dataset(
        {"embedding": (("sample", "feature"), np.eye(n))},
        {
            "label": ("sample", np.array([NASTY, "b", "", "b"], dtype=object)),
            "<i>": ("sample", np.array(["x", NASTY, "x", ""], dtype=object)),
        },
    )
    page = Page(cohort.croma._repr_html_())
    assert page.names <= {
        "div", "strong", "table", "caption", "thead", "tbody", "tr", "th", "td",
    }  # fmt: skip
    # Empty cells are missing ones.
    assert shown_counts(page, "<i>").to_dict() == {
        NASTY: {NASTY: 0, "b": 1},
        "x": {NASTY: 1, "b": 0},
    }


# Plans ----------------------------------------------------------------------------------------


def test_plans__of_scoring_say_in_a_notebook_what_they_print(store: str) -> None:
    plan = cd.plan(store, confounder="center", k_candidates=(15,), m=(3, 40))
    page = Page(plan._repr_html_())
    assert [row[0].ljust(9) + row[1] for row in page.rows] == str(plan).splitlines()
    assert "support" in [row[0] for row in page.rows]
    assert "nothing has been run" in page.words
    models = {"<b>a": store, "b": store}
    with pytest.warns(cd.InputWarning, match="same embedding"):
        panel = cd.plan(models, confounder="center", k_candidates=(15,), m=3)
    page = Page(panel._repr_html_())
    assert [row[0] for row in page.rows[1:]] == ["<b>a", "b"]
    for row, line in zip(page.rows[1:], str(panel).splitlines()[2:], strict=False):
        assert all(cell in line for cell in row)


def test_plans__say_in_a_notebook_what_they_print(store: str) -> None:
    cohort = cd.open_cohort(store)
    balanced = [(center, label, 4) for center in range(3) for label in range(3)]
    confounded = [(at, at, 8) for at in range(3)]
    plan = cohort.croma.plan_probe_sweep(
        confounder="center",
        schedule=[(balanced, 8), (confounded, 8)],
        iterations=2,
        validation_fraction=0.25,
    )
    page = Page(plan._repr_html_())
    assert [row[0].ljust(9) + row[1] for row in page.rows] == str(plan).splitlines()
    plan = cohort.croma.plan_embedding_benchmark(
        label="label", batch="center", metrics=["iLISI", "ASW"]
    )
    page = Page(plan._repr_html_())
    for row in page.rows[1:]:
        line = next(line for line in str(plan).splitlines() if line.strip().startswith(row[0]))
        assert all(cell in line for cell in row)
    assert str(plan).splitlines()[-1] in page.words


# The bits of HTML -----------------------------------------------------------------------------


def test_markup__escapes_and_stays_well_formed() -> None:
    made = [
        markup.facts([(NASTY, NASTY)], title=NASTY, sentence=NASTY, notes=[NASTY]),
        markup.table([NASTY], [[NASTY]], caption=NASTY),
        markup.lines(NASTY),
        markup.bar(1, 2, NASTY),
    ]
    for text in made:
        page = Page(text)
        assert "script" not in page.names
        assert NASTY in page.words
    assert f"aria-label={NASTY}" in Page(made[-1]).attributes
    assert html.escape(NASTY) in made[0]


@pytest.mark.parametrize(("done", "total"), [(0, 0), (5, 4), (-1, 3)])
def test_markup__a_bar_stays_within_its_ends(done: int, total: int) -> None:
    page = Page(markup.bar(done, total, "x"))
    found = dict(a.split("=", 1) for a in page.attributes)
    assert 0 <= int(found["value"]) <= int(found["max"])


# Progress -------------------------------------------------------------------------------------


class Notebook:
    """Stands for the display of a kernel: one output for every display, updated in place."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.outputs: list[dict[str, str]] = []
        self.n_updates = 0
        self.broken = False
        self.lock = threading.Lock()
        module = SimpleNamespace(
            get_ipython=lambda: SimpleNamespace(kernel=object()), display=self.display
        )
        monkeypatch.setitem(sys.modules, "IPython", module)
        monkeypatch.setitem(sys.modules, "IPython.display", module)

    def display(self, bundle: dict[str, str], *, raw: bool, display_id: bool) -> Any:
        assert raw
        assert display_id
        if self.broken:
            raise RuntimeError("no front end")
        with self.lock:
            self.outputs.append(bundle)
            at = len(self.outputs) - 1

        def update(bundle: dict[str, str], *, raw: bool) -> None:
            assert raw
            with self.lock:
                self.n_updates += 1
                self.outputs[at] = bundle

        return SimpleNamespace(update=update)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    monkeypatch.setattr("croma_dask.progress.SHOWN_SECONDS", 0.0)
    monkeypatch.setattr("croma_dask.progress.REFRESH_SECONDS", 0.0)
    return Notebook(monkeypatch)


def test_progress__one_output_of_a_step_whoever_advances_it(
    notebook: Notebook, capsys: pytest.CaptureFixture[str]
) -> None:
    n_threads, each = 8, 200
    with Progress("search <all>", n_threads * each, "row pairs") as progress:
        threads = [
            threading.Thread(target=lambda: [progress.advance(1) for _ in range(each)])
            for _ in range(n_threads)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (shown,) = notebook.outputs
        assert "progress" in Page(shown["text/html"]).names
        assert "left" in shown["text/plain"]
    assert progress.done == n_threads * each, "no unit is lost between threads"
    (shown,) = notebook.outputs
    assert shown["text/plain"].startswith("search <all>: 1,600 of 1,600 row pairs, ")
    assert "took 0:0" in shown["text/plain"]
    assert "progress" not in Page(shown["text/html"]).names, "the bar does not stay"
    assert not capsys.readouterr().err


def test_progress__is_redrawn_a_few_times_a_second_only(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("croma_dask.progress.REFRESH_SECONDS", 3600.0)
    with Progress("search", 1000) as progress:
        for _ in range(1000):
            progress.advance(1)
    assert len(notebook.outputs) == 1
    assert notebook.n_updates <= 1


def test_progress__short_or_quiet_steps_leave_nothing(
    notebook: Notebook, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Progress("search", 2, quiet=True) as progress:
        progress.advance(2)
    monkeypatch.setattr("croma_dask.progress.SHOWN_SECONDS", 3600.0)
    with Progress("search", 2) as progress:
        progress.advance(2)
    assert progress._timer is not None
    progress._timer.join(10)
    assert not progress._timer.is_alive(), "nothing is left to run"
    assert not notebook.outputs
    assert not capsys.readouterr().err


def test_progress__draws_nothing_after_its_end(notebook: Notebook) -> None:
    """As the timer's thread does that has waited for the lock while the step ended."""
    with Progress("search", 2) as progress:
        progress.advance(1)
    (last,) = notebook.outputs
    assert "took" in last["text/plain"]
    progress.advance(0)
    assert notebook.outputs == [last]
    with Progress("short", 2) as short:
        pass
    n_outputs = len(notebook.outputs)
    short.advance(0)
    assert len(notebook.outputs) == n_outputs


def test_progress__is_shown_before_the_first_task_is_over(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("croma_dask.progress.SHOWN_SECONDS", 0.01)
    with Progress("search", 2):
        deadline = time.monotonic() + 10
        while not notebook.outputs and time.monotonic() < deadline:
            time.sleep(0.005)
        assert "search: 0 of 2 rows" in notebook.outputs[0]["text/plain"]


def test_progress__a_step_that_fails_says_where(notebook: Notebook) -> None:
    def search() -> None:
        with Progress("search", 4) as progress:
            progress.advance(1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        search()
    (shown,) = notebook.outputs
    assert shown["text/plain"].startswith("search: 1 of 4 rows")
    assert shown["text/plain"].endswith("(stopped)")


def test_progress__lines_where_a_front_end_objects(
    notebook: Notebook, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook.broken = True
    with Progress("search", 4) as progress:
        progress.advance(1)
        progress.advance(3)
    assert not notebook.outputs
    assert "search: 4 of 4 rows" in capsys.readouterr().err


def test_progress__lines_in_ipython_without_a_kernel(
    notebook: Notebook, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("croma_dask.progress.FIRST_LINE_SECONDS", 0.0)
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: SimpleNamespace())
    with Progress("search", 4) as progress:
        progress.advance(4)
    assert not notebook.outputs
    assert capsys.readouterr().err.startswith("search: 4 of 4 rows")


CELL = """
import threading
from croma_dask import progress
progress.SHOWN_SECONDS = progress.REFRESH_SECONDS = 0
with progress.Progress("search", 100) as p:
    threads = [threading.Thread(target=lambda: [p.advance(1) for _ in range(25)]) for _ in "abcd"]
    for t in threads: t.start()
    for t in threads: t.join()
"""


@pytest.mark.slow
def test_progress__in_a_real_kernel_is_one_output() -> None:
    """Other threads than the cell's own draw it, and it lands below that cell."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    cell = nbformat.v4.new_code_cell(CELL)
    book = nbformat.v4.new_notebook(cells=[cell, nbformat.v4.new_code_cell("1 + 1")])
    nbclient.NotebookClient(book, timeout=120).execute()
    (output,) = book.cells[0].outputs
    assert output.output_type == "display_data"
    assert output.data["text/plain"].startswith("search: 100 of 100 rows")
    assert "<progress" not in output.data["text/html"]
