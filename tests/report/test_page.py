"""The page as a file: inert, self-contained, written whole or not at all."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import xarray as xr

import croma_dask as cd
from croma_dask.report import page as page_module
from tests.helpers.report_page import Page
from tests.report.conftest import HOSTILE

ASSETS = Path(page_module.__file__).parent / "assets"


class Elements(HTMLParser):
    """Every element of a page as a browser would open it."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.content: dict[int, str] = {}
        self._open = False

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.found.append((tag, dict(attrs)))
        self._open = True

    def handle_endtag(self, tag: str) -> None:
        self._open = False

    def handle_data(self, data: str) -> None:
        at = len(self.found) - 1
        if self._open:
            self.content[at] = self.content.get(at, "") + data


def elements(path: Path) -> Elements:
    parser = Elements()
    parser.feed(path.read_text(encoding="utf-8"))
    return parser


@pytest.fixture(scope="module")
def hostile_page(hostile: xr.DataTree, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "page.html"
    return cd.report(hostile, path, title=HOSTILE[2], n_draws=10)


def test_page__of_hostile_names_has_the_elements_of_any_other(
    hostile_page: Path, panel_page: Path
) -> None:
    tags = [tag for tag, _ in elements(hostile_page).found]
    n_blocks = tags.count("script") - 3
    assert n_blocks > 0
    other = [tag for tag, _ in elements(panel_page).found]
    assert [t for t in tags if t != "script"] == [t for t in other if t != "script"]
    assert not {"img", "iframe", "link", "object", "embed"} & set(tags)
    executed = [a for tag, a in elements(hostile_page).found if tag == "script" and not a]
    assert len(executed) == 2


def test_page__keeps_hostile_names_as_they_are(hostile_page: Path, hostile: xr.DataTree) -> None:
    page = Page(hostile_page)
    assert page.payload["title"] == HOSTILE[2]
    assert page.payload["models"] == [HOSTILE[1], HOSTILE[5]]
    assert page.decoded("label") == hostile["CRoMa"]["label"].values.tolist()
    assert page.block(page.payload["explorer"]["ids"]) == (
        hostile["CRoMa"]["sample_id"].values.tolist()
    )


def test_page__policy_allows_what_stands_in_it_and_no_request(panel_page: Path) -> None:
    found = elements(panel_page)
    policy = next(
        a["content"] for t, a in found.found if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert not re.search(r"connect|img|font|http|data:|\*", policy)
    hashes = set(re.findall(r"'sha256-[^']+'", policy))
    inline = [
        text
        for i, text in found.content.items()
        if found.found[i][0] == "style" or found.found[i] == ("script", {})
    ]
    digests = {
        f"'sha256-{base64.b64encode(hashlib.sha256(t.encode()).digest()).decode()}'" for t in inline
    }
    assert digests == hashes
    assert len(hashes) == 3


def test_page__has_no_attribute_that_runs_or_loads(panel_page: Path) -> None:
    for _, attributes in elements(panel_page).found:
        assert not {"src", "style"} & set(attributes)
        assert not [name for name in attributes if name.startswith("on")]
        assert attributes.get("href", "#").startswith("#")


def test_scripts__write_text_and_never_markup() -> None:
    for name in page_module.SCRIPTS:
        script = page_module.asset(f"js/{name}.js")
        for forbidden in (".innerHTML", "insertAdjacentHTML", "document.write", "eval(", "fetch("):
            assert forbidden not in script, name
        # Nothing that could end, or open, the element it stands in.
        assert "</script" not in script
        assert "<!--" not in script
    assert {f"{name}.js" for name in page_module.SCRIPTS} == {
        path.name for path in (ASSETS / "js").iterdir()
    }


def test_library__is_the_file_that_was_published() -> None:
    said = dict(
        line.split(": ", 1) for line in page_module.asset("echarts/VERSION.txt").splitlines()
    )
    content = (ASSETS / "echarts" / "echarts.common.min.js").read_bytes()
    assert hashlib.sha256(content).hexdigest() == said["sha256"]
    assert said["version"] in content.decode()
    assert b"</script" not in content
    assert b"<!--" not in content
    assert "Apache License" in (ASSETS / "echarts" / "LICENSE").read_text(encoding="utf-8")
    assert (ASSETS / "echarts" / "NOTICE").is_file()


def test_report__leaves_what_was_there_when_writing_fails(
    single: xr.DataTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = cd.report(single, tmp_path / "r.html", n_draws=0)
    before = path.read_bytes()

    def fail(*_: Any) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        with pytest.raises(OSError, match="no space left"):
            cd.report(single, path, n_draws=0, overwrite=True, title="other")
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["r.html"]
    cd.report(single, path, n_draws=0, overwrite=True, title="other")
    assert Page(path).payload["title"] == "other"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("page.pdf", "ends in '.pdf'"),
        ("nowhere/page.html", "does not exist"),
        ("there.html", "pass overwrite=True"),
    ],
)
def test_report__refuses_a_place_before_anything_is_computed(
    name: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "there.html").write_text("mine", encoding="utf-8")
    with pytest.raises(cd.SchemaError, match=message):
        cd.report(object(), tmp_path / name)


def test_report__of_links_writes_what_they_point_to(single: xr.DataTree, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    real, link = tmp_path / "elsewhere" / "real.html", tmp_path / "link.html"
    link.symlink_to(real)
    # Nothing is there yet: the link shows where it goes.
    assert cd.report(single, link, n_draws=0) == link
    assert link.is_symlink()
    assert Page(real).payload["models"] == ["embedding"]
    with pytest.raises(cd.SchemaError, match="exists already"):
        cd.report(single, link, n_draws=0)
    cd.report(single, link, n_draws=0, overwrite=True, title="again")
    assert link.is_symlink()
    assert Page(real).payload["title"] == "again"
    assert [p.name for p in real.parent.iterdir()] == ["real.html"]
    link.unlink()
    link.symlink_to(tmp_path / "nowhere" / "r.html")
    with pytest.raises(cd.SchemaError, match="folder of .* does not exist"):
        cd.report(object(), link)


def test_report__takes_every_name_that_a_file_can_have(single: xr.DataTree, tmp_path: Path) -> None:
    longest = tmp_path / ("a" * 250 + ".html")
    assert cd.report(single, longest, n_draws=0).stat().st_size > 0
    (tmp_path / "round.html").symlink_to("round.html")
    for name in ("a" * 251 + ".html", "nul\0.html", "round.html"):
        with pytest.raises(cd.SchemaError, match="no file can be called"):
            cd.report(object(), tmp_path / name)


def test_report__title_may_have_what_utf8_has_not(single: xr.DataTree, tmp_path: Path) -> None:
    page = Page(cd.report(single, tmp_path / "r.html", title="a\udcffb", n_draws=0))
    assert page.payload["title"] == "a\ufffdb"
    assert "<title>a\ufffdb</title>" in page.text


def test_report__overwrites_nothing_but_reports(single: xr.DataTree, tmp_path: Path) -> None:
    mine = tmp_path / "mine.html"
    mine.write_text("<!doctype html><title>mine</title>", encoding="utf-8")
    with pytest.raises(cd.SchemaError, match="no report of croma-dask"):
        cd.report(single, mine, overwrite=True)
    assert "mine" in mine.read_text(encoding="utf-8")


def test_report__refuses_other_kinds(single: xr.DataTree, tmp_path: Path) -> None:
    path = tmp_path / "r.html"
    drawn = cd.bootstrap(single, n_draws=5)
    broken = cd.breakdown(single, "label")
    for result, message in (
        (drawn, r"a resampling of a result .*half samples\): give the result"),
        (broken, "a breakdown of a result: give the result"),
        (xr.Dataset(), "no object of croma-dask"),
        ([], "found none"),
        ({"x": 3}, "result 'x' is a int"),
        (7, "found int"),
    ):
        with pytest.raises(cd.SchemaError, match=message):
            cd.report(result, path)
    with pytest.raises(cd.StoreError, match="no result"):
        cd.report(tmp_path / "absent.zarr", path)
    for wrong in (-1, "5", 1.5, True):
        with pytest.raises(cd.SchemaError, match="n_draws must be a whole number"):
            cd.report(single, path, n_draws=wrong)  # type: ignore[arg-type]
        with pytest.raises(cd.SchemaError, match="seed must be a whole number"):
            cd.report(single, path, seed=wrong)  # type: ignore[arg-type]
    assert not path.exists()
