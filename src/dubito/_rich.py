"""What is used of rich. Its import draws from Python's global generator, which is put back as it was."""

import random

_before = random.getstate()

from rich.console import Console, Group  # noqa: E402
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn  # noqa: E402
from rich.progress import Progress as Bar  # noqa: E402
from rich.table import Table  # noqa: E402
from rich.text import Text  # noqa: E402

random.setstate(_before)

__all__ = [
    "Bar",
    "BarColumn",
    "Console",
    "Group",
    "MofNCompleteColumn",
    "Table",
    "Text",
    "TextColumn",
    "TimeRemainingColumn",
]
