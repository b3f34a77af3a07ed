"""The site is built without a warning, needs no network, and holds every public name."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
AXE = os.environ.get("DUBITO_AXE", "")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture
def extension(monkeypatch):
    """Import one of the site's own extensions."""
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))
    return importlib.import_module


def test_docstrings_become_plain_markup(extension):
    text = inspect.cleandoc("""One sentence with *stars*, |bars| and T_ij.

        l = sum_k w_k

    Shapes: logits ``(..., C)``.

    Arguments:
        first, second: what `they` are,
            over two lines.

    Reference:
        collier2020 eq. 6

    Example:
        >>> 1 + 1
        2
    """)
    lines = "\n".join(extension("docstrings").convert(text))
    assert r"\*stars\*, \|bars\| and T\_ij." in lines
    assert ".. code-block:: text\n\n   l = sum_k w_k" in lines
    assert "- ``first, second``: what \\ ``they``\\  are, over two lines." in lines
    assert "**Reference**\n\n- collier2020 eq. 6" in lines
    assert ".. code-block:: python\n\n   >>> 1 + 1\n   2" in lines


def test_every_public_module_has_a_page(extension):
    import dubito

    pages = extension("api_pages")
    missing = [m for m in dubito._MODULES if m not in pages.modules()]
    assert missing == []
    for module in pages.modules():
        assert (DOCS / "api" / f"{module}.md").is_file(), f"docs/api/{module}.md is missing: run make docs"
    assert ".. autofunction:: dubito.losses.gce" in pages.page("losses")
    assert "dubito.gce" in pages.top()


def test_every_page_is_in_the_contents():
    """Otherwise the build warns, and nobody finds the page."""
    index = (DOCS / "index.md").read_text(encoding="utf-8") + (DOCS / "stages" / "index.md").read_text(
        "utf-8"
    )
    named = set(re.findall(r"^(?:.* <)?(?:stages/|results/)?([\w-]+)>?$", index, re.MULTILINE))
    folders = (DOCS, DOCS / "stages", DOCS / "results")
    pages = {p.stem for folder in folders for p in folder.glob("*.md")} - {"index", "readme"}
    assert pages - named == set()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("furo", reason="the site's packages are not installed (make docs)")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(DOCS), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return out


@pytest.mark.nightly
def test_site_builds_and_needs_no_network(site, extension):
    page = (site / "stages" / "losses.html").read_text(encoding="utf-8")
    assert "<math" in page
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r'(?:<script[^>]+src|<link[^>]+href|<img[^>]+src)="https?://', text), path.name
    for module in extension("api_pages").modules():
        text = (site / "api" / f"{module}.html").read_text(encoding="utf-8")
        for name in extension("api_pages").public(importlib.import_module(f"dubito.{module}")):
            assert name in text, f"{module}.{name}"


@pytest.mark.nightly
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_pages_fit_a_phone_without_complaints(site):
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync.sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 390, "height": 800})
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("request", lambda r: said.append(r.url) if not r.url.startswith(("file:", "data:")) else None)
        wide = []
        for path in sorted(site.rglob("*.html")):
            page.goto(path.as_uri())
            inner, outer = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
            if inner > outer:
                wide.append(path.name)
        browser.close()
    assert wide == []
    assert said == []


MAIN = ("index", "start", "commands", "which-method", "audit", "crowd", "segmentation", "reproduce", "scale")
MAIN += ("reliability", "examples", "papers", "stages/index", "stages/losses", "api/index", "api/crowd")


@pytest.mark.nightly
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.skipif(not AXE, reason="DUBITO_AXE must be the path of axe.min.js")
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 390)])
def test_axe_has_nothing_to_object_to(site, scheme, width):
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = {}
    with sync.sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        for name in MAIN:
            page.goto((site / f"{name}.html").as_uri())
            page.evaluate(Path(AXE).read_text(encoding="utf-8"))
            bad = page.evaluate("axe.run().then(r => r.violations.map(v => [v.id, v.nodes[0].html]))")
            if bad:
                found[name] = bad
        browser.close()
    assert found == {}


def test_pages_are_mended_once(extension):
    mended = extension("access").mended
    html = '<pre>a</pre><aside class="sidebar-drawer">\n<dl>\n<dd>x,</dd>\n<dd>y,</dd>\n</dl>'
    once = mended(html)
    assert "tabindex" in once
    assert "<dd>" not in once
    assert mended(once) == once
