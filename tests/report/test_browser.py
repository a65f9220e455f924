"""The report in a browser: no error, no request, and numbers that are the library's."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import xarray as xr

import croma_dask as cd
from tests.report.browser import find_browser
from tests.report.conftest import HOSTILE, frame_of, rows_of, score

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

PICTURES = Path(__file__).resolve().parents[2] / "build" / "report"
WIDE, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    playwright = pytest.importorskip("playwright.sync_api")
    path = find_browser()
    with playwright.sync_playwright() as driver:
        # In a container root has no other user to become, and /dev/shm is small.
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        opened = driver.chromium.launch(executable_path=path, args=arguments)
        yield opened
        opened.close()


@dataclass
class Opened:
    """A page, what it said to the console and what it asked for."""

    page: Page
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def numbers(self, *, second: bool = False) -> dict[str, float]:
        """Live numbers of the explorer, in full precision."""
        which = ".numbers.second" if second else ".numbers:not(.second)"
        found = self.page.eval_on_selector_all(
            f"#explorer .live {which} > div[class]",
            "all => all.map(e => [e.className, e.querySelector('data').value])",
        )
        return {name: float(value) for name, value in found}

    def settle(self) -> None:
        """Wait until what was changed is computed and drawn."""
        self.page.wait_for_function(
            "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame("
            "() => setTimeout(() => done(true), 50))))"
        )

    def choose(self, label: str, option: str) -> None:
        self.page.locator("#explorer").get_by_label(label, exact=True).select_option(label=option)
        self.settle()

    def check_quiet(self, path: Path) -> None:
        assert self.said == []
        assert self.asked == [path.as_uri()]


def open_page(browser: Browser, path: Path, **options: Any) -> Opened:
    context = browser.new_context(**{"viewport": WIDE, **options})
    page = context.new_page()
    opened = Opened(page)
    page.on("console", lambda message: opened.said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: opened.said.append(f"error: {error}"))
    page.on("dialog", lambda dialog: opened.said.append(f"dialog: {dialog.message}"))
    page.on("request", lambda request: opened.asked.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]", timeout=60_000)
    opened.settle()
    return opened


def picture(opened: Opened, name: str) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    opened.page.screenshot(path=PICTURES / f"{name}.png", full_page=True)


def expected(values: np.ndarray, alpha: float) -> dict[str, float]:
    """Oracle in numpy."""
    values = values[~np.isnan(values)]
    q = float(np.quantile(values, alpha))
    return {
        "n": values.size,
        "median": float(np.median(values)),
        "quantile": q,
        "tail": float(values[values <= q].mean()),
        "f0": float(np.mean(values <= 0)),
    }


def check(found: dict[str, float], wanted: dict[str, float]) -> None:
    assert found.keys() >= wanted.keys()
    assert found["n"] == wanted["n"]
    assert found["f0"] == pytest.approx(wanted["f0"], abs=1e-15)
    for name in ("median", "quantile", "tail"):
        assert found[name] == pytest.approx(wanted[name], abs=1e-6), name


def test_browser__shows_everything_without_a_word_or_a_request(
    browser: Browser, panel_page: Path
) -> None:
    opened = open_page(browser, panel_page)
    titles = opened.page.locator("section > h2").all_inner_texts()
    assert titles[1:] == [
        "Summary", "Explore the margins", "Where it fails", "RI and MaRI over k", "CRoMa over m",
        "What was computed",
    ]  # fmt: skip
    assert opened.page.locator(".chart svg").count() == opened.page.locator(".chart").count() > 5
    # The policy is alive: what it forbids does not happen.
    blocked = opened.page.evaluate("fetch('https://example.org').then(() => false, () => true)")
    assert blocked
    assert any("Content Security Policy" in line for line in opened.said)
    opened.said.clear()
    opened.asked[:] = [url for url in opened.asked if "example.org" not in url]
    opened.check_quiet(panel_page)


def test_browser__numbers_follow_every_control(
    browser: Browser, panel_page: Path, panel: xr.DataTree
) -> None:
    croma = panel["CRoMa"]
    values, label = croma["sample_values"].values, croma["label"].values
    confounder = croma["confounder"].values
    opened = open_page(browser, panel_page)
    whole = croma.isel(model=0, m=0)
    check(opened.numbers(), expected(values[0, 0], 0.1))
    assert opened.numbers()["tail"] == pytest.approx(float(whole["ltm_alpha"]), abs=1e-6)
    assert opened.numbers()["f0"] == float(whole["f0"])

    box = opened.page.locator("#explorer input[type=number]")
    box.fill("0.25")
    opened.settle()
    check(opened.numbers(), expected(values[0, 0], 0.25))
    assert opened.page.locator("#explorer input[type=range]").input_value() == "0.25"

    opened.choose("Model", "poor")
    check(opened.numbers(), expected(values[1, 0], 0.25))
    opened.choose("m, nearest of each type", "3")
    check(opened.numbers(), expected(values[1, 1], 0.25))
    opened.choose("diagnosis", "stroma")
    check(opened.numbers(), expected(values[1, 1, label == "stroma"], 0.25))
    opened.choose("scanner", "B")
    both = (label == "stroma") & (confounder == "B")
    check(opened.numbers(), expected(values[1, 1, both], 0.25))
    cell = cd.breakdown(panel, ("label", "confounder")).sel(label="stroma", confounder="B")
    assert opened.numbers()["median"] == pytest.approx(
        float(cell["median_value"].isel(model=1, m=1)), abs=1e-6
    )
    opened.choose("Compare with", "good")
    check(opened.numbers(second=True), expected(values[0, 1, both], 0.25))
    opened.page.locator("#explorer input[type=range]").press("ArrowRight")
    opened.settle()
    check(opened.numbers(), expected(values[1, 1, both], 0.26))
    opened.choose("diagnosis", "all")
    opened.choose("scanner", "all")
    check(opened.numbers(), expected(values[1, 1], 0.26))
    opened.check_quiet(panel_page)


def test_browser__bars_name_their_samples(
    browser: Browser, panel_page: Path, panel: xr.DataTree
) -> None:
    opened = open_page(browser, panel_page)
    values = panel["CRoMa"]["sample_values"].values[0, 0]
    ids = panel["CRoMa"]["sample_id"].values
    bars, detail = opened.page.locator("[role=slider]"), opened.page.locator("#explorer .detail")
    bars.focus()
    total = 0
    bars.press("Home")
    for _ in range(int(bars.get_attribute("aria-valuemax") or 0) + 1):
        text = detail.inner_text()
        assert bars.get_attribute("aria-valuetext") == text
        total += int(text.split(": ")[1].split()[0])
        bars.press("ArrowRight")
    assert total == values.size
    worst = ids[np.argsort(values, kind="stable")]
    bars.press("Home")
    assert worst[0] in detail.inner_text()
    first = opened.page.locator("#explorer tbody tr").all_inner_texts()[:12]
    assert [row.split("\t")[0].strip() for row in first] == worst[:12].tolist()
    # With the mouse as well.
    before = detail.inner_text()
    box = opened.page.locator("#explorer .chart").bounding_box()
    assert box is not None
    opened.page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.5 * box["height"])
    opened.settle()
    assert detail.inner_text() not in ("", before)
    opened.check_quiet(panel_page)


def test_browser__paired_value_is_the_median_of_the_subsets(
    browser: Browser, paired: xr.DataTree, tmp_path: Path
) -> None:
    path = cd.report(paired, tmp_path / "paired.html", n_draws=20)
    opened = open_page(browser, path)
    croma = paired["CRoMa"]
    assert opened.numbers()["value"] == pytest.approx(float(croma["value"]), abs=1e-6)
    opened.choose("subset", "pair 1")
    mine = croma["sample_subset"].values == "pair 1"
    check(opened.numbers(), expected(croma["sample_values"].values[mine], 0.1))
    assert opened.numbers()["value"] == pytest.approx(float(croma["pair_values"][1]), abs=1e-6)
    opened.check_quiet(path)


def test_browser__tables_sort_by_keyboard(browser: Browser, panel_page: Path) -> None:
    opened = open_page(browser, panel_page)
    table = opened.page.locator("#breakdowns table").nth(2)
    head = table.locator("th[scope=col]").filter(has_text="Median margin")

    def column() -> list[float]:
        return [float(v) for v in table.locator("tbody tr").evaluate_all(
            "rows => rows.map(r => r.cells[4].querySelector('data').value)")]  # fmt: skip

    assert head.get_attribute("aria-sort") is None
    before = column()
    head.locator("button").focus()
    opened.page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert column() == sorted(before, reverse=True)
    opened.page.keyboard.press("Space")
    assert head.get_attribute("aria-sort") == "ascending"
    assert column() == sorted(before)
    assert opened.page.evaluate("document.activeElement.textContent") == "Median margin"
    opened.check_quiet(panel_page)


def test_browser__controls_are_reached_by_tab_and_named(browser: Browser, panel_page: Path) -> None:
    opened = open_page(browser, panel_page)
    unnamed = opened.page.evaluate(
        """() => Array.from(document.querySelectorAll('input, select, button')).filter(e =>
             !(e.labels?.length || e.getAttribute('aria-label') || e.textContent.trim())).length"""
    )
    assert unnamed == 0
    seen = set()
    for _ in range(120):
        opened.page.keyboard.press("Tab")
        seen.add(
            opened.page.evaluate(
                "document.activeElement.labels?.[0]?.textContent ?? document.activeElement.role "
                "?? document.activeElement.getAttribute('aria-label')"
            )
        )
    assert {"Model", "Compare with", "diagnosis", "scanner", "slider"} <= seen
    assert "alpha, the share in the tail" in seen
    focus = opened.page.locator("#explorer select").first
    focus.focus()
    opened.page.keyboard.press("Shift+Tab")
    opened.page.keyboard.press("Tab")
    assert focus.evaluate("e => getComputedStyle(e).outlineStyle") == "solid"
    live = opened.page.locator("#explorer [aria-live=polite]")
    assert live.count() == 1
    for chart in opened.page.locator(".chart").all():
        assert chart.get_attribute("role") == "img"
        assert len(chart.get_attribute("aria-label") or "") > 20


def test_browser__hostile_names_are_shown_and_never_run(
    browser: Browser, hostile: xr.DataTree, tmp_path: Path
) -> None:
    path = cd.report(hostile, tmp_path / "hostile.html", title=HOSTILE[2], n_draws=20)
    opened = open_page(browser, path)
    assert opened.page.locator("h1").inner_text() == HOSTILE[2]
    assert opened.page.title() == HOSTILE[2]
    options = opened.page.locator("#explorer select").first.locator("option").all_text_contents()
    assert options == [HOSTILE[1], HOSTILE[5]]
    for label in HOSTILE[:3]:
        opened.choose("diagnosis", label)
    opened.choose("Compare with", HOSTILE[5])
    opened.page.locator("[role=slider]").press("Home")
    assert opened.page.locator("img").count() == 0
    assert opened.page.locator("script:not([type])").count() == 2
    picture(opened, "hostile")
    opened.check_quiet(path)


def test_browser__shows_sweeps_and_benchmarks(
    browser: Browser, sweep: xr.Dataset, benchmark: xr.Dataset, tmp_path: Path
) -> None:
    path = cd.report({"camelyon": sweep, "atlas": benchmark}, tmp_path / "others.html")
    opened = open_page(browser, path)
    titles = opened.page.locator("section > h2").all_inner_texts()
    assert titles == ["Probe sweep: camelyon", "Embedding benchmark: atlas", "About this page"]
    assert opened.page.locator("#other-0 .chart svg path").count() > 10
    best = opened.page.locator("#other-1 td.shade4 data").first
    assert best.get_attribute("value") == "0.5"
    picture(opened, "others")
    opened.check_quiet(path)


def with_margins(result: xr.DataTree, values: np.ndarray) -> xr.Dataset:
    """CRoMa of one model with other margins, and support 1."""
    croma = result["CRoMa"].to_dataset()
    return croma.assign(
        sample_values=("sample", values), undefined_type=croma["undefined_type"] * 0
    )


def test_browser__tail_is_the_librarys_where_float32_makes_ties(
    browser: Browser, single: xr.DataTree, tmp_path: Path
) -> None:
    rng = np.random.default_rng(1)
    values = np.r_[np.full(8, -1.0), -0.0, 0.0, np.nan, 0.3 + 1e-10 * np.arange(139)]
    values[20:40] *= -1
    values = rng.permutation(values)
    path = cd.report(with_margins(single, values), tmp_path / "ties.html", n_draws=0)
    opened = open_page(browser, path)
    check(opened.numbers(), expected(values, 0.1))
    for alpha in ("0.02", "0.2", "0.3", "0.5"):
        opened.page.locator("#explorer input[type=number]").fill(alpha)
        opened.settle()
        check(opened.numbers(), expected(values, float(alpha)))
    ids = single["CRoMa"]["sample_id"].values[np.argsort(values, kind="stable")]
    first = opened.page.locator("#explorer tbody th").all_inner_texts()
    assert first == ids[:12].tolist()
    opened.check_quiet(path)


def test_browser__bars_of_small_margins_have_ends_that_differ(
    browser: Browser, single: xr.DataTree, tmp_path: Path
) -> None:
    values = np.random.default_rng(2).normal(0, 0.0008, 150)
    path = cd.report(with_margins(single, values), tmp_path / "small.html", n_draws=0)
    opened = open_page(browser, path)
    bars, detail = opened.page.locator("[role=slider]"), opened.page.locator("#explorer .detail")
    bars.press("Home")
    ends = []
    for _ in range(int(bars.get_attribute("aria-valuemax") or 0) + 1):
        words = detail.inner_text().split(":")[0].replace("\u2212", "-").split()
        ends.append((float(words[2]), float(words[5])))
        bars.press("ArrowRight")
    assert len(ends) > 8
    assert all(low < high for low, high in ends)
    assert [high for _, high in ends[:-1]] == [low for low, _ in ends[1:]]
    opened.check_quiet(path)


def test_browser__names_rows_by_their_place_in_the_manifest(
    browser: Browser, paired: xr.DataTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("croma_dask.report.explorer")
    monkeypatch.setattr(module, "MOST_NAMES", 100)
    monkeypatch.setattr(module, "WORST", 3)
    croma = paired["CRoMa"].to_dataset()
    out = croma["sample_subset"] == "pair 0"
    croma = croma.assign(
        undefined_type=croma["undefined_type"].where(~out, -1),
        sample_values=croma["sample_values"].where(~out),
    )
    path = cd.report(croma, tmp_path / "rows.html", n_draws=0)
    opened = open_page(browser, path)
    order = np.argsort(croma["sample_values"].values, kind="stable")[:12]
    assert order.min() >= 48
    expected_names = [
        *(str(croma["sample_id"].values[i]) for i in order[:3]), *(f"row {i}" for i in order[3:]),
    ]  # fmt: skip
    assert opened.page.locator("#explorer tbody th").all_inner_texts() == expected_names
    opened.check_quiet(path)


def test_browser__of_one_clean_model_claims_nothing_of_others(
    browser: Browser, panel: xr.DataTree, tmp_path: Path
) -> None:
    croma = panel["CRoMa"].to_dataset().isel(m=0)
    for models, text in (
        ([0], "Every sample has a value, and the search was exact."),
        ([0, 1], "Every sample has a value, the search was exact, and the embeddings differ."),
    ):
        path = cd.report(croma.isel(model=models), tmp_path / f"{len(models)}.html", n_draws=20)
        opened = open_page(browser, path)
        assert opened.page.locator("#warnings p").all_inner_texts() == [text]
        opened.check_quiet(path)


def test_browser__a_damaged_block_spoils_its_section_alone(
    browser: Browser, panel_page: Path, tmp_path: Path
) -> None:
    text = panel_page.read_text(encoding="utf-8")
    path = tmp_path / "bad.html"
    bad = re.sub(r'(id="block-\d+">)[^<]{20}', r"\1" + "A" * 20, text, count=1)
    assert bad != text
    path.write_text(bad, encoding="utf-8")
    opened = open_page(browser, path)
    whole = open_page(browser, panel_page)
    titles = "section > h2"
    assert opened.page.locator(titles).all_inner_texts() == (
        whole.page.locator(titles).all_inner_texts()
    )
    assert opened.page.locator("nav a").count() == whole.page.locator("nav a").count()
    assert "the file may be damaged" in opened.page.locator("#explorer .notice").inner_text()
    (said,) = opened.said
    assert "cannot be unpacked" in said


def test_browser__many_rows_come_by_hundreds_and_keep_the_focus(
    browser: Browser, tmp_path: Path
) -> None:
    croma = large_result(700, 1)["CRoMa"].to_dataset()
    croma = croma.assign_coords(
        label=("sample", np.array([f"\u202elevel {i % 350:03d}" for i in range(700)], object)),
        sample_id=("sample", np.array([f"\u05d0{i}" for i in range(700)], object)),
    )
    path = cd.report(croma, tmp_path / "many.html", n_draws=0)
    opened = open_page(browser, path)
    rows = opened.page.locator("#breakdowns table").first.locator("tbody tr")
    button = opened.page.locator("#breakdowns button.plain").first
    assert rows.count() == 30
    assert button.inner_text() == "Show 300 more rows (30 of 350 are shown)"
    for count, at in ((330, 30), (350, 330)):
        opened.page.locator("#breakdowns button.plain").first.focus()
        opened.page.keyboard.press("Enter")
        assert rows.count() == count
        assert rows.nth(at).evaluate("row => row === document.activeElement")
    # A name turns nothing but itself round.
    name = rows.first.locator(".name")
    assert name.evaluate("e => getComputedStyle(e).unicodeBidi") == "isolate"
    opened.page.locator("[role=slider]").press("Home")
    assert re.search("\u2068\u05d0\\d+\u2069", opened.page.locator(".detail").inner_text())
    opened.check_quiet(path)


def test_browser__columns_say_what_they_mean(browser: Browser, panel_page: Path) -> None:
    opened = open_page(browser, panel_page)
    head = opened.page.locator("#summary th button").filter(has_text="CRoMa lower-tail mean")
    described = opened.page.locator(f"#{head.first.get_attribute('aria-describedby')}")
    assert described.text_content() == "m = 1. Mean over the worst 10 % of the samples."
    # In sight for those without a mouse, too.
    assert not described.is_visible()
    opened.page.locator("#summary details.hints summary").first.click()
    assert described.is_visible()
    unexplained = opened.page.evaluate(
        """() => Array.from(document.querySelectorAll('th [title]')).filter(e =>
             document.getElementById(e.getAttribute('aria-describedby')).textContent !== e.title
           ).length"""
    )
    assert unexplained == 0
    opened.check_quiet(panel_page)


def test_browser__opens_on_the_best_model(
    browser: Browser, panel: xr.DataTree, tmp_path: Path
) -> None:
    """Whatever the order in which they were given."""
    path = cd.report(panel.sel(model=["poor", "good"]), tmp_path / "order.html", n_draws=0)
    opened = open_page(browser, path)
    values = panel["CRoMa"]["sample_values"].values
    check(opened.numbers(), expected(values[0, 0], 0.1))
    for section in ("explorer", "breakdowns"):
        shown = opened.page.locator(f"#{section} select").first
        assert shown.evaluate("e => e.selectedOptions[0].textContent") == "good"
    assert opened.page.locator("#summary tbody th").all_inner_texts()[:2] == ["good", "poor"]
    median = opened.page.locator("#breakdowns tbody tr").first.locator("td data").nth(2)
    by_label = cd.breakdown(panel, "label")["median_value"].sel(label="normal")
    assert float(median.get_attribute("value") or "nan") == pytest.approx(
        float(by_label.sel(model="good").isel(m=0)), abs=1e-6
    )
    opened.check_quiet(path)


def test_browser__a_table_says_that_it_goes_on(browser: Browser, panel_page: Path) -> None:
    """Shadows lie where it is cut off, its first column stays, fingerprints fold."""
    opened = open_page(browser, panel_page, viewport=PHONE)
    frame = opened.page.locator("#about .frame")

    def sides() -> list[str]:
        return sorted(set((frame.get_attribute("class") or "").split()) - {"frame"})

    first = frame.locator("tbody th").first
    assert sides() == ["more-right"]
    before = first.evaluate("e => e.getBoundingClientRect().left")
    for left, expected_sides in ((60, ["more-left", "more-right"]), (10_000, ["more-left"])):
        frame.locator(".scroll").evaluate("(e, left) => { e.scrollLeft = left; }", left)
        opened.settle()
        assert sides() == expected_sides
        assert first.evaluate("e => e.getBoundingClientRect().left") == before
    mark = frame.locator("td.code").first
    assert len(mark.inner_text().strip()) == 13
    assert frame.locator("tbody tr").first.evaluate("e => e.offsetHeight") < 50
    mark.locator("summary").click()
    assert mark.locator("details > code").inner_text().startswith(mark.inner_text()[:12])
    whole = opened.page.locator("#summary .frame").first
    opened.page.set_viewport_size(WIDE)
    opened.settle()
    assert whole.get_attribute("class") == "frame"
    opened.check_quiet(panel_page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["1440", "390"])
def test_browser__fits_its_width_and_scheme(
    browser: Browser, panel_page: Path, viewport: dict[str, int], scheme: str
) -> None:
    opened = open_page(browser, panel_page, viewport=viewport, color_scheme=scheme)
    page = opened.page
    assert page.evaluate("document.documentElement.scrollWidth") == viewport["width"]
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    red = int(colour.removeprefix("rgb(").split(",")[0])
    assert (red < 60) == (scheme == "dark")
    quiet = page.evaluate(
        "getComputedStyle(document.documentElement).getPropertyValue('--quiet').trim()"
    )
    # Charts have the scheme's colours too.
    assert page.locator(f"#explorer svg text[fill='{quiet}']").count() > 3
    picture(opened, f"panel-{viewport['width']}-{scheme}")
    opened.check_quiet(panel_page)


def test_browser__prints_every_section_with_its_charts(browser: Browser, panel_page: Path) -> None:
    opened = open_page(browser, panel_page, color_scheme="dark")
    PICTURES.mkdir(parents=True, exist_ok=True)
    content = opened.page.pdf(path=PICTURES / "panel.pdf", prefer_css_page_size=True)
    assert content.startswith(b"%PDF")
    opened.page.emulate_media(media="print")
    opened.settle()
    body = "getComputedStyle(document.body).color"
    assert opened.page.evaluate(body) == "rgb(29, 37, 48)"
    assert opened.page.locator(".chart svg").first.is_visible()
    opened.check_quiet(panel_page)


@pytest.mark.slow
def test_browser__two_thousand_samples_of_one_model(browser: Browser, tmp_path: Path) -> None:
    check_size(browser, tmp_path, n=2_000, n_models=1, most_bytes=1_100_000)


@pytest.mark.slow
def test_browser__a_hundred_thousand_samples_of_twelve_models(
    browser: Browser, tmp_path: Path
) -> None:
    check_size(browser, tmp_path, n=100_000, n_models=12, most_bytes=9_000_000)


@pytest.mark.slow
def test_browser__a_million_samples(browser: Browser, tmp_path: Path) -> None:
    check_size(browser, tmp_path, n=1_000_000, n_models=1, most_bytes=12_000_000)


def check_size(browser: Browser, tmp_path: Path, *, n: int, n_models: int, most_bytes: int) -> None:
    """Numbers are right, the file is as small as said, and a move of the slider takes a moment."""
    result = large_result(n, n_models)
    path = cd.report(result, tmp_path / "large.html", n_draws=0)
    size = path.stat().st_size
    opened = open_page(browser, path)
    values = result["CRoMa"]["sample_values"].values.reshape(n_models, n)
    label = result["CRoMa"]["label"].values
    ranks = result["CRoMa"].to_dataset().get("mean_rank")
    values = values[0 if ranks is None else int(np.argmin(ranks.values.ravel())) :]
    check(opened.numbers(), expected(values[0], 0.1))
    opened.choose("diagnosis", "normal")
    opened.page.wait_for_function(
        f"document.querySelector('#explorer .n data').value === '{int((label == 'normal').sum())}'"
    )
    moves = opened.page.evaluate(
        """async () => {
             const slider = document.querySelector('#explorer input[type=range]');
             const took = [];
             for (let i = 1; i <= 20; i += 1) {
               const start = performance.now();
               slider.value = String(0.02 * i);
               slider.dispatchEvent(new Event('input'));
               await new Promise(f => requestAnimationFrame(() => requestAnimationFrame(f)));
               took.push(performance.now() - start);
             }
             return took;
           }"""
    )
    opened.settle()
    check(opened.numbers(), expected(values[0, label == "normal"], 0.4))
    computed = opened.page.evaluate("performance.getEntriesByName('explorer').map(e => e.duration)")
    print(
        f"{n_models} x {n:,}: {size / 1e6:.2f} MB; move of the slider to its picture "
        f"{np.median(moves):.0f} ms (median of 20), of that computing {np.median(computed):.1f} ms"
    )
    assert size < most_bytes
    # Ten times what was measured on a quiet machine.
    assert np.median(computed) < 100
    opened.check_quiet(path)


def large_result(n: int, n_models: int) -> xr.DataTree:
    """CRoMa of as many samples and models as asked: a scored small one, with other margins."""
    small = frame_of(120, ["tumour", "normal", "stroma"], ["A", "B"], groups=20)
    models = {f"model {i}": rows_of(small, i, biology=0.5, shortcut=0.5) for i in range(n_models)}
    croma = score(models, small, metrics=("CRoMa",))["CRoMa"].to_dataset()
    rng = np.random.default_rng(0)
    frame = frame_of(n, ["tumour", "normal", "stroma"], ["A", "B"], groups=1000)
    along = [name for name in croma.variables if "sample" in croma[name].dims]
    shape = (n_models, n)
    large = croma.drop_vars(along).assign(
        sample_values=(("model", "sample"), np.clip(rng.normal(0.2, 0.25, shape), -1, 1)),
        defined=(("model", "sample"), np.ones(shape, bool)),
        undefined_type=(("model", "sample"), np.zeros(shape, np.int8)),
    )
    large = large.assign_coords(
        sample_id=("sample", frame["sample_id"].to_numpy(object)),
        sample_subset=("sample", np.full(n, "dataset", object)),
        label=("sample", frame["diagnosis"].to_numpy(object)),
        confounder=("sample", frame["scanner"].to_numpy(object)),
        group_id=("sample", frame["slide"].to_numpy(object)),
    )
    large.attrs |= {"n_rows": n, "n_rows_used": n}
    return xr.DataTree.from_dict({"CRoMa": large})
