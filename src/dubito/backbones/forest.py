"""Decision trees as a network: grown once from noisy labels, then frozen, under any head and loss."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Generator, Tensor, nn

from .._dense import check_sizes
from ..errors import DubitoError

TREES = 60
LEAVES = (4, 16)  # rows in each leaf at least: few where labels are good, more where many are wrong
BAG, MOST_ROWS = 0.75, 8000  # of each tree: this share of the rows, and no more than so many
MOST_NUMBERS = 400_000  # rows of a tree times classes, which bounds what its leaves hold
WIDE = 16  # features that each split chooses among, where half of them or their root are not more
DOUBT = 0.02  # of a uniform distribution in every prediction, whose logarithm is finite then
ROWS = 1024  # judged at a time
_MIX = (-7046029254386353131, -4658895280553007687, -7723592293110705685)  # odd, and nearly random bits


class Forest(nn.Module):
    """The logarithm of the class probabilities that the leaves of many trees hold, averaged over trees.

    Each tree is grown on a part of the rows that only the row's own numbers decide. So in training mode a row is
    judged by those trees alone that have not seen it, and what is trained on top cannot take labels that the
    trees know by heart for evidence; in evaluation mode all trees judge. Nothing in here is trained by gradients.

    Arguments:
        in_features, num_classes: of an empty forest, which takes its trees from `grow` or `load_state_dict`.

    Shapes: ``(N, ...) -> (N, num_classes)``.

    Reference:
        Breiman 2001

    Example:
        >>> x = torch.linspace(-1, 1, 200).unsqueeze(1)
        >>> forest = Forest.grow(x, (x[:, 0] > 0.3).long(), 2).eval()
        >>> forest(torch.tensor([[0.2], [0.4]])).argmax(1).tolist()
        [0, 1]
    """

    root: Tensor
    feature: Tensor
    threshold: Tensor
    child: Tensor
    value: Tensor
    share: Tensor

    def __init__(self, in_features: int, num_classes: int) -> None:
        super().__init__()
        check_sizes(in_features=in_features, num_classes=num_classes)
        self.in_features, self.out_features, self.depth = in_features, num_classes, 0
        self.register_buffer("root", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("feature", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("threshold", torch.zeros(0))
        self.register_buffer("child", torch.zeros(0, dtype=torch.int64))  # left and right by turns
        self.register_buffer("value", torch.zeros(0, num_classes))
        self.register_buffer("share", torch.zeros(()))

    @classmethod
    def grow(
        cls,
        inputs: Tensor,
        labels: Tensor,
        num_classes: int,
        *,
        trees: int = TREES,
        leaf: int | None = None,
        weight: Tensor | None = None,
        generator: Generator | None = None,
    ) -> Forest:
        """A forest of these rows.

        Arguments:
            inputs: numbers ``(N, ...)``, flattened.
            labels: classes ``(N,)``; rows with -1 are left out.
            trees, leaf: how many, and of how many rows each leaf is made at least; None takes that of `LEAVES`
                whose trees predict best the labels of rows that they have not seen.
            weight: how much each row counts ``(N,)``.
            generator: of what each split chooses among; None is a fresh one with seed 0.
        """
        check_sizes(num_classes=num_classes, trees=trees, leaf=1 if leaf is None else leaf)
        if len(labels) != len(inputs) or bool((labels >= num_classes).any()):
            raise DubitoError(
                "the labels do not fit", where="labels",
                expected=f"{len(inputs):,} classes below {num_classes}",
                got=f"{len(labels):,} up to {int(labels.max()) if len(labels) else -1}",
            )  # fmt: skip
        kept = labels >= 0
        if not bool(kept.any()):
            raise DubitoError(
                "a forest needs labels to grow", where="labels", got=f"{len(labels):,} unlabelled"
            )
        x, y = inputs[kept].flatten(1).float().cpu(), labels[kept].cpu()
        w = torch.ones(len(x)) if weight is None else weight[kept].cpu()
        source = torch.Generator().manual_seed(0) if generator is None else generator
        seeds = torch.randint(2**31 - 1, (trees,), generator=source).tolist()
        grown = []
        for rows in LEAVES if leaf is None else (leaf,):
            forest = cls(x.shape[1], num_classes)
            forest._grow(x, y, w, rows, seeds)
            grown.append(forest)
        return grown[0] if len(grown) == 1 else max(grown, key=lambda forest: forest._unseen(x, y, w))

    def _grow(self, x: Tensor, y: Tensor, weight: Tensor, leaf: int, seeds: list[int]) -> None:
        """A tree by each seed, on its part of the rows."""
        from sklearn.tree import DecisionTreeClassifier

        most = min(MOST_ROWS, MOST_NUMBERS // self.out_features)
        self.share = torch.tensor(min(BAG, most / len(x)))
        few = math.ceil(max(x.shape[1] ** 0.5, min(x.shape[1] / 2, WIDE)))
        found = []
        for bag, seed in zip(_bags(x, len(seeds), self.share).T, seeds):
            rows = bag if bool((weight[bag] > 0).any()) else weight > 0
            tree = DecisionTreeClassifier(min_samples_leaf=leaf, max_features=few, random_state=seed)
            tree.fit(x[rows].numpy(), y[rows].numpy(), weight[rows].numpy(), check_input=False)
            found.append((tree.tree_, torch.from_numpy(tree.classes_)))
        self._plant(found)

    def _unseen(self, x: Tensor, y: Tensor, weight: Tensor) -> float:
        """The weight of the rows whose labels are predicted by trees that have not seen them."""
        self.train()
        hits = torch.cat([self(part).argmax(1) for part in x.split(ROWS)]) == y
        return float((hits * weight).sum())

    def _plant(self, found: list[tuple[Any, Tensor]]) -> None:
        """Put the nodes of all trees behind one another; a leaf leads to itself."""
        parts: dict[str, list[Tensor]] = {"feature": [], "threshold": [], "child": [], "value": []}
        roots, count = [], 0
        for tree, classes in found:
            pairs = torch.stack(
                [torch.from_numpy(tree.children_left), torch.from_numpy(tree.children_right)], 1
            )
            ends = pairs[:, 0] < 0
            pairs = torch.where(ends.unsqueeze(1), torch.arange(len(pairs)).unsqueeze(1), pairs)
            p = torch.from_numpy(tree.value[:, 0])
            value = torch.zeros(len(p), self.out_features, dtype=torch.float64)
            value[:, classes] = p / p.sum(1, keepdim=True)
            roots.append(count)
            parts["feature"].append(torch.from_numpy(tree.feature).clamp(min=0).long())
            parts["threshold"].append(torch.from_numpy(tree.threshold).float())
            parts["child"].append((pairs + count).flatten())
            parts["value"].append(value.to(torch.get_default_dtype()))
            count += len(pairs)
        self.root = torch.tensor(roots)
        self.feature, self.threshold, self.child, self.value = (torch.cat(part) for part in parts.values())
        self.depth = max(int(tree.max_depth) for tree, _ in found)

    def forward(self, x: Tensor) -> Tensor:
        """(N, ...) -> (N, num_classes)."""
        if not len(self.root):
            raise DubitoError("a forest has no trees yet", remedy="make it by Forest.grow, or load its state")
        x = x.flatten(1)
        n, trees = len(x), len(self.root)
        begin = (torch.arange(n, device=x.device) * self.in_features).unsqueeze(1)
        node, flat = self.root.repeat(n, 1), x.reshape(-1)
        for _ in range(self.depth):
            right = flat.take(begin + self.feature.take(node)) > self.threshold.take(node)
            node = self.child.take(2 * node + right)
        p = self.value.index_select(0, node.flatten()).view(n, trees, -1)
        if self.training:
            unseen = (~_bags(x, trees, self.share)).to(p.dtype)
            p = torch.einsum("ntk,nt->nk", p, unseen) / unseen.sum(1, keepdim=True).clamp(min=1)
        else:
            p = p.mean(1)
        return torch.log((1 - DOUBT) * p + DOUBT / self.out_features)

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Take the trees of a saved forest, however many nodes they have."""
        for name, mine in list(self.named_buffers(recurse=False)):
            if (prefix + name) in state:
                setattr(self, name, mine.new_empty(state[prefix + name].shape))
        super()._load_from_state_dict(state, prefix, *rest)
        self.depth = _depth(self.root, self.child)


def begin(backbone: nn.Module, head: nn.Module) -> None:
    """Let a head on a forest begin with what the trees say: their classes are its classes."""
    if isinstance(backbone, Forest) and isinstance(mean := getattr(head, "mean", None), nn.Linear):
        nn.init.eye_(mean.weight)


def _depth(root: Tensor, child: Tensor) -> int:
    """How many steps lead from the roots to all leaves."""
    depth, node = 0, root
    while len(node):
        below = child.view(-1, 2)[node]
        node = below[below != node.unsqueeze(1)]
        depth += len(node) > 0
    return depth


def _bags(x: Tensor, trees: int, share: Tensor | float) -> Tensor:
    """Whether each tree grows on each row ``(N, trees)``: by a hash of the row, the same wherever it is met."""
    bits = (x.float() + 0.0).contiguous().view(torch.int32).long()  # no negative zero
    key = torch.arange(1, x.shape[1] + 1, device=x.device) * _MIX[0]
    row = ((bits + key) * _MIX[1] ^ (bits * _MIX[2] >> 29)).sum(1, keepdim=True)
    mixed = row + torch.arange(1, trees + 1, device=x.device) * _MIX[0]
    for factor in _MIX[1:]:
        mixed = (mixed ^ (mixed >> 31)) * factor
    return (mixed >> 33 & 0xFFFF) < share * 0x10000
