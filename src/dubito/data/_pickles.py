"""Published pickle files, read by a small machine that can only make numbers, text, containers and arrays.

CIFAR's python batches and the CIFAR-N files are pickles, and a pickle is a program. This is the one place that
reads them: not with Python's unpickler, but by walking the opcodes of an allowlist. Nothing is ever imported or
called; the few names that numpy writes into its pickles (`numpy.dtype`, ...) select code of `_pickled_arrays`, and
any other name ends the reading. Work and memory are bounded by the size of the file.

Protocols 2 to 5 are read. Text of Python 2 comes back as bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ..errors import DubitoError
from ._files import Bytes
from ._pickled_arrays import Global, Workshop

_OPERATIONS = 1_000_000  # a whole CIFAR-100 file takes 300,000
_MARK: Any = object()
_KEYS = (str, bytes, int, float, bool, type(None))


def read_pickle(raw: Bytes, where: str, *, persistent: Callable[[object], object] | None = None) -> Any:
    """The object in a pickle; `persistent` resolves references to data outside it (torch's storages)."""
    return read_pickles(raw, where, 1, persistent=persistent)[0]


def read_pickles(
    raw: Bytes, where: str, count: int, *, persistent: Callable[[object], object] | None = None
) -> list[Any]:
    """The first `count` objects of a file that holds several pickles one after another."""
    machine = _Machine(raw, where, persistent)
    return [machine.run() for _ in range(count)]


class _Machine:
    """A stack, a memo and a position in the bytes."""

    def __init__(self, raw: Bytes, where: str, persistent: Callable[[object], object] | None) -> None:
        self.raw, self.where, self.persistent = memoryview(raw), where, persistent
        self.at = self.operations = 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.workshop = Workshop(where, budget=2 * len(raw) + 4096)

    def run(self) -> Any:
        self.stack, self.memo = [], {}
        try:
            while (code := self.take(1)[0]) != 0x2E:  # STOP
                self.operations += 1
                operation = _OPERATION.get(code)
                if operation is None or self.operations > _OPERATIONS:
                    raise self.refusal(
                        f"opcode {bytes([code])!r}" if operation is None else "too many opcodes"
                    )
                operation(self)
            return self.stack.pop()
        except DubitoError:
            raise
        except (LookupError, TypeError, AttributeError, ValueError, OverflowError, struct.error) as error:
            raise self.refusal(f"{type(error).__name__} while reading") from None

    def refusal(self, got: str) -> DubitoError:
        return DubitoError(
            "refused to read a pickle",
            where=f"{self.where}, byte {self.at}",
            expected="numbers, text and arrays only",
            got=got,
        )

    def take(self, size: int) -> memoryview:
        piece = self.raw[self.at : self.at + size]
        if len(piece) != size:
            raise self.refusal("the end of the file")
        self.at += size
        return piece

    def number(self, size: int, signed: bool = False) -> int:
        return int.from_bytes(self.take(size), "little", signed=signed)

    def line(self) -> str:
        end = bytes(self.raw[self.at : self.at + 256]).find(b"\n")
        if end < 0:
            raise self.refusal("a name without end")
        return bytes(self.take(end + 1))[:-1].decode("ascii")

    def marked(self) -> list[Any]:
        """What lies above the last mark."""
        for place in range(len(self.stack) - 1, -1, -1):
            if self.stack[place] is _MARK:
                items = self.stack[place + 1 :]
                del self.stack[place:]
                return items
        raise self.refusal("a missing mark")

    def top(self, kind: type) -> Any:
        if type(self.stack[-1]) is not kind:
            raise self.refusal(f"{type(self.stack[-1]).__name__} in the place of a {kind.__name__}")
        return self.stack[-1]


Operation = Callable[[_Machine], None]


def _constant(make: Callable[[], Any]) -> Operation:
    return lambda m: m.stack.append(make())


def _integer(size: int, signed: bool = False) -> Operation:
    return lambda m: m.stack.append(m.number(size, signed))


def _long(m: _Machine) -> None:
    size = m.number(1)
    if size > 16:
        raise m.refusal(f"an integer of {size} bytes")
    m.stack.append(m.number(size, signed=True))


def _data(width: int) -> Operation:
    return lambda m: m.stack.append(bytes(m.take(m.number(width))))


def _text(width: int) -> Operation:
    return lambda m: m.stack.append(str(m.take(m.number(width)), "utf-8", "surrogatepass"))


def _tuple(size: int) -> Operation:
    def make(m: _Machine) -> None:
        if len(m.stack) < size:
            raise m.refusal("too few values for a tuple")
        items = tuple(m.stack[len(m.stack) - size :])
        del m.stack[len(m.stack) - size :]
        m.stack.append(items)

    return make


def _append(m: _Machine) -> None:
    value = m.stack.pop()
    m.top(list).append(value)


def _set(m: _Machine, items: list[Any]) -> None:
    # Only flat keys: hashing a tuple nested a million deep would exhaust the C stack.
    if len(items) % 2 or not all(type(k) in _KEYS for k in items[::2]):
        raise m.refusal("a key that is neither text nor number")
    m.top(dict).update(zip(items[::2], items[1::2]))


def _set_one(m: _Machine) -> None:
    value, name = m.stack.pop(), m.stack.pop()
    _set(m, [name, value])


def _put(width: int) -> Operation:
    return lambda m: m.memo.__setitem__(m.number(width), m.stack[-1])


def _get(width: int) -> Operation:
    return lambda m: m.stack.append(m.memo[m.number(width)])


def _global(m: _Machine) -> None:
    module, name = m.line(), m.line()
    m.stack.append(m.workshop.name(module, name))


def _stack_global(m: _Machine) -> None:
    name, module = m.stack.pop(), m.stack.pop()
    m.stack.append(m.workshop.name(str(module), str(name)))


def _reduce(m: _Machine) -> None:
    arguments = m.top(tuple)
    m.stack.pop()
    function: Global = m.top(Global)
    m.stack[-1] = m.workshop.call(function, arguments)


def _build(m: _Machine) -> None:
    state = m.stack.pop()
    m.workshop.build(m.stack[-1], state)


def _persistent(m: _Machine) -> None:
    if m.persistent is None:
        raise m.refusal("a reference to data outside the file")
    m.stack[-1] = m.persistent(m.stack[-1])


_OPERATION: dict[int, Operation] = {
    0x80: lambda m: m.workshop.check_protocol(m.number(1)),  # PROTO
    0x95: lambda m: m.workshop.check_frame(m.number(8), len(m.raw)),  # FRAME
    ord("("): lambda m: m.stack.append(_MARK),
    ord("0"): lambda m: m.stack.__delitem__(-1),
    ord("1"): lambda m: m.marked().clear(),
    ord("N"): _constant(lambda: None),
    0x88: _constant(lambda: True),
    0x89: _constant(lambda: False),
    ord("K"): _integer(1),
    ord("M"): _integer(2),
    ord("J"): _integer(4, signed=True),
    0x8A: _long,
    ord("G"): lambda m: m.stack.append(struct.unpack(">d", m.take(8))[0]),
    ord("U"): _data(1),
    ord("T"): _data(4),
    ord("C"): _data(1),
    ord("B"): _data(4),
    0x8E: _data(8),
    0x96: _data(8),  # BYTEARRAY8
    0x8C: _text(1),
    ord("X"): _text(4),
    0x8D: _text(8),
    ord("]"): _constant(list),
    ord("a"): _append,
    ord("e"): lambda m: (lambda items: m.top(list).extend(items))(m.marked()),
    ord("l"): lambda m: m.stack.append(m.marked()),
    ord(")"): _constant(tuple),
    ord("t"): lambda m: m.stack.append(tuple(m.marked())),
    0x85: _tuple(1),
    0x86: _tuple(2),
    0x87: _tuple(3),
    ord("}"): _constant(dict),
    ord("s"): _set_one,
    ord("u"): lambda m: _set(m, m.marked()),
    ord("q"): _put(1),
    ord("r"): _put(4),
    0x94: lambda m: m.memo.__setitem__(len(m.memo), m.stack[-1]),  # MEMOIZE
    ord("h"): _get(1),
    ord("j"): _get(4),
    ord("c"): _global,
    0x93: _stack_global,
    ord("R"): _reduce,
    ord("b"): _build,
    ord("Q"): _persistent,
}
