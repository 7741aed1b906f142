"""Runs of SQL tokens, and texts that are made of them with their positions in the file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from milepost.language.sql import SqlProblem, normalized_tokens, problem_from, quote, sql_tokens

_OPENING = ("L_PAREN", "L_BRACKET", "L_BRACE")
_CLOSING = ("R_PAREN", "R_BRACKET", "R_BRACE")
_NO_WORDS = ("STRING", "RAW_STRING", "NUMBER", "IDENTIFIER")
_DIGEST_LENGTH = 8


@dataclass(frozen=True, slots=True)
class Substitute:
    """A token in place of several: the name of a column with the value of what is there."""

    # amount > (SELECT avg(amount) FROM orders)  ->  amount > `scalar(orders)`
    token_type: Any
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Tokens:
    """Consecutive tokens of a SQL file.

    Attributes:
        sql: text of the whole file.
        items: sqlglot's tokens, with offsets in the file.
        end: offset after the last token, for problems of an empty run.
    """

    sql: str
    items: tuple[Any, ...]
    end: int

    @classmethod
    def of(cls, sql: str) -> Tokens:
        """Return the tokens of a text. Raises SqlProblem."""
        return cls(sql, tuple(sql_tokens(sql)), len(sql))

    def __len__(self) -> int:
        return len(self.items)

    def part(self, first: int, last: int | None = None) -> Tokens:
        """Return the tokens from `first` up to, but not including, `last`."""
        items = self.items[first:last]
        end = items[-1].end + 1 if items else self.items[first - 1].end + 1 if first else self.end
        return Tokens(self.sql, items, end)

    def kind(self, index: int) -> str:
        """Return the kind of a token; "" outside the run."""
        return str(self.items[index].token_type._name_) if 0 <= index < len(self.items) else ""  # `name` is slow

    def word(self, index: int) -> str:
        """Return a keyword or bare name in upper case; "" for a quoted name, a literal, or outside the run."""
        inside = 0 <= index < len(self.items) and self.kind(index) not in _NO_WORDS
        return str(self.items[index].text).upper() if inside else ""

    def name(self, index: int = 0) -> str:
        """Return the text of a token, without quotes. Raises SqlProblem: there is none."""
        if not self.items:
            raise self.problem("an expression or a name is missing here")
        return str(self.items[index].text)

    def words(self, first: int, count: int) -> str:
        """Return several words, separated by spaces."""
        return " ".join(self.word(index) for index in range(first, first + count))

    @property
    def text(self) -> str:
        """The user's own text of the run."""
        return self.sql[self.start : self.items[-1].end + 1] if self.items else ""

    def substituted(self, ranges: Sequence[tuple[int, int, str]]) -> Tokens:
        """Return the run with a column in place of each range of tokens, (first, index after the last, name)."""
        from sqlglot.tokens import TokenType

        items, at = list[Any](), 0
        for first, last, name in sorted(ranges):
            start, end = int(self.items[first].start), int(self.items[last - 1].end)
            items += [*self.items[at:first], Substitute(TokenType.IDENTIFIER, name, start, end)]
            at = last
        return Tokens(self.sql, (*items, *self.items[at:]), self.end)

    @property
    def fragment(self) -> Fragment:
        """The user's text, with the names of substitutes."""
        named = [token for token in self.items if isinstance(token, Substitute)]
        edits = [(token.start, token.end, quote(token.text)) for token in named]
        return edited(self, edits) if self.items else Fragment(())

    @property
    def start(self) -> int:
        """The offset of the first token."""
        return int(self.items[0].start) if self.items else self.end

    @property
    def normalized(self) -> tuple[str, ...]:
        """The tokens without white space, comments and the case of words: equal for equal expressions."""
        return normalized_tokens(self.sql, self.items)

    def problem(self, message: str, index: int = 0) -> SqlProblem:
        """Return a problem at a token of the run."""
        offset = int(self.items[index].start) if 0 <= index < len(self.items) else self.start
        return problem_from(self.sql, offset, message)

    def top(self) -> Iterator[int]:
        """Yield the indexes of the tokens outside brackets and CASE, without the brackets."""
        depth = 0
        for index in range(len(self.items)):
            kind = self.kind(index)
            named = self.kind(index - 1) in ("DOT", "ALIAS")  # `window.end` and `AS end` do not end a CASE
            depth -= kind in _CLOSING or (kind == "END" and not named and depth > 0)
            if depth == 0 and kind not in _OPENING and kind not in _CLOSING and (kind not in ("CASE", "END") or named):
                yield index
            depth += kind in _OPENING or (kind == "CASE" and not named)

    def split(self, kind: str) -> list[Tokens]:
        """Return the parts between the tokens of a kind that are outside brackets and CASE."""
        cuts = [index for index in self.top() if self.kind(index) == kind]
        return [self.part(first, last) for first, last in zip([0, *(c + 1 for c in cuts)], [*cuts, None], strict=True)]

    def closing(self, index: int) -> int:
        """Return the index of the bracket that closes the one at `index`. Raises SqlProblem: there is none."""
        depth = 0
        for at in range(index, len(self.items)):
            depth += self.kind(at) in _OPENING
            depth -= self.kind(at) in _CLOSING
            if depth == 0:
                return at
        raise self.problem("this bracket is not closed", index)

    def without_brackets(self) -> Tokens:
        """Return the run without brackets around all of it."""
        run = self
        while run.kind(0) == "L_PAREN" and run.closing(0) == len(run) - 1:
            run = run.part(1, len(run) - 1)
        return run


def digest(parts: Sequence[str]) -> str:
    """Return a short digest of normalized tokens, for the name of a column."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:_DIGEST_LENGTH]


@dataclass(frozen=True, slots=True)
class Fragment:
    """A text with the offset in the SQL file from which each of its pieces comes."""

    # `o.amount * 2` in a file at offset 70  ->  ("`amount`", 70), (" * 2", 78)
    pieces: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return "".join(text for text, _ in self.pieces)

    @property
    def digest(self) -> str:
        """A short digest of its tokens, which no alias of a relation changes: for the name of a column."""
        return digest(Tokens.of(str(self)).normalized)

    @property
    def start(self) -> int:
        return self.pieces[0][1] if self.pieces else 0

    def offset(self, position: int) -> int:
        """Return the offset in the file of a position in the text."""
        for text, offset in self.pieces:
            if position < len(text):
                return offset + (position if len(text) > 1 and not text.startswith("`") else 0)
            position -= len(text)
        return self.start


def edited(run: Tokens, edits: Sequence[tuple[int, int, str]]) -> Fragment:
    """Return the text of a run in which the ranges of `edits`, (first offset, last offset, text), are replaced."""
    pieces: list[tuple[str, int]] = []
    position, end = run.start, run.items[-1].end + 1
    for start, last, text in sorted(edits):
        if position <= start and last < end:
            pieces += [(run.sql[position:start], position), (text, start)]
            position = last + 1
    return Fragment(tuple(piece for piece in (*pieces, (run.sql[position:end], position)) if piece[0]))
