"""Pages that live at the top of the repository (contributing, security, changes) as pages of the site.

Links to them are written so that they work in the repository (`../SECURITY.md`); here they are turned to the site's
own copies, which are made of the originals when a page is read.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

OUTSIDE = {"contributing": "CONTRIBUTING.md", "security": "SECURITY.md", "changelog": "CHANGELOG.md"}
LINK = re.compile(r"\]\((\.\./)+(" + "|".join(map(re.escape, OUTSIDE.values())) + r")")
INSIDE = re.compile(r"\]\(docs/")


def read(app: Any, name: str, source: list[str]) -> None:
    """Replace the text of a page about to be parsed."""
    if name in OUTSIDE:
        source[0] = INSIDE.sub("](", (Path(app.srcdir).parent / OUTSIDE[name]).read_text(encoding="utf-8"))
    up = "../" * name.count("/")
    source[0] = LINK.sub(lambda m: f"]({up}{Path(m[2]).stem.lower()}.md", source[0])


def setup(app: Any) -> dict[str, Any]:
    """Look at every page before it is parsed."""
    app.connect("source-read", read)
    app.connect("env-get-outdated", lambda *_: list(OUTSIDE))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
