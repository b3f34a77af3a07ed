"""What a run ran on."""

from __future__ import annotations

import platform
import sys


def versions() -> dict[str, str]:
    """The versions that a number can depend on.

    Example:
        >>> sorted(versions())
        ['cuda', 'dubito', 'machine', 'numpy', 'python', 'torch']
    """
    import numpy as np
    import torch

    from . import __version__

    return {
        "dubito": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "cuda": torch.version.cuda or "none",
        "machine": f"{sys.platform} {platform.machine()}",
    }
