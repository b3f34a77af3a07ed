"""What the theme leaves undone for readers without a mouse or a screen.

Headings in the side bar get a level, the two side bars a name, blocks of code that scroll can be reached by
keyboard, and the arguments of a long signature are lines, not a list of definitions without terms. The pages are
changed at the end of a build; `tests/docs/test_site.py` runs axe over them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

LINES = re.compile(r"<dl>\n((?:<dd>.*</dd>\n)+)</dl>")
PLAIN = {
    '<p class="caption" role="heading">': '<p class="caption" role="heading" aria-level="2">',
    '<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="All pages">',
    '<aside class="toc-drawer': '<aside aria-label="On this page" class="toc-drawer',
    "<pre>": '<pre tabindex="0">',
    '<table class="docutils': '<table tabindex="0" class="docutils',
}


def mended(html: str) -> str:
    """One page with the gaps closed; a mended page stays as it is.

    Example:
        >>> mended("<pre>x</pre>")
        '<pre tabindex="0">x</pre>'
    """
    for old, new in PLAIN.items():
        html = html.replace(old, new)
    return LINES.sub(_lines, html)


def _lines(found: re.Match[str]) -> str:
    inner = found[1].replace("<dd>", '<span class="sig-line">').replace("</dd>\n", "</span>\n")
    return f'<span class="sig-lines">\n{inner}</span>'


def _finish(app: Any, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        for path in Path(app.outdir).rglob("*.html"):
            text = path.read_text(encoding="utf-8")
            new = mended(text)
            if new != text:
                path.write_text(new, encoding="utf-8")


def setup(app: Any) -> dict[str, Any]:
    """Mend the pages once all are written."""
    app.connect("build-finished", _finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
