"""Starting from an earlier aggregate, and going on from it with new labels."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ..errors import DubitoError
from ._coding import find, lookup
from ._layout import Layout
from ._rules import Fitted, Rule
from .labels import CrowdLabels
from .result import Aggregate


def carry_over(previous: Aggregate, crowd: CrowdLabels, layout: Layout, rule: Rule) -> tuple[Fitted, Tensor]:
    """Matrices and class prior of an earlier aggregate for the annotators of this crowd.

    Annotators are matched by id; new ones begin with the crowd's matrix.
    """
    state = previous.state
    if len(state.counts) == 0:
        raise DubitoError(
            f"method {previous.method!r} leaves no matrices to start from", remedy="drop start="
        )
    who = torch.from_numpy(find(previous.annotators, lookup(crowd.annotator_ids))).long().to(layout.device)
    counts = move(layout, who[state.layout.key_annotator], state.layout.key_label, state.counts)
    hyper = dict(state.fitted.hyper)
    if "ability" in hyper:
        ability = layout.zeros(layout.num_annotators)
        ability[who[who >= 0]] = hyper["ability"][who >= 0]
        hyper["ability"] = ability
    last = replace(state.fitted, hyper=hyper) if _speaks(rule, hyper) else None
    return rule.fit(layout, counts, last, burning=last is None), previous.class_prior


def _speaks(rule: Rule, hyper: dict[str, Tensor]) -> bool:
    """Whether the remembered values are those that this rule reads."""
    wanted = {"Full": "pooled", "OneCoin": "share", "Skill": "ability", "Hierarchical": "strength"}
    return wanted[type(rule).__name__] in hyper


def move(layout: Layout, annotator: Tensor, label: Tensor, values: Tensor) -> Tensor:
    """Key values under this layout's numbering; keys that it does not have are dropped."""
    own = layout.key_annotator * layout.num_classes + layout.key_label
    key = annotator * layout.num_classes + label
    known = torch.isin(key, own)  # no key of annotator -1 is among them
    place = torch.searchsorted(own, key[known])
    return layout.zeros(len(own), layout.num_classes).index_add_(0, place, values[known])


@dataclass(frozen=True)
class Part:
    """The items whose labels changed, as a crowd of their own."""

    crowd: CrowdLabels
    num_items: int  # of the whole crowd
    touched: Tensor  # their codes in it
    present: Tensor  # keys of the whole crowd
    previous: Aggregate
    gone_keys: Tensor  # keys of the touched items' old labels, as annotator * classes + label
    gone: Tensor  # and their old posteriors
    items: Tensor  # expected items per class among the others

    def known(self) -> Tensor | None:
        """Classes of all items of the whole crowd that the earlier aggregate was given as known, -1 elsewhere."""
        gold = self.previous.state.gold
        if gold is None:
            return None
        new = gold.new_full((self.num_items - len(gold),), -1)
        return torch.cat([gold, new])

    def rest(self, layout: Layout) -> Tensor:
        """Counts of all labels on untouched items."""
        return self._minus(layout, self.previous.state.counts, self.gone)

    def rest_squares(self, layout: Layout) -> Tensor:
        """The same for squared posteriors."""
        return self._minus(layout, self.previous.state.squares, self.gone.square())

    def _minus(self, layout: Layout, old: Tensor, gone: Tensor) -> Tensor:
        keys, K = self.previous.state.layout, layout.num_classes
        counts = move(layout, keys.key_annotator, keys.key_label, old)
        taken = move(layout, self.gone_keys // K, self.gone_keys % K, gone.double())
        return (counts - taken).clamp(min=0.0)


def changed_part(previous: Aggregate, crowd: CrowdLabels) -> Part | None:
    """Labels of the items whose labels are not what they were; None when there is no such item."""
    if (
        previous.classes.tolist() != crowd.classes.tolist()
        or not np.array_equal(previous.items, crowd.item_ids[: len(previous.items)])
        or not np.array_equal(previous.annotators, crowd.annotator_ids[: len(previous.annotators)])
    ):
        raise DubitoError(
            "not the earlier crowd with labels appended",
            remedy="use CrowdLabels.append, or aggregate(crowd, start=previous)",
        )
    touched = _touched(previous, crowd)
    if not bool(touched.any()) and crowd.num_annotators == len(previous.annotators):
        return None
    K = crowd.num_classes
    codes = touched.nonzero().flatten()
    part = crowd.select(touched[crowd.item.long()].nonzero().flatten())
    place = touched.int().cumsum(0, dtype=torch.int32) - 1
    part.item = place[part.item.long()]
    part.item_ids = crowd.item_ids[codes.cpu().numpy()]
    present = torch.zeros(crowd.num_annotators * K, dtype=torch.bool, device=crowd.item.device)
    before = previous.state.layout
    present[before.key_annotator * K + before.key_label] = True
    q = previous.probabilities
    were = touched[previous.state.given[0].long()]
    item, annotator, label = (column[were] for column in previous.state.given)
    known = codes[codes < len(q)]
    return Part(
        crowd=part,
        num_items=crowd.num_items,
        touched=codes,
        present=present,
        previous=previous,
        gone_keys=annotator.long() * K + label,
        gone=q[item.long()],
        items=(previous.state.items - q[known].double().sum(0)).clamp(min=0.0),
    )


def _touched(previous: Aggregate, crowd: CrowdLabels) -> Tensor:
    """Which items are new or have other labels than before, ``(items,)``."""
    touched = torch.zeros(crowd.num_items, dtype=torch.bool, device=crowd.item.device)
    touched[len(previous.items) :] = True
    before, now = previous.state.given, (crowd.item, crowd.annotator, crowd.label)
    old = len(before[0])
    if all(torch.equal(a, b[:old]) for a, b in zip(before, now)):  # appended and nothing else
        touched[crowd.item[old:].long()] = True
        return touched
    # Rows may have gone or moved: an item is what it was if each of its (annotator, label) is as frequent.
    per_item = crowd.num_annotators * crowd.num_classes
    keys = [n.long() * per_item + r.long() * crowd.num_classes + y for n, r, y in (before, now)]
    found, number = torch.unique(torch.cat(keys), return_inverse=True)
    change = torch.bincount(number[old:], minlength=len(found)) - torch.bincount(
        number[:old], minlength=len(found)
    )
    touched[torch.div(found[change != 0], per_item, rounding_mode="floor")] = True
    return touched


def spread_out(previous: Aggregate, part: Part, posterior: Tensor) -> Tensor:
    """Posteriors of all items: the old ones and, where labels changed, the new ones."""
    old = previous.probabilities
    out = old.new_empty(part.num_items, old.shape[1])
    out[: len(old)] = old
    out[part.touched] = posterior.to(old.dtype)
    return out
