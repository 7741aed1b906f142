"""Match object names against a source's path pattern, and test whether patterns overlap.

`*` matches any characters within one path segment, `**` any characters across segments; `**/` also matches no segment
at all. Every other character is literal. The text before the first `*` is the static prefix.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

_TOKEN = re.compile(r"(?<![^/])\*\*/|\*\*|\*|[^*]+")
_GLOBSTARS = ("**/", "**")

ANY, WITHIN_SEGMENT = None, "^/"
Step = tuple[str | None, bool]
"""One step of a set of names: the allowed characters (ANY, or WITHIN_SEGMENT: all but the slash), and whether they may
occur any number of times (True) or exactly once (False)."""


@dataclass(frozen=True, slots=True)
class _Block:
    """The part of a pattern between two `**`: literal texts with one `*` between each two.

    Attributes:
        anywhere: it follows a `**` and may begin anywhere; otherwise it begins where the name begins.
        overlaps: it follows a `**/`. Its first text begins with the slash of that `**/`, which may be the last
            character that the previous block matched.
    """

    texts: tuple[str, ...]
    anywhere: bool
    overlaps: bool


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that tests whether a name matches the pattern.

    Object names are chosen by others and may be hostile, so there is no backtracking. The first position where a text
    fits is always right, because `*` and `**` match whatever comes between. The time is bounded by the length of the
    name times that of the pattern; the regular expression for `*_*_*_*.json` took minutes on `____…`.
    """
    # The pattern a/**/b*.csv becomes two blocks, and the name a/x/bc.csv gets a slash in front:
    #   block 1  ["/a/"]         at the start of /a/x/bc.csv
    #   block 2  ["/b", ".csv"]  matched backwards from the end: .csv, then the last /b before it
    # Block 2 overlaps: its slash may be the last one of block 1, so that a/bc.csv matches as well.
    first, *blocks = _blocks(pattern)
    if not blocks:
        return partial(_is_whole, first.texts)
    return partial(_is_spanned, first, blocks[:-1], blocks[-1])


def _blocks(pattern: str) -> list[_Block]:
    blocks, texts, anywhere, overlaps = [], ["/"], False, False
    for token in _TOKEN.findall(pattern):
        if token == "*":
            texts.append("")
        elif token in _GLOBSTARS:
            blocks.append(_Block(tuple(texts), anywhere, overlaps))
            anywhere, overlaps = True, token == "**/"
            texts = ["/" if overlaps else ""]
        else:
            texts[-1] += token
    return [*blocks, _Block(tuple(texts), anywhere, overlaps)]


def _is_whole(texts: tuple[str, ...], name: str) -> bool:
    """Return whether a name consists of the texts, with characters other than slashes between them."""
    name = "/" + name
    if len(texts) == 1:
        return name == texts[0]
    end = len(name) - len(texts[-1])
    position = _after(name, texts[1:-1], len(texts[0])) if name.startswith(texts[0]) else -1
    return 0 <= position <= end and name.endswith(texts[-1]) and name.find("/", position, end) < 0


def _is_spanned(first: _Block, inner: list[_Block], last: _Block, name: str) -> bool:
    name = "/" + name
    position = _after(name, first.texts[1:], len(first.texts[0])) if name.startswith(first.texts[0]) else -1
    for block in inner:
        if position < 0:
            return False
        position = _after_block(name, block, position - block.overlaps)
    return position >= 0 and _ends_with(name, last.texts, position - last.overlaps)


def _after(name: str, texts: Sequence[str], position: int) -> int:
    """Return the end of the first match of `*text*text…` from a position, or -1. A `*` stays in its segment."""
    for text in texts:
        slash = name.find("/", position)
        start = name.find(text, position, (len(name) if slash < 0 else slash) + len(text))
        if start < 0:
            return -1
        position = start + len(text)
    return position


def _after_block(name: str, block: _Block, position: int) -> int:
    """Return the end of the first match of a block at or after a position, or -1."""
    text, *more = block.texts
    while (start := name.find(text, position)) >= 0:
        end = _after(name, more, start + len(text))
        if end >= 0:
            return end
        # If the rest does not match from here, it does not match from a later position in the same segment either.
        position = start + 1 if "/" in text else name.find("/", start) + 1
        if not position:
            return -1
    return -1


def _ends_with(name: str, texts: Sequence[str], position: int) -> bool:
    """Return whether a name ends with the texts, all at or after a position. Texts are matched as late as possible."""
    end = len(name) - len(texts[-1])
    if end < position or not name.endswith(texts[-1]):
        return False
    for text in reversed(texts[:-1]):
        slash = name.rfind("/", 0, end)
        end = name.rfind(text, max(position, slash + 1 - len(text)), end)
        if end < 0:
            return False
    return True


def static_prefix(pattern: str) -> str:
    """Return the literal prefix of every name that matches."""
    return pattern.split("*", 1)[0]


def hidden_by(pattern: str) -> Callable[[str], bool]:
    """Return a function that tests whether a matching name is hidden: a segment begins with ``_`` or ``.``.

    Segments whose first character is part of the static prefix do not count.
    """
    static = static_prefix(pattern)
    hidden = re.compile(r"/[_.]" if static and not static.endswith("/") else r"(?:^|/)[_.]").search
    return lambda name: hidden(name[len(static) :]) is not None


def can_name(pattern: str, names: Sequence[Step]) -> bool:
    """Return whether some text both matches the pattern and can be spelled by the steps.

    This walks both as automata. A state is the number of steps done in each, and a common text exists if both ends can
    be reached together.
    """
    # Pattern `a*/x`, steps `a` `b` `/` (any character):
    #   (0,0) -a-> (1,1) -b-> (1,2) -leave *-> (2,2) -/-> (3,3) -x-> (4,4): both end, so `ab/x` is a common name.
    steps: list[Step] = []
    skips: dict[int, int] = {}
    for token in _TOKEN.findall(pattern):
        if token == "**/":
            skips[len(steps)] = len(steps) + 3
            # The first step matches no character. It marks the only state from which the whole `**/` may be skipped.
            steps += [("", True), (ANY, True), ("/", False)]
        elif token in ("**", "*"):
            steps.append((ANY if token == "**" else WITHIN_SEGMENT, True))
        else:
            steps += [(character, False) for character in token]
    waiting, seen = [(0, 0)], set()
    while waiting:
        state = i, j = waiting.pop()
        if state in seen:
            continue
        seen.add(state)
        if i == len(steps) and j == len(names):
            return True
        if i in skips:
            waiting.append((skips[i], j))
        left, right = steps[i] if i < len(steps) else None, names[j] if j < len(names) else None
        if left and left[1]:
            waiting.append((i + 1, j))
        if right and right[1]:
            waiting.append((i, j + 1))
        if left and right and _share(left[0], right[0]):
            waiting.append((i if left[1] else i + 1, j if right[1] else j + 1))
    return False


def _share(left: str | None, right: str | None) -> bool:
    """Return whether two sets of characters have one in common."""
    if left == "" or right == "":
        return False
    if left is ANY or right is ANY or left == right:
        return True
    if left == WITHIN_SEGMENT:
        return right != "/"
    return left != "/" if right == WITHIN_SEGMENT else not set(left).isdisjoint(right)
