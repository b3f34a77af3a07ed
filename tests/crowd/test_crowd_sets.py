"""The default on real crowds: never far from the best simple method, whatever that is."""

from __future__ import annotations

import numpy as np
import pytest

from dubito.crowd import CrowdLabels, aggregate

# Best of vote, crowd-kit's Dawid-Skene, one-coin and GLAD on the set (measured once).
BEST = {
    "bluebird": 0.8889,
    "d_sentiment": 0.9600,
    "labelme": 0.7920,
    "music_labels": 0.7929,
    "product": 0.9397,
    "rte": 0.9275,
    "sentiment_text": 0.9166,
    "sp_amt": 0.9460,
    "weather_cf": 0.8867,
    "weather_cf_amt": 0.8600,
}


@pytest.mark.parametrize("name", BEST)
def test_never_more_than_a_point_below_the_best(shared_data, name):
    with np.load(shared_data / "crowd" / name / f"{name}.npz") as file:
        truth = file["truth"] if "truth" in file else file["y_train"]
        columns = [file[k].astype(np.int64) for k in ("item", "worker", "label")]
    crowd = CrowdLabels(*columns, item_ids=len(truth), duplicates="keep")
    result = aggregate(crowd)
    gold = truth >= 0
    assert result.converged
    assert (result.codes.numpy()[gold] == truth[gold]).mean() >= BEST[name] - 0.01
