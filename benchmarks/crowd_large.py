"""Ten million labels of ten thousand annotators: seconds and memory of the process.

    python benchmarks/crowd_large.py

One line per piece of work is appended to results/benchmarks/crowd.jsonl ($OUT where set).
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from typing import Any

import torch

from crowd import _status, record, simulated, timed
from dubito.crowd import CrowdLabels, aggregate, label_quality


def large(items: int = 2_000_000, annotators: int = 10_000) -> None:
    """Ten million labels: storing them, the vote, Dawid-Skene and the default, in a process of its own size."""
    _, item, who, label = simulated(items, annotators, 10, 5)
    start = time.perf_counter()
    crowd = CrowdLabels(item, who, label)
    built = time.perf_counter() - start
    del item, who, label
    gc.collect()
    held = sum(t.numel() * t.element_size() for t in (crowd.item, crowd.annotator, crowd.label)) / 2**20
    works: dict[str, Callable[[], Any]] = {
        "vote": lambda: aggregate(crowd, "vote"),
        "dawid-skene, 10 steps": lambda: aggregate(crowd, "dawid-skene", iterations=10, tolerance=0),
        "default, 10 steps": lambda: aggregate(crowd, iterations=10, tolerance=0),
        "default, to its end": lambda: aggregate(crowd),
        "label quality": lambda: label_quality(crowd, aggregate(crowd, "vote")),
    }
    for name, work in works.items():
        before = _status("VmRSS")
        seconds, grown, busy = timed(work)
        facts = {"labels": len(crowd), "annotators": annotators, "classes": 10, "labels_mb": held}
        record("large", work=name, seconds=seconds, cpu_s=busy, rss_before_mb=before, grown_mb=grown, **facts)
        print(
            f"{name:24} {seconds:7.2f} s, process {before:.0f} MB before, peak {grown:+.0f} MB "
            f"(labels themselves {held:.0f} MB, stored in {built:.1f} s)",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=2_000_000)
    parser.add_argument("--annotators", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    large(options.items, options.annotators)


if __name__ == "__main__":
    main()
