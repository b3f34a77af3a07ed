"""The page in a real browser: nothing runs that should not, and what should work does."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from dubito._report import report

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
AXE = os.environ.get("DUBITO_AXE", "")
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as tools:
        started = tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def visit(browser, tmp_path):
    """Open a page; gives it back with everything that went to the console or to the network."""
    contexts = []

    def go(content, **options):
        path = report(content, tmp_path / "report.html")
        context = browser.new_context(**options)
        contexts.append(context)
        page, noise = context.new_page(), []
        page.on("console", lambda message: noise.append(message.text))
        page.on("pageerror", lambda error: noise.append(str(error)))
        page.on("dialog", lambda dialog: noise.append(dialog.message))
        page.on(
            "request",
            lambda r: noise.append(r.url) if not r.url.startswith(("data:", "file:", "blob:")) else None,
        )
        page.goto(path.as_uri())
        return page, noise

    yield go
    for context in contexts:
        context.close()


def _ids(page):
    return page.eval_on_selector_all(
        "#suspects tbody tr:not([hidden])", "rows => rows.map(r => r.dataset.id)"
    )


@pytest.mark.rel
def test_hostile_names_run_nothing(visit, hostile, scorecard):
    """Scorecard 28: 0 scripts run in the report, in a real browser."""
    page, noise = visit(hostile)
    page.wait_for_timeout(300)
    hits = page.evaluate("typeof window.hit") != "undefined"
    scorecard(28, scripts_run=int(hits) + len(noise))
    assert not hits
    assert noise == []
    assert page.locator("h1").inner_text() == hostile.title


def test_sorting_and_filtering_work_by_keyboard(visit, plain_content):
    page, noise = visit(plain_content)
    first = _ids(page)
    assert len(first) == 24
    button = page.get_by_role("button", name="wrong")
    button.focus()
    page.keyboard.press("Enter")
    assert _ids(page) == first[::-1]
    assert page.locator("#suspects th[aria-sort=ascending]").inner_text().startswith("wrong")
    page.keyboard.press("Enter")
    assert _ids(page) == first
    page.get_by_role("button", name="rank").click()
    assert _ids(page) == first
    page.get_by_label("given label", exact=True).select_option("=cat")
    assert page.locator("#shown").inner_text() == "3 of 24 labels shown"
    page.get_by_label("find").fill("cat-8")
    assert _ids(page) == ["cat-8"]
    page.get_by_label("find").fill("")
    page.get_by_label("given label", exact=True).select_option("")
    page.get_by_label("wrong with at least (%)").fill("95")
    assert len(_ids(page)) == 2
    assert noise == []


def test_export_gives_the_shown_rows_and_no_formulas(visit, hostile):
    page, noise = visit(hostile, accept_downloads=True)
    page.get_by_label("find").fill("cmd|")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Export").click()
    lines = Path(waiting.value.path()).read_text(encoding="utf-8").splitlines()
    assert waiting.value.suggested_filename == "relabel.csv"
    assert lines[0] == "id,annotator,given,suggested,p_wrong,ask,gold"
    assert any(line.startswith("'=cmd") for line in lines)
    assert not any(cell[:1] in "=+-@" for line in lines for cell in line.split(",") if cell)
    assert noise == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
def test_page_fits_the_screen(visit, plain_content, scheme, width):
    page, noise = visit(plain_content, color_scheme=scheme, viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(13, 17, 23)")
    assert noise == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility(visit, plain_content, scheme):
    if not Path(AXE).is_file():
        pytest.skip("DUBITO_AXE does not name a copy of axe.min.js (npm install axe-core)")
    page, _ = visit(plain_content, color_scheme=scheme, bypass_csp=True)
    page.evaluate(Path(AXE).read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")
    assert [(v["id"], v["nodes"][0]["html"]) for v in found["violations"]] == []
    assert len(found["passes"]) > 20


def test_print_is_light_and_fits_the_page(visit, plain_content):
    page, _ = visit(plain_content, color_scheme="dark", viewport={"width": 720, "height": 1000})
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(13, 17, 23)"
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("document.documentElement.scrollWidth") <= 720
