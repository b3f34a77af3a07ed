"""Names, parameters and defaults of the public functions, as published: none changes by accident.

After a change that is meant to: ``python tests/reliability/test_signatures.py``, and a line in CHANGELOG.md.
"""

from __future__ import annotations

import importlib
import inspect
import json
from pathlib import Path
from typing import Any

import pytest

import dubito

PUBLISHED = Path(__file__).with_name("signatures.json")
MODULES = dubito._MODULES


def plain(value: Any) -> Any:
    """A default as it can be written down: numbers and text as they are, anything else by its name."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, tuple):
        return [plain(part) for part in value]
    return getattr(value, "__name__", type(value).__name__)


def signatures() -> dict[str, dict[str, Any]]:
    """{module.name: {parameter: default, or "(needed)"}}."""
    found: dict[str, dict[str, Any]] = {}
    for module in MODULES:
        home = importlib.import_module(f"dubito.{module}")
        public = getattr(home, "__all__", None) or sorted(vars(home))
        for name in public:
            thing = getattr(home, name)
            if name.startswith("_") or not (inspect.isfunction(thing) or inspect.isclass(thing)):
                continue
            if not getattr(thing, "__module__", "").startswith("dubito") or issubclass_of_tuple(thing):
                continue
            parameters = inspect.signature(thing).parameters.values()
            found[f"{module}.{name}"] = {
                p.name: "(needed)" if p.default is p.empty else plain(p.default) for p in parameters
            }
    return found


def issubclass_of_tuple(thing: Any) -> bool:
    return inspect.isclass(thing) and issubclass(thing, (tuple, Exception))


@pytest.mark.rel
def test_names_and_defaults_are_those_published() -> None:
    """Scorecard 25: nothing that was published vanishes, and no default moves."""
    known, here = json.loads(PUBLISHED.read_text(encoding="utf-8")), json.loads(json.dumps(signatures()))
    assert [name for name in known if name not in here] == [], "a published name is gone"
    moved = {name: here[name] for name, given in known.items() if not given.items() <= here[name].items()}
    assert moved == {}, "a parameter is gone or its default moved"


if __name__ == "__main__":
    rows = [f" {json.dumps(name)}: {json.dumps(given)}" for name, given in sorted(signatures().items())]
    PUBLISHED.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
