"""Two processes with a part of the items each find what one process finds."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest
import torch

from dubito.crowd import CrowdLabels, aggregate

WORKER = """
import json, sys
import numpy as np, torch, torch.distributed as dist
from dubito.crowd import CrowdLabels, aggregate
from dubito.errors import DubitoError
rank, port, path = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
data = np.load(path)
out = {}
for name, cut in (("uneven", 70), ("empty", 100)):
    mine = data["item"] < cut if rank == 0 else data["item"] >= cut
    items = range(cut) if rank == 0 else range(cut, 100)
    columns = [data[k][mine] for k in ("item", "who", "label")]
    crowd = CrowdLabels(*columns, classes=3, annotator_ids=9, item_ids=list(items))
    for method in ("hierarchical", "dawid-skene", "one-coin", "skill"):
        r = aggregate(crowd, method, distributed=True, iterations=25)
        out[f"{name} {method}"] = [r.probabilities.tolist(), r.skills.tolist(), r.log_likelihood, r.trace.tolist(),
            r.skill_intervals().tolist()]
ids = range(9) if rank == 0 else range(8, -1, -1)
crowd = CrowdLabels([0], [0], [0], classes=3, annotator_ids=list(ids))
try:
    aggregate(crowd, distributed=True)
except DubitoError as error:
    out["refused"] = str(error)
print(json.dumps(out))
dist.destroy_process_group()
"""


@pytest.mark.rel
def test_two_processes_equal_one(simulate, tmp_path):
    """Scorecard 37: uneven and empty shards of items, all-reduced counts, the same answer."""
    crowd, *_ = simulate(0, items=100, annotators=9, each=4)
    columns = {"item": crowd.item.numpy(), "who": crowd.annotator.numpy(), "label": crowd.label.numpy()}
    first_label = np.isin(np.arange(len(crowd)), np.unique(columns["item"], return_index=True)[1])
    kept = (columns["item"] < 85) | first_label  # the last items have one label, on the second process alone
    columns = {name: values[kept] for name, values in columns.items()}
    np.savez(tmp_path / "labels.npz", **columns)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(rank), port, str(tmp_path / "labels.npz")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
        )
        for rank in range(2)
    ]
    finished = [p.communicate(timeout=120) for p in started]
    assert [p.returncode for p in started] == [0, 0], finished
    first, second = (json.loads(out.splitlines()[-1]) for out, _ in finished)
    whole = CrowdLabels(*columns.values(), classes=3, annotator_ids=9)
    for name in ("uneven", "empty"):
        for method in ("hierarchical", "dawid-skene", "one-coin", "skill"):
            one = aggregate(whole, method, iterations=25)
            a, b = first[f"{name} {method}"], second[f"{name} {method}"]
            both = torch.tensor(a[0] + b[0], dtype=torch.float64)
            torch.testing.assert_close(both, one.probabilities, atol=1e-9, rtol=0)
            assert a[1:] == b[1:]
            np.testing.assert_allclose(a[1], one.skills.numpy(), atol=1e-9)
            np.testing.assert_allclose(a[2], one.log_likelihood, atol=1e-7)
            assert np.diff(a[3]).min() > -1e-9
            np.testing.assert_allclose(a[4], one.skill_intervals().numpy(), atol=1e-9)
    assert "different annotators" in first["refused"]
    assert "different annotators" in second["refused"]


@pytest.mark.gpu
def test_gpu_equals_cpu(simulate):
    from dubito.crowd import ask_next, label_quality, update

    crowd, *_ = simulate(0, items=300, annotators=20, each=5)
    moved = crowd.to("cuda")
    for method in ("hierarchical", "dawid-skene", "one-coin", "skill", "glad", "vote", "soft-vote"):
        a, b = aggregate(crowd, method, gold={0: 1}), aggregate(moved, method, gold={0: 1})
        torch.testing.assert_close(a.probabilities, b.probabilities.cpu(), atol=1e-7, rtol=0)
        torch.testing.assert_close(a.skill_intervals(), b.skill_intervals().cpu(), atol=1e-7, rtol=0)
        torch.testing.assert_close(label_quality(crowd, a), label_quality(moved, b).cpu(), atol=1e-7, rtol=0)
        assert ask_next(crowd, a, 3).items.tolist() == ask_next(moved, b, 3).items.tolist()
    more = crowd.append([999], [0], [1])
    result = update(aggregate(moved), more.to("cuda"))
    assert len(result.codes) == 301
