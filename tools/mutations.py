"""Small changes to a syntax tree, each of which a test ought to notice.

Signs, operators, comparisons, constants, transposes, minimum for maximum, sum for mean: the faults that
still train. Left alone: docstrings, annotations, text, whatever only words an error, and numbers that are
guards rather than parts of a formula (at most 1e-4 or at least 1e4).
"""

from __future__ import annotations

import ast
import copy
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeGuard

OPERATORS: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
COMPARISONS: dict[type, type] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
PAIRS = [
    *(("min", "max"), ("amin", "amax"), ("argmin", "argmax"), ("minimum", "maximum"), ("all", "any")),
    *(("sum", "mean"), ("zeros", "ones"), ("zeros_like", "ones_like"), ("sin", "cos"), ("tril", "triu")),
    *(("exp", "log"), ("expm1", "log1p"), ("sqrt", "square"), ("softmax", "log_softmax"), ("floor", "ceil")),
    *(("cumsum", "cumprod"), ("logaddexp", "maximum"), ("sigmoid", "logsigmoid"), ("erf", "erfc")),
]
NAMES = {a: b for pair in PAIRS for a, b in (pair, pair[::-1])} | {"maximum": "minimum"}
Path = tuple[tuple[str, int | None], ...]
TRANSPOSES = ("mT", "T", "mH")
TRANSPOSING = ("transpose", "t", "abs", "neg")
# Guards against zero and overflow, tolerances, sizes of blocks: their exact value is no part of any formula.
SMALL, LARGE = 1e-4, 1e4


@dataclass(frozen=True)
class Mutant:
    """One change: where, what it read before, what it reads now, and which of equal changes."""

    original: ast.Module
    path: Path
    changed: ast.AST
    function: str
    line: int
    before: str
    after: str
    turn: int

    @property
    def tree(self) -> ast.Module:
        """The whole module with the change."""
        made = copy.deepcopy(self.original)
        _put(made, self.path, copy.deepcopy(self.changed))
        return ast.fix_missing_locations(made)

    @property
    def statement(self) -> range | None:
        """The lines of the changed statement (of a compound one, of its head); None if it runs at import."""
        found, inside = None, False
        for node, field in _steps(self.original, self.path):
            if isinstance(node, ast.FunctionDef):
                inside = inside or field == "body"
            elif isinstance(node, ast.stmt) and inside:
                body = getattr(node, "body", None)
                last = body[0].lineno - 1 if body else node.end_lineno
                found = range(node.lineno, max(last or 0, node.lineno) + 1)
            elif isinstance(node, ast.ClassDef):
                inside = False
        return found

    @property
    def extent(self) -> range:
        """The lines of the function that holds the change; none if it runs at import."""
        for node, field in _steps(self.original, self.path):
            if isinstance(node, ast.FunctionDef) and field == "body":
                return range(node.lineno, (node.end_lineno or node.lineno) + 1)
        return range(0)

    @property
    def name(self) -> str:
        """Names the mutant however the lines move: function, change, and which of equal changes."""
        return f"{self.function}: {self.before} -> {self.after}" + (f" #{self.turn}" if self.turn else "")


def mutants(source: str) -> Iterator[Mutant]:
    """Every mutant of a module, in the order of its text."""
    tree = ast.parse(source)
    turns: dict[tuple[str, str, str], int] = {}
    for function, path in list(_places(tree)):
        original = _follow(tree, path)
        for changed in _changes(original):
            before, after = ast.unparse(original), ast.unparse(changed)
            turn = turns[key] = turns.get(key := (function, before, after), -1) + 1
            yield Mutant(tree, path, changed, function, original.lineno, before, after, turn)


def functions(source: str) -> dict[str, str]:
    """A digest of every function and class, under the names that mutants carry; "" is the module itself."""
    tree = ast.parse(source)
    own = [node for node in tree.body if not isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    found = {"": _digest(ast.Module(own, []))}
    waiting = [("", node) for node in ast.iter_child_nodes(tree)]
    while waiting:
        outer, node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            outer = f"{outer}.{node.name}".lstrip(".")
            found[outer] = _digest(node)
        waiting += [(outer, child) for child in ast.iter_child_nodes(node)]
    return found


def _digest(node: ast.AST) -> str:
    return hashlib.sha256(ast.unparse(node).encode()).hexdigest()[:12]


def _places(node: ast.AST, function: str = "", path: Path = ()) -> Iterator[tuple[str, Path]]:
    """The expressions that may be changed, with the function that holds each."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "type_params") or _is_words(node, field):
            continue
        children = value if isinstance(value, list) else [value]
        for i, child in enumerate(children):
            if not isinstance(child, ast.AST) or _is_left_alone(child):
                continue
            step = (*path, (field, i if isinstance(value, list) else None))
            inside = function
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                inside = f"{function}.{child.name}".lstrip(".")
            if isinstance(child, (ast.expr, ast.AugAssign)):
                yield inside, step
            if not _is_negative_number(child):
                yield from _places(child, inside, step)


def _is_negative_number(node: ast.AST) -> TypeGuard[ast.UnaryOp]:
    """-1 is one number, not a sign and a number."""
    if not isinstance(node, ast.UnaryOp) or not isinstance(node.op, ast.USub):
        return False
    return isinstance(node.operand, ast.Constant)


def _is_words(node: ast.AST, field: str) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Assert) and field == "msg")


def _is_left_alone(node: ast.AST) -> bool:
    if isinstance(node, (ast.Raise, ast.Import, ast.ImportFrom)):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    return isinstance(node, ast.Call) and "DubitoError" in ast.unparse(node.func)


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in the place of one node."""
    if isinstance(node, (ast.BinOp, ast.AugAssign)):
        if type(node.op) in OPERATORS:
            yield _with(node, op=OPERATORS[type(node.op)]())
        elif isinstance(node.op, ast.MatMult) and isinstance(node, ast.BinOp):
            yield _with(node, left=node.right, right=node.left)
    elif _is_negative_number(node):
        for changed in _changes(node.operand):
            yield _with(node, operand=changed)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Not, ast.Invert)):
        yield node.operand
    elif isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            yield _with(node, ops=[*node.ops[:i], COMPARISONS[type(op)](), *node.ops[i + 1 :]])
    elif isinstance(node, ast.BoolOp):
        yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.IfExp):
        yield _with(node, body=node.orelse, orelse=node.body)
    elif isinstance(node, ast.Constant):
        yield from _constants(node)
    elif isinstance(node, ast.Call):
        yield from _calls(node)
    elif isinstance(node, ast.Attribute) and node.attr in TRANSPOSES and isinstance(node.ctx, ast.Load):
        yield node.value


def _constants(node: ast.Constant) -> Iterator[ast.AST]:
    value = node.value
    if isinstance(value, bool):
        yield ast.copy_location(ast.Constant(not value), node)
    elif isinstance(value, (int, float)) and value and not SMALL < abs(value) < LARGE:
        return
    elif isinstance(value, int):
        yield ast.copy_location(ast.Constant(value + 1), node)
    elif isinstance(value, float):
        yield ast.copy_location(ast.Constant(1.5 * value if value else 1.0), node)


def _calls(node: ast.Call) -> Iterator[ast.AST]:
    if isinstance(node.func, ast.Attribute):
        name = node.func.attr
        if name in NAMES:
            yield _with(node, func=_with(node.func, attr=NAMES[name]))
        elif name in TRANSPOSING:
            yield node.func.value
    elif isinstance(node.func, ast.Name) and node.func.id in ("min", "max", "any", "all"):
        yield _with(node, func=_with(node.func, id=NAMES[node.func.id]))
    for i, given in enumerate(node.keywords):
        if given.arg in ("min", "max"):
            other = ast.keyword(NAMES[given.arg], given.value)
            yield _with(node, keywords=[*node.keywords[:i], other, *node.keywords[i + 1 :]])


def _with(node: ast.AST, **fields: object) -> ast.AST:
    made = copy.copy(node)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def _steps(tree: ast.AST, path: Path) -> Iterator[tuple[ast.AST, str]]:
    """The nodes on the way to a place, each with the field that the way takes from there."""
    for i, (field, _) in enumerate(path):
        yield _follow(tree, path[:i]), field


def _follow(tree: ast.AST, path: Path) -> ast.AST:
    node = tree
    for field, i in path:
        value = getattr(node, field)
        node = value if i is None else value[i]
    return node


def _put(tree: ast.AST, path: Path, changed: ast.AST) -> None:
    (field, i), parent = path[-1], _follow(tree, path[:-1])
    if i is None:
        setattr(parent, field, changed)
    else:
        getattr(parent, field)[i] = changed
