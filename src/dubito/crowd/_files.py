"""Reading CSV and Parquet files of labels: text stays text, and every complaint names file and line."""

from __future__ import annotations

import csv
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .._files import check_delimiter, exists
from ..errors import DubitoError, nearest


def need(names: list[str], known: list[Any], where: str, remedy: str = "") -> None:
    """Refuse a table that lacks a column, with the nearest name."""
    for name in names:
        if name not in known:
            hint = remedy or nearest(str(name), known)
            raise DubitoError(f"no column {name!r}", where=where, remedy=hint)


def read(path: Path, names: list[str], delimiter: str | None) -> dict[str, Any]:
    """The named columns of a CSV or Parquet file."""
    check_kind(path)
    if path.suffix.lower() in (".parquet", ".pq"):
        return _read_parquet(path, names)
    return read_csv(path, names, delimiter)


def tidy(ids: Any) -> Any:
    """Ids of a file: white space around text is dropped and Unicode composed; numbers stay.

    Example:
        >>> tidy(["bob ", "bob", 7])
        ['bob', 'bob', 7]
    """
    return [_tidy(v) if type(v) is str else v for v in ids] if isinstance(ids, list) else ids


def _tidy(text: str) -> str:
    text = text.strip()
    return text if text.isascii() else unicodedata.normalize("NFC", text).strip("\ufeff").strip()


def check_kind(path: Path) -> None:
    """Refuse what is not there, and what its name says is no table."""
    if not exists(path):
        raise DubitoError("no such file", where=str(path))
    if path.suffix.lower() not in (".csv", ".tsv", ".txt", ".parquet", ".pq"):
        raise DubitoError("unknown kind of table", where=str(path), expected=".csv, .tsv, .txt or .parquet")


def _as_meant(wanted: list[str], there: list[str]) -> list[str]:
    """The names of the columns, without white space around those that are not wanted exactly as written."""
    return [name if name in wanted or name.strip() in there else name.strip() for name in there]


def _read_parquet(path: Path, names: list[str]) -> dict[str, Any]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise DubitoError("Parquet needs pyarrow", remedy="pip install 'dubito[tables]'") from None
    try:
        there = parquet.read_schema(path).names
        plain = _as_meant(names, there)
        need(names, plain, str(path))
        table = parquet.read_table(path, columns=[there[plain.index(n)] for n in names])
    except (ArrowException, OSError) as error:
        raise DubitoError("not a readable Parquet file", where=str(path), got=str(error)[:200]) from None
    out = {}
    for place, name in enumerate(names):
        column = table[place]
        if column.null_count:
            row = column.is_null().to_numpy().argmax()
            raise DubitoError(f"no value in column {name!r}", where=f"{path}, row {row}")
        if column.type in _numeric():
            out[name] = column.to_numpy()
            continue
        out[name] = values = column.to_pylist()
        row = next((i for i, v in enumerate(values) if isinstance(v, str) and not v.strip()), None)
        if row is not None:
            raise DubitoError(f"empty text in column {name!r}", where=f"{path}, row {row}")
    return out


def _numeric() -> set[Any]:
    import pyarrow as pa

    return {pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()}


def header(path: Path, delimiter: str | None = None) -> list[str]:
    """The names of a table's columns."""
    if not exists(path):
        raise DubitoError("no such file", where=str(path))
    if path.suffix.lower() in (".parquet", ".pq"):
        try:
            from pyarrow import ArrowException, parquet
        except ImportError:
            raise DubitoError("Parquet needs pyarrow", remedy="pip install 'dubito[tables]'") from None
        try:
            return list(parquet.read_schema(path).names)
        except (ArrowException, OSError) as error:
            raise DubitoError("not a readable Parquet file", where=str(path), got=str(error)[:200]) from None
    return next(_lines(path, delimiter), (0, list[str]()))[1]


def read_csv(path: Path, names: list[str], delimiter: str | None) -> dict[str, Any]:
    """The named columns of a CSV file as text, every cell checked."""
    lines = _lines(path, delimiter)
    top = next(lines, (0, list[str]()))[1]
    joined = ";" in "".join(top) and len(top) == 1
    top = _as_meant(names, top)
    need(names, top, f"{path}, line 1", 'pass delimiter=";"' if joined else "")
    twice = {n for n in names if top.count(n) > 1}
    if twice:
        raise DubitoError(f"column {twice.pop()!r} occurs twice", where=f"{path}, line 1")
    places = [top.index(n) for n in names]
    columns: list[list[str]] = [[] for _ in names]
    for line, cells in lines:
        if not cells:
            continue
        if len(cells) != len(top):
            raise DubitoError(
                "a row of another length", where=f"{path}, line {line}", expected=len(top), got=len(cells)
            )
        for name, column, place in zip(names, columns, places):
            if not cells[place].strip():
                raise DubitoError(
                    f"empty cell in column {name!r}", where=f"{path}, line {line}", remedy="fill or drop it"
                )
            column.append(cells[place])
    return dict(zip(names, columns))


def place_of(rows: Sequence[int], path: Path, delimiter: str | None) -> str:
    """Where these rows of labels are in the file: lines of text, rows of Parquet."""
    if path.suffix.lower() in (".parquet", ".pq"):
        return f"rows {_listed(rows)}"
    filled = (line for line, cells in _lines(path, delimiter) if cells)
    next(filled, None)
    wanted = set(rows)
    return f"lines {_listed([line for row, line in enumerate(filled) if row in wanted])}"


def _listed(numbers: Sequence[int]) -> str:
    return " and ".join([", ".join(map(str, numbers[:-1])), str(numbers[-1])])


def _lines(path: Path, delimiter: str | None) -> Iterator[tuple[int, list[str]]]:
    usual = "\t" if path.suffix.lower() == ".tsv" else ","
    separator = usual if delimiter is None else check_delimiter(delimiter, path)
    from ..data._rows import encoding_of

    line = 0
    try:
        encoding = encoding_of(path)
        with path.open(encoding=encoding, newline="") as file:
            reader = csv.reader(file, delimiter=separator, strict=True)
            for cells in reader:
                line = reader.line_num
                yield line, cells
    except UnicodeDecodeError as error:
        line = _undecodable(path) if encoding.startswith("utf-8") else line + 1
        raise DubitoError(
            f"not {'UTF-8' if encoding.startswith('utf-8') else encoding} text",
            where=f"{path}, line {line}",
            got=str(error.reason),
            remedy="save as UTF-8",
        ) from None
    except csv.Error as error:
        raise DubitoError("not a CSV file", where=f"{path}, after line {line}", got=str(error)) from None
    except OSError as error:
        raise DubitoError("cannot read", where=str(path), got=error.strerror) from None


def _undecodable(path: Path) -> int:
    """The number of the first line that is not UTF-8."""
    with path.open("rb") as file:
        for number, text in enumerate(file, 1):
            try:
                text.decode("utf-8")
            except UnicodeDecodeError:
                return number
    return 0


def separator(line: str) -> str | None:
    """What seems to separate the names in a first line that was read as one column."""
    return next((d for d in ";\t|," if d in line), None)


def separated(names: Sequence[str]) -> str | None:
    """What to do about a table that was read as one column because its cells are separated otherwise."""
    other = separator(names[0]) if len(names) == 1 else None
    return other and f"the columns seem to be separated by {other!r}: pass --delimiter {other!r}"
