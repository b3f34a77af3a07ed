"""One page per public module, made from the modules themselves while the site is built.

The repository holds a stub for each, so that links to the pages lead somewhere in it too.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

GROUPS = {
    "Stages": ["losses", "targets", "heads", "links", "channels", "weights", "penalties", "procedures"],
    "Models and training": ["model", "train", "methods", "compose", "optim", "evaluate", "backbones"],
    "Estimators": ["sklearn"],
    "Labels and noise": ["crowd", "noise", "estimate", "metrics", "uncertainty", "data"],
    "Integrals": ["integrals"],
    "Segmentation": ["segmentation"],
    "Papers and runs": ["papers", "checkpoint", "runs", "signals", "fast", "fast_crowd", "lanes"],
    "Promises": ["verify", "testing", "errors"],
}


def public(module: ModuleType) -> list[str]:
    """Functions and classes a module offers, in its own order."""
    named = getattr(module, "__all__", None)
    names = named or [n for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__]
    return [n for n in names if not n.startswith("_") and _shown(getattr(module, n))]


def _shown(value: Any) -> bool:
    return inspect.isfunction(value) or (inspect.isclass(value) and value.__module__.startswith("dubito"))


def exists(name: str) -> bool:
    """Whether the module is part of this version."""
    return importlib.util.find_spec(f"dubito.{name}") is not None


def page(name: str) -> str:
    """The Markdown of one module's page."""
    module = importlib.import_module(f"dubito.{name}")
    lines = [f"# dubito.{name}", "", "```{eval-rst}", f".. automodule:: dubito.{name}", "   :no-members:", ""]
    for member in public(module):
        value = getattr(module, member)
        kind = "class" if inspect.isclass(value) else "function"
        lines += [f".. auto{kind}:: dubito.{name}.{member}"]
        if not f"{value.__module__}.".startswith(f"dubito.{name}."):
            lines += ["   :no-index:"]  # at home on another page
        if kind == "class":
            lines += ["   :members:", "   :exclude-members: forward, count, index"]
        lines += [""]
    return "\n".join([*lines, "```", ""])


def top() -> str:
    """The page of what is imported as `dubito.name`."""
    import dubito

    index = [
        "# API",
        "",
        "Every public name, from its docstring. The names below are imported as `dubito.name`; the rest by module.",
        "",
        "```{eval-rst}",
        *(f".. autofunction:: dubito.{n}" for n in ("audit", "report")),
        "```",
        "",
        "| name | where |",
        "|---|---|",
        *(f"| `dubito.{n}` | {_place(m)} |" for n, m in dubito._HOME.items()),
        "",
    ]
    for title, names in GROUPS.items():
        found = [n for n in names if exists(n)]
        if found:
            index += ["```{toctree}", ":maxdepth: 1", f":caption: {title}", "", *found, "```", ""]
    return "\n".join(index)


def _place(module: str) -> str:
    return "this page" if module.startswith("_") else f"[dubito.{module}]({module}.md)"


def stub(name: str) -> str:
    """What the repository holds in place of a page: where the source is."""
    spec = importlib.util.find_spec(f"dubito.{name}")
    package = spec is not None and spec.submodule_search_locations
    where = f"{name}/__init__.py" if package else f"{name}.py"
    return f"# dubito.{name}\n\nMade from the docstrings of [{where}](../../src/dubito/{where}) by `make docs`.\n"


def modules() -> list[str]:
    """All modules that get a page."""
    return [n for names in GROUPS.values() for n in names if exists(n)]


def write(source: Path) -> None:
    """Put a stub where a module has none yet."""
    for name in modules():
        target = source / "api" / f"{name}.md"
        if not target.exists():
            target.write_text(stub(name), encoding="utf-8")


def read(_app: Any, name: str, source: list[str]) -> None:
    """Put the real page in the place of its stub."""
    folder, _, module = name.partition("/")
    if folder == "api":
        source[0] = top() if module == "index" else page(module)


def outdated(_app: Any, env: Any, *_changes: Any) -> list[str]:
    """A stub never changes, but what it stands for does: these pages are read anew at every build."""
    return [name for name in env.found_docs if name.startswith("api/")]


def setup(app: Any) -> dict[str, Any]:
    """Write missing stubs when a build begins; fill the pages as they are read."""
    app.connect("builder-inited", lambda app: write(Path(app.srcdir)))
    app.connect("source-read", read)
    app.connect("env-get-outdated", outdated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
