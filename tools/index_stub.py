"""Write src/dubito/__init__.pyi from the lazy index, so that type checkers see every public name."""

from __future__ import annotations

from pathlib import Path

import dubito

STUB = Path(__file__).parents[1] / "src" / "dubito" / "__init__.pyi"


def stub() -> str:
    """The text of the stub: one import per public name, sorted by module."""
    lines = ["# Made by tools/index_stub.py from the index in __init__.py."]
    lines += [f"from . import {name} as {name}" for name in sorted(dubito._MODULES)]
    by_home = sorted(dubito._HOME.items(), key=lambda pair: (pair[1], pair[0]))
    lines += [f"from .{home} import {name} as {name}" for name, home in by_home]
    return "\n".join([*lines, "", "__version__: str", "__all__: list[str]", ""])


if __name__ == "__main__":
    STUB.write_text(stub())
