"""What the names inside a numpy or torch pickle stand for, written out here so that none is ever looked up."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..errors import DubitoError
from ._files import Array, array_bytes

_DTYPE = re.compile(r"[<>|=]?(?:[biufc](?:1|2|4|8|16)|[SU]\d{1,4})")
_STORAGE = {
    "BoolStorage": "?",
    "ByteStorage": "u1",
    "CharStorage": "i1",
    "ShortStorage": "<i2",
    "IntStorage": "<i4",
    "LongStorage": "<i8",
    "HalfStorage": "<f2",
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
}
# (module, name) -> what it does here.
_NAMES = {
    ("numpy.core.multiarray", "_reconstruct"): "array",
    ("numpy._core.multiarray", "_reconstruct"): "array",
    ("numpy.core.numeric", "_frombuffer"): "frombuffer",
    ("numpy._core.numeric", "_frombuffer"): "frombuffer",
    ("numpy.core.multiarray", "scalar"): "scalar",
    ("numpy._core.multiarray", "scalar"): "scalar",
    ("numpy", "ndarray"): "type",
    ("numpy", "dtype"): "dtype",
    ("_codecs", "encode"): "encode",
    ("collections", "OrderedDict"): "dict",
    ("torch._utils", "_rebuild_tensor_v2"): "tensor",
    **{("torch", name): "storage" for name in _STORAGE},
}


class Global(NamedTuple):
    """A name that a pickle mentions; inert."""

    kind: str
    name: str


class DType:
    """A numpy dtype under construction: the pickle sets its byte order after it was shared."""

    def __init__(self, value: np.dtype[Any]) -> None:
        self.value = value


class Cell:
    """An array under construction."""

    value: Array | None = None


class Workshop:
    """Makes arrays from what a pickle says; `budget` bounds the bytes made by recoding text."""

    def __init__(self, where: str, budget: int) -> None:
        self.where, self.budget = where, budget

    def refusal(self, got: str) -> DubitoError:
        return DubitoError(
            "refused to read a pickle",
            where=self.where,
            expected="numbers, text and arrays only",
            got=got[:200],
        )

    def check_protocol(self, protocol: int) -> None:
        if not 2 <= protocol <= 5:
            raise self.refusal(f"pickle protocol {protocol}")

    def check_frame(self, size: int, whole: int) -> None:
        if size > whole:
            raise self.refusal(f"a frame of {size} bytes")

    def name(self, module: str, name: str) -> Global:
        kind = _NAMES.get((module, name))
        if kind is None:
            raise self.refusal(f"the name {module}.{name}, which was not looked up")
        return Global(kind, name)

    def call(self, function: Global, arguments: tuple[Any, ...]) -> object:
        makers: dict[str, Callable[..., object]] = {
            "array": self._array,
            "frombuffer": self._frombuffer,
            "scalar": self._scalar,
            "dtype": self._dtype,
            "encode": self._encode,
            "dict": lambda *items: {} if not items else self._no(),
            "tensor": self._tensor,
        }
        make = makers.get(function.kind)
        if make is None:
            raise self.refusal(f"a call of {function.name}")
        return make(*arguments)

    def build(self, target: object, state: Any) -> None:
        if isinstance(target, DType):
            order = _latin(state[1])
            if order not in ("<", ">", "=", "|") or state[2:5] != (None, None, None):
                raise self.refusal("a structured dtype")
            if order in "<>":
                target.value = target.value.newbyteorder("<" if order == "<" else ">")
        elif isinstance(target, Cell):
            _, shape, dtype, fortran, data = state
            target.value = self._fill(data, dtype, shape, "F" if fortran else "C")
        elif not isinstance(target, dict) or state:
            raise self.refusal("the state of an object")

    def _no(self) -> Any:
        raise self.refusal("a dict with contents")

    def _array(self, kind: object, shape: object, code: object) -> Cell:
        return Cell()

    def _frombuffer(self, data: Any, dtype: Any, shape: Any, order: Any) -> Cell:
        cell = Cell()
        cell.value = self._fill(data, dtype, shape, "F" if _latin(order) == "F" else "C")
        return cell

    def _scalar(self, dtype: DType, data: Any) -> Any:
        return self._fill(data, dtype, (), "C").item()

    def _dtype(self, text: Any, align: object = False, copy: object = False) -> DType:
        text = _latin(text)
        if not _DTYPE.fullmatch(text):
            raise self.refusal(f"dtype {text!r}")
        return DType(np.dtype(text))

    def _encode(self, text: Any, encoding: Any) -> bytes:
        if not isinstance(text, str) or _latin(encoding) not in ("latin1", "latin-1"):
            raise self.refusal("an encoding other than latin1")
        self.budget -= len(text)
        if self.budget < 0:
            raise self.refusal("more recoded bytes than the file can hold")
        try:
            return text.encode("latin-1")
        except UnicodeEncodeError:
            raise self.refusal("text that is not latin1") from None

    def _fill(self, data: Any, dtype: Any, shape: Any, order: str) -> Array:
        if not isinstance(dtype, DType) or not isinstance(data, bytes):
            raise self.refusal(f"an array made of {type(data).__name__}")
        if (
            not isinstance(shape, tuple)
            or not all(type(s) is int and s >= 0 for s in shape)
            or len(shape) > 8
        ):
            raise self.refusal("an array without a proper shape")
        if array_bytes(shape, dtype.value.itemsize) != len(data):
            raise self.refusal(f"{len(data)} bytes for an array of shape {shape}")
        return np.frombuffer(data, dtype.value).reshape(shape, order="F" if order == "F" else "C")

    def _tensor(self, storage: Any, offset: Any, size: Any, stride: Any, *rest: object) -> Cell:
        """A contiguous torch tensor; `storage` is the flat array that the persistent reference stood for."""
        if (
            not isinstance(storage, np.ndarray)
            or not isinstance(size, tuple)
            or not isinstance(stride, tuple)
        ):
            raise self.refusal("a tensor without its storage")
        steps, step = [], 1
        for s in reversed(size):
            steps.append(step)
            step *= s
        if (
            tuple(reversed(steps)) != stride
            or type(offset) is not int
            or not 0 <= offset <= len(storage) - step
        ):
            raise self.refusal("a tensor that is not contiguous in its storage")
        cell = Cell()
        cell.value = storage[offset : offset + step].reshape(size)
        return cell


def storage_dtype(name: str) -> np.dtype[Any]:
    """The element type of a torch storage class."""
    return np.dtype(_STORAGE[name])


def as_array(value: object, where: str) -> Array:
    """An array that a pickle held, or a list of whole numbers as one."""
    if isinstance(value, Cell) and value.value is not None:
        return value.value
    if isinstance(value, list) and all(type(v) is int and abs(v) < 1 << 31 for v in value):
        return np.array(value, np.int64)
    raise DubitoError("not an array of numbers", where=where, got=type(value).__name__)


def entry(table: object, key: str, where: str) -> Any:
    """The entry of a pickled dict, whether its keys are text or the bytes of Python 2."""
    if not isinstance(table, dict):
        raise DubitoError("not a table", where=where, got=type(table).__name__)
    for name in (key, key.encode()):
        if name in table:
            return table[name]
    raise DubitoError(
        "missing entry", where=where, expected=key, got=", ".join(sorted(map(_latin, table)))[:200]
    )


def _latin(text: Any) -> str:
    return text.decode("latin-1") if isinstance(text, bytes) else str(text)
