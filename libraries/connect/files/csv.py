"""CSV source."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv

from libraries.connect.files.discovery import Paths
from libraries.connect.files.epochs import EpochSpec
from libraries.connect.files.partition import BlockStart
from libraries.connect.files.source import FileSource, missing_columns
from libraries.connect.files.text_blocks import BLOCK_BYTES, LONG_INTEGER, TextBlocks, beyond_64_bits
from timely.data.batch import Batch
from timely.errors import SourceError, at_line
from timely.io.arguments import whole
from timely.io.column_types import Schema


class Csv(FileSource):
    """CSV files as tables or dicts, read in blocks of about `block_bytes`.

    A block is what `epoch="batch"` calls a batch.

    The first line holds the names, unless `names` gives them. Types are guessed from the first block of the
    first file and hold for all files (a column that is empty there is text); where that guess is wrong,
    `schema={"column": type}` says better. A column of integers of which one is beyond 64 bits needs a type from
    `schema`, and integers beside fractions are floats; empty fields, NA, NULL and NaN are nulls in columns that
    are not text. `delimiter` is a comma, and in files that end in .tsv a tab, if it is not given. `quote` is the
    quoting character, or None if quotes are ordinary characters. A row with the wrong number of fields, a value of
    another type, and a last line without line end (see `allow_unfinished_line`) are errors.

    >>> from pathlib import Path
    >>> size = Path("sales.csv").write_text("shop,price\\nnorth,3\\nsouth,4\\n")
    >>> flow = falkirk.Dataflow()
    >>> result = flow.source("sales", falkirk.Csv("sales.csv", as_records=True)).capture("out")
    >>> falkirk.run(flow).captured("out")
    [((0,), [{'shop': 'north', 'price': 3}, {'shop': 'south', 'price': 4}])]
    """

    suffixes: ClassVar[tuple[str, ...]] = (".csv", ".tsv")

    def __init__(
        self,
        path: Paths,
        *,
        epoch: EpochSpec = "batch",
        columns: Sequence[str] | None = None,
        schema: Schema | None = None,
        as_records: bool = False,
        delimiter: str | None = None,
        quote: str | None = '"',
        names: Sequence[str] | None = None,
        block_bytes: int = BLOCK_BYTES,
        allow_unfinished_line: bool = False,
    ) -> None:
        super().__init__(path, epoch=epoch, columns=columns, schema=schema, as_records=as_records)
        self.dialect = Dialect("," if delimiter is None else delimiter, quote)
        self._of_tabs = Dialect("\t", quote) if delimiter is None else self.dialect
        self.names = None if names is None else list(names)
        self.block_bytes = whole(block_bytes, "block_bytes")
        self.allow_unfinished_line = allow_unfinished_line
        self._settled: dict[str, Any] | None = None

    def _learn(self, first: Path) -> None:
        self._settled = None
        reader = self._open(first, 0, 1)
        try:
            self._settled = reader.guess_types()
        finally:
            reader.close()

    def _open(self, file: Path, share: int, shares: int) -> CsvBlocks:
        dialect = self._of_tabs if file.suffix.lower() == ".tsv" else self.dialect
        text = TextBlocks(file, self.block_bytes, dialect.last_row_end, self.allow_unfinished_line)
        try:
            if self._settled is None:
                return CsvBlocks(text, dialect, self.names, self.wanted, self.types)
            blocks = CsvBlocks(text, dialect, self.names, self.wanted or list(self._settled), self._settled)
            if self.wanted is None:
                blocks.refuse_others(self._settled)
            return blocks
        except BaseException:
            text.close()
            raise


class Dialect:
    """Separators of fields and rows.

    A line end with an even number of quotes before it ends a row. That rule needs every quote to open or
    close a field or to be doubled, so any other quote is an error (StrayQuote): a row cut in the wrong place
    would be wrong data.
    """

    def __init__(self, delimiter: str, quote: str | None) -> None:
        if len(delimiter.encode()) != 1 or (quote is not None and len(quote.encode()) != 1):
            raise SourceError(at_line(f"delimiter={delimiter!r}, quote={quote!r}: each must be one ASCII character."))
        self.delimiter = delimiter
        self.quote = quote
        self._may_precede = np.zeros(256, dtype=bool)
        self._may_precede[list((delimiter + "\n\r" + (quote or "")).encode())] = True

    def last_row_end(self, data: bytes) -> int:
        """Bytes up to the end of the last whole row, 0 if there is none.

        `data` begins where a row does.
        """
        quotes = self._check_quotes(data)
        end = len(data)
        while (line := data.rfind(b"\n", 0, end)) >= 0:
            if quotes:
                quotes -= data.count(self._quote, line, end)
            if quotes % 2 == 0:
                break
            end = line
        return line + 1

    def first_row_end(self, data: bytes) -> int:
        """Bytes up to the end of the first row, 0 if it does not end."""
        some = self._check_quotes(data)
        start = quotes = 0
        while (line := data.find(b"\n", start)) >= 0:
            if some:
                quotes += data.count(self._quote, start, line)
            if quotes % 2 == 0:
                break
            start = line + 1
        return line + 1

    @property
    def _quote(self) -> bytes:
        return (self.quote or "").encode()

    def _check_quotes(self, data: bytes) -> int:
        """Number of quotes.

        Raises StrayQuote for one that neither opens nor closes a field.
        """
        if self.quote is None or self._quote not in data:
            return 0
        characters = np.frombuffer(data, dtype=np.uint8)
        quotes = np.flatnonzero(characters == ord(self.quote))
        opening = quotes[::2]
        stray = opening[~self._may_precede[characters[opening - 1]] & (opening > 0)]
        if stray.size and not (stray[0] == 3 and data.startswith(_BYTE_ORDER_MARK)):
            raise StrayQuote(int(stray[0]))
        return len(quotes)


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class StrayQuote(ValueError):
    """Error for a quote within an unquoted field, at a byte of a block."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


_INTEGER = re.compile(r"[+-]?[0-9]+$")
_EXPONENT = re.compile(r"[+-]?[0-9]+[eE]")


def _as_one(block: bytes, names: Sequence[str] = ()) -> Any:
    """Arrow options for reading a block in one piece.

    Where Arrow divides it, a carriage return and a newline in quotes lose a byte if they come apart, and a row that is in more
    than two pieces is refused. To divide a block among threads takes longer than to read it.
    """
    size = min(len(block) + 1, (1 << 31) - 1)
    return arrow_csv.ReadOptions(column_names=names or None, use_threads=False, block_size=size)


class CsvBlocks:
    """Blocks of rows of one CSV file."""

    def __init__(
        self,
        text: TextBlocks,
        dialect: Dialect,
        names: list[str] | None,
        wanted: list[str] | None,
        types: dict[str, Any],
    ) -> None:
        self._text = text
        self._dialect = dialect
        self._wanted = wanted
        self._types = types
        self._first_byte = 0
        self._names = self._read_header() if names is None else names
        path = text.path
        if len(set(self._names)) != len(self._names):
            raise SourceError(f"{path}: two columns have the same name: {', '.join(self._names)}. Rename one.")
        missing_columns(path, [*(wanted or ()), *types], self._names)

    def _read_header(self) -> list[str]:
        path = self._text.path
        if self._text.size == 0:
            raise SourceError(
                f"{path}: the file is empty, it has not even a line of column names. Was it written whole?"
            )
        block, _ = self._block(0)
        self._first_byte = self._dialect.first_row_end(block)
        header = block[: self._first_byte]
        try:
            table = arrow_csv.read_csv(
                pa.BufferReader(header), read_options=_as_one(header), parse_options=self._parsing([])
            )
            if len(table):
                raise SourceError(
                    f"{path}, line 1: lines end in a carriage return alone there, and rows would be taken for part of the line "
                    "of column names. Convert line ends to newlines."
                )
            return list(table.column_names)
        except UnicodeDecodeError as error:
            raise SourceError(
                f"{path}, line 1: the column names are not text in UTF-8. Convert the file to UTF-8."
            ) from error
        except pa.ArrowException as error:
            raise SourceError(f"{path}, line 1: this is not a line of column names: {error}.") from error

    def refuse_others(self, known: Container[str]) -> None:
        """Raise SourceError if the file has a column that is not in `known`."""
        others = [name for name in self._names if name not in known]
        if others:
            raise SourceError(
                f"{self._text.path}: column {others[0]!r} is not in the first file. Name the columns that "
                "all files have with columns=."
            )

    def guess_types(self) -> dict[str, Any]:
        """Column types guessed from the first block."""
        types = {name: pa.string() for name in self._names} | self._types
        if self._first_byte < self._text.size:
            block, _ = self._block(self._first_byte)
            table = self._parse(block, self._first_byte, BlockStart())
            self._refuse_rounding(block, table.schema)
            for field in table.schema:
                if field.name in self._types or pa.types.is_null(field.type):
                    continue
                if pa.types.is_binary(field.type):
                    raise SourceError(
                        f"{self._text.path}, column {field.name!r}: this is not text in UTF-8. Convert the "
                        "file to UTF-8."
                    )
                types[field.name] = field.type
        return types

    def _refuse_rounding(self, block: bytes, guess: pa.Schema) -> None:
        """Raise SourceError if an integer column was read as floats for its size.

        One of its integers is beyond 64 bits.
        """
        doubtful = [f.name for f in guess if pa.types.is_floating(f.type) and f.name not in self._types]
        if not doubtful or LONG_INTEGER.search(block) is None:
            return
        texts = self._convert(block, self._names, dict.fromkeys(doubtful, pa.string()))
        for name in doubtful:
            values = [value.strip() for value in texts[name].to_pylist()]
            if any("." in value or value.lower().strip("+-") == "inf" for value in values):
                continue
            wide = next((v for v in values if len(v) >= 19 and _INTEGER.match(v) and abs(int(v)) >= 1 << 63), None)
            if wide is not None and not any(_EXPONENT.match(value) for value in values):
                raise SourceError(f"{self._text.path}, column {name!r}: {beyond_64_bits(int(wide), name)}")

    def ended(self, place: BlockStart) -> bool:
        return max(place.at, self._first_byte) >= self._text.size

    def read(self, place: BlockStart) -> tuple[Batch, int, BlockStart]:
        at = max(place.at, self._first_byte)
        block, after = self._block(at)
        table = self._parse(block, at, place)
        if self._wanted is not None:
            table = table.select(self._wanted)
        return table, place.row, BlockStart(place.index + 1, after, place.row + table.num_rows)

    def _block(self, at: int) -> tuple[bytes, int]:
        try:
            return self._text.read(at)
        except StrayQuote as stray:
            raise SourceError(
                f"{self._text.path}, line {self._text.line_at(at + stray.at)}: a quote stands within an "
                "unquoted field. Quote the field and double its quotes, or pass quote=None if quotes are "
                "ordinary characters."
            ) from None

    def _parse(self, block: bytes, at: int, place: BlockStart) -> pa.Table:
        try:
            return self._convert(block, self._names, self._types)
        except pa.ArrowInvalid as error:
            raise self._explain(error, block, at, place) from None

    def _convert(self, block: bytes, names: list[str], types: dict[str, Any]) -> pa.Table:
        return arrow_csv.read_csv(
            pa.BufferReader(block),
            read_options=_as_one(block, names),
            parse_options=self._parsing(names),
            convert_options=arrow_csv.ConvertOptions(column_types=types),
        )

    def _parsing(self, names: list[str]) -> Any:
        quote = self._dialect.quote
        return arrow_csv.ParseOptions(
            delimiter=self._dialect.delimiter,
            quote_char=False if quote is None else quote,
            newlines_in_values=quote is not None,
            # In a file of one column an empty line is a row with an empty value.
            ignore_empty_lines=len(names) != 1,
        )

    def _explain(self, error: pa.ArrowInvalid, block: bytes, at: int, place: BlockStart) -> SourceError:
        """Error for the row or value rejected by Arrow."""
        text = str(error)
        found = re.search(r"Row #(\d+)", text)
        column = re.search(r"CSV column #(\d+)", text)
        where = str(self._text.path)
        if found:
            inside = int(found[1])
            row = place.row + inside
            # Rows are lines unless values hold line ends or empty lines were skipped: then only the row
            # is sure.
            line = self._text.line_at(at) + inside - 1
            plain = (self._dialect.quote or "\n").encode() not in block and b"\n\n" not in block
            where += f", line {line}" if plain else f", row {row}"
        if column:
            where += f", column {self._names[int(column[1])]!r}"
            advice = 'Give the right type with schema={"column": type}, or correct the file.'
        else:
            advice = "Correct this row."
        detail = re.sub(r"^(In CSV column #\d+: )?(Row #\d+: )?", "", text)
        detail = re.sub(r"^CSV parse error: Row #\d+: ", "", detail)
        return SourceError(f"{where}: {detail}. {advice}")

    def close(self) -> None:
        self._text.close()
