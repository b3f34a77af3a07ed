"""A model and a set that processes score together: python scored_masks.py FILE"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from torch import distributed as dist

from dubito import _distributed, heads
from dubito.backbones import EncoderDecoder
from dubito.data import LabelledData
from dubito.segmentation import SegmentationModel, score_masks

K = 3


def model() -> SegmentationModel:
    network = EncoderDecoder(3, widths=(8,), decoder=8, stride=2, norm="group")
    return SegmentationModel(network, heads.Diagonal(8, K)).eval()


def data() -> LabelledData:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(7, 3, 12, 14, generator=g)
    y = torch.randint(K, (7, 4, 7), generator=g).repeat_interleave(3, 1).repeat_interleave(2, 2)
    y[:, :1] = -100
    return LabelledData(x, y)


def figures() -> dict[str, float]:
    ranks = _distributed.ranks(torch.device("cpu"))
    return score_masks(model(), data(), batch_size=3, ranks=ranks).results()


if __name__ == "__main__":
    torch.set_num_threads(1)
    Path(sys.argv[1]).write_text(json.dumps(figures()), encoding="utf-8")
    # Leave together: a process whose peer has gone may abort on its way out.
    dist.barrier()
    dist.destroy_process_group()
