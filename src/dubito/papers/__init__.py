"""The papers as runs: every table and figure as configs, the printed numbers as data, results as tables."""

from __future__ import annotations

import importlib
from types import ModuleType

from ..errors import DubitoError, nearest
from .configs import Config, run_id
from .items import Item

PAPERS = ("collier2020", "englesson2023", "lukasik2020", "tanno2019")
STUDIES = ("temperature",)  # experiments of our own, run like those of the papers

__all__ = ["PAPERS", "STUDIES", "Config", "Item", "item", "items", "paper", "run_id"]


def paper(name: str) -> ModuleType:
    """The module of a paper or study, with its `TABLES` and `FIGURES`."""
    if name not in PAPERS + STUDIES:
        raise DubitoError("no such paper", got=repr(name), remedy=nearest(name, PAPERS + STUDIES))
    return importlib.import_module(f".{name}", __name__)


def items(name: str) -> dict[str, Item]:
    """The tables and figures of a paper."""
    module = paper(name)
    return {**module.TABLES, **module.FIGURES}


def item(name: str) -> Item:
    """A table or figure by its full name.

    Example:
        >>> item("englesson2023.table1-mnist").title
        'synthetic noise, MNIST'
    """
    which, _, rest = name.partition(".")
    known = items(which)
    if not rest:
        remedy = f"write {which}. and one of {', '.join(known)}"
        raise DubitoError("a paper has several tables and figures", got=repr(name), remedy=remedy)
    if rest not in known:
        full = [f"{which}.{key}" for key in known]
        raise DubitoError("no such table or figure", got=repr(name), remedy=nearest(name, full))
    return known[rest]
