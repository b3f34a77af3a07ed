"""Tasks on a Ray cluster of two nodes in one machine, one of which is taken away.

Nightly, and only where ray is installed (`pip install 'dubito[ray]'`).
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
import sweep_fakes

from dubito.errors import DubitoError
from dubito.papers import cluster, item
from dubito.papers.choose import chosen
from dubito.papers.cluster import sweep_on_ray
from dubito.papers.collect import collect
from dubito.papers.jobs import execute
from dubito.papers.render import render
from dubito.papers.results import read
from dubito.papers.sweep import CRASHED, KILLED, OUT_OF_MEMORY

NAME = "englesson2023.table1-mnist"
pytestmark = pytest.mark.nightly


@pytest.fixture
def nodes(monkeypatch):
    """A head and a second node, each with one processor and, so it says, one GPU."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))  # the nodes import the runs of the tests

    made = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 1, "include_dashboard": False}
    )
    second = made.add_node(num_cpus=1, num_gpus=1)
    ray.init(address=made.address, log_to_driver=False)
    made.wait_for_nodes()
    yield made, second
    ray.shutdown()
    made.shutdown()


def lines(path: Path) -> Counter[str]:
    return Counter(path.read_text().split())


@pytest.mark.rel
def test_forty_runs_with_failures_and_a_lost_node(nodes, tmp_path):
    """Scorecard 36 on a cluster: 5 crash, 2 run out of memory, a node is lost: 33 finish, 7 are reported."""
    made, second = nodes

    def lose() -> None:
        while len(list(tmp_path.rglob("fake/*.json"))) < 6:
            time.sleep(0.05)
        made.remove_node(second, allow_graceful=False)

    thread = threading.Thread(target=lose)
    thread.start()
    seen: list[tuple[int, int, int]] = []
    found = sweep_on_ray(
        sweep_fakes.configs(),
        tmp_path,
        gpus=0.5,
        run=sweep_fakes.fake,
        options={"seconds": 0.3},
        progress=lambda *counts: seen.append(counts),
    )
    thread.join()
    assert len(found.finished) == 33
    kinds = {f.config.seed: f.kind for f in found.failed}
    expected = dict.fromkeys(sweep_fakes.CRASH, CRASHED) | dict.fromkeys(sweep_fakes.MEMORY, OUT_OF_MEMORY)
    assert kinds == expected
    assert seen[-1] == (33, 7, 40)
    ended = lines(tmp_path / "ended.txt")
    assert len(ended) == 33
    assert set(ended.values()) == {1}  # nothing doubled
    assert len(read(tmp_path)) == 33
    # Exceptions are not retried; what was cut short with the node may have started twice.
    started = lines(tmp_path / "started.txt")
    assert max(started.values()) <= 2
    assert sum(started.values()) <= 40 + 2


def test_a_run_that_kills_its_process_is_sent_again_and_then_reported(nodes, tmp_path):
    configs = [sweep_fakes.config(seed) for seed in (0, 1, 2)]
    found = sweep_on_ray(configs, tmp_path, gpus=0.25, retries=1, run=sweep_fakes.dying)
    assert {c.seed for c in found.finished} == {0, 1}
    assert [(f.config.seed, f.kind) for f in found.failed] == [(2, KILLED)]


def test_results_travel_where_the_folder_does_not(nodes, tmp_path, monkeypatch):
    """A node that does not see the folder: its result and its failure come back to the driver."""
    monkeypatch.setattr(Path, "touch", lambda self, **_: None)  # no mark, so no node believes in the folder
    found = sweep_on_ray(
        [sweep_fakes.config(seed) for seed in (0, 3)], tmp_path, gpus=0, run=sweep_fakes.fake
    )
    assert [c.seed for c in found.finished] == [0]
    assert [(f.config.seed, f.kind) for f in found.failed] == [(3, CRASHED)]
    assert not (tmp_path / "started.txt").exists()


def test_the_cluster_gives_the_table_of_local_processes(nodes, tiny_data, tmp_path):
    made = item(NAME).make("smoke", None, None)
    configs = [
        dataclasses.replace(c, train=24, validation=8, test=8, batch=12, epochs=1)
        for c in chosen(made, ["method=ce,gce,ln", "noise=asymmetric", "rate=0.4"])
    ]
    tables = []
    for place, how in (("a", {"ray": True, "gpus": 0.0}), ("b", {})):
        execute(configs, tmp_path / place, root=tiny_data, device="cpu", say=list, **how)
        found = read(tmp_path / place)
        assert len(found) == 3
        same = {
            dataclasses.replace(r.config, train=64, validation=32, test=64, batch=32, epochs=2): r
            for r in found
        }
        when = {"date": "", "seconds": 0.0, "commit": ""}  # not of the numbers
        results = [dataclasses.replace(r, config=c, **when) for c, r in same.items()]
        tables.append(render(collect(NAME, item(NAME), results, size="smoke")))
    assert tables[0] == tables[1]
    assert "(1)" in tables[0]


def test_shares_of_a_gpu(nodes):
    ray = pytest.importorskip("ray")
    assert cluster._gpus(ray, None, {}) == 1.0
    assert cluster._gpus(ray, None, {"device": "cpu"}) == 0.0
    assert cluster._gpus(ray, 0.25, {}) == 0.25


def test_shares_that_mean_nothing_are_refused(tmp_path):
    for wrong in ({"retries": -1}, {"cpus": 0.0}, {"gpus": -1.0}):
        with pytest.raises(DubitoError, match="share"):
            sweep_on_ray([], tmp_path, **wrong)
