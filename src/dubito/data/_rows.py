"""Tables as streams of chunks: CSV, TSV and Parquet files, and data frames, with the place of every row."""

from __future__ import annotations

import codecs
import csv
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

from .._files import check_delimiter, exists
from ..errors import DubitoError, nearest
from ._files import one_line

_CHUNK = 8192
_LINE = 1 << 24
_ROWS = 1 << 28
_DELIMITERS = {".csv": ",", ".txt": ",", ".tsv": "\t", ".tab": "\t"}
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclass(frozen=True)
class Chunk:
    """Some rows: the cells of each wanted column, and where each row is."""

    source: str
    unit: str
    numbers: Sequence[int]
    cells: Mapping[str, Sequence[Any]]

    def where(self, row: int, column: str) -> str:
        return f"{self.source}, {self.unit} {self.numbers[row]}, column {column!r}"


def chunks(
    source: Any, columns: Sequence[str], *, encoding: str | None = None, delimiter: str | None = None
) -> Iterator[Chunk]:
    """The wanted columns of a file or a data frame, a few thousand rows at a time."""
    if hasattr(source, "columns") and hasattr(source, "iloc"):
        return _frame(source, columns)
    path = Path(source)
    if not exists(path):
        raise DubitoError("no such file", where=str(path))
    suffix = path.suffix.lower()
    if suffix in (".parquet", ".pq"):
        return _parquet(path, columns)
    if delimiter is None and suffix not in _DELIMITERS:
        raise DubitoError(
            "unknown kind of table",
            where=str(path),
            expected=".csv, .tsv or .parquet",
            got=suffix or "no suffix",
            remedy="give delimiter= for text of another name",
        )
    separator = _DELIMITERS[suffix] if delimiter is None else check_delimiter(delimiter, path)
    return _csv(path, columns, encoding, separator)


def check_columns(there: Sequence[str], wanted: Sequence[str], where: str, hint: str = "") -> None:
    """Every wanted column must be there once; the error names the nearest one."""
    for name in wanted:
        if list(there).count(name) != 1:
            raise DubitoError(
                "no such column" if name not in there else "column occurs twice",
                where=where,
                got=repr(name),
                remedy=hint or nearest(name, there),
            )


def _csv(path: Path, columns: Sequence[str], encoding: str | None, delimiter: str) -> Iterator[Chunk]:
    encoding = encoding or encoding_of(path)
    try:
        codecs.lookup(encoding)
    except LookupError:
        raise DubitoError("unknown encoding", where=str(path), got=repr(encoding)) from None
    with path.open(encoding=encoding, newline="") as f:
        reader = csv.reader(_lines(f, path), delimiter=delimiter)
        try:
            header = [name.strip() for name in next(reader, [])]
            hint = ""
            if len(header) == 1:
                other = next((d for d in ";\t|," if d in header[0] and d != delimiter), "")
                hint = (
                    f"the columns seem to be separated by {other!r}: give delimiter={other!r}"
                    if other
                    else ""
                )
            check_columns(header, columns, f"{path}, line 1", hint)
            places = [header.index(name) for name in columns]
            rows = ((reader.line_num, row) for row in reader if row)
            while block := list(islice(rows, _CHUNK)):
                for number, row in block:
                    if len(row) != len(header):
                        raise DubitoError(
                            "wrong number of cells",
                            where=f"{path}, line {number}",
                            expected=len(header),
                            got=len(row),
                        )
                cells = {name: [row[p] for _, row in block] for name, p in zip(columns, places)}
                yield Chunk(str(path), "line", [number for number, _ in block], cells)
        except csv.Error as error:
            raise DubitoError(
                "not a readable table", where=f"{path}, line {reader.line_num}", got=one_line(error)
            ) from None
        except UnicodeDecodeError as error:
            raise DubitoError(
                f"not {encoding} text",
                where=f"{path}, after line {reader.line_num}",
                got=f"byte 0x{error.object[error.start]:02x}",
                remedy="save it as UTF-8, or name its encoding (latin-1 is common in the West): encoding='latin-1'",
            ) from None


def encoding_of(path: Path) -> str:
    """By the byte order mark, else UTF-8; never guessed from the letters."""
    try:
        with path.open("rb") as f:
            head = f.read(4)
    except OSError as error:
        raise DubitoError("cannot read", where=str(path), got=error.strerror) from None
    return next((name for mark, name in _MARKS if head.startswith(mark)), "utf-8")


def _lines(f: IO[str], path: Path) -> Iterator[str]:
    """Lines of bounded length, so that a file without line ends is not read into memory.

    A byte order mark that the named encoding leaves in the text is no part of the first column's name.
    """
    number = 0
    while line := f.readline(_LINE):
        number += 1
        if len(line) == _LINE:
            raise DubitoError(
                "line too long", where=f"{path}, line {number}", expected=f"under {_LINE} letters"
            )
        yield line.removeprefix("\ufeff") if number == 1 else line


def _parquet(path: Path, columns: Sequence[str]) -> Iterator[Chunk]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(
            path, thrift_string_size_limit=1 << 26, thrift_container_size_limit=1 << 20
        ) as file:
            check_columns(file.schema_arrow.names, columns, str(path))
            # Of the metadata only the number of rows is looked at: its accessors abort the process on damage.
            if not 0 <= file.metadata.num_rows <= _ROWS:
                raise DubitoError("absurd number of rows", where=str(path), got=file.metadata.num_rows)
            number = 1
            for batch in file.iter_batches(_CHUNK, columns=list(columns)):
                cells = {name: batch.column(name).to_pylist() for name in columns}
                yield Chunk(str(path), "row", range(number, number + len(batch)), cells)
                number += len(batch)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DubitoError("not a readable Parquet file", where=str(path), got=one_line(error)) from None


def _frame(frame: Any, columns: Sequence[str]) -> Iterator[Chunk]:
    check_columns([str(c) for c in frame.columns], columns, "the data frame")
    by_text = {str(c): c for c in frame.columns}
    for start in range(0, len(frame), _CHUNK):
        part = frame.iloc[start : start + _CHUNK]
        cells = {name: part[by_text[name]].tolist() for name in columns}
        yield Chunk("data frame", "row", range(start, start + len(part)), cells)


def folder_of(source: Any) -> Path:
    """The folder that relative paths in a table refer to."""
    return Path(source).parent if isinstance(source, str | os.PathLike) else Path(".")
