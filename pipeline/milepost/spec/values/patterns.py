"""The pattern in a source's path: which names it means, and whether it can mean those of some files.

`*` stands for any characters within one part, `**` for any characters across parts (a whole part `**/` also for no part
at all); every other character is literal. What lies before the first `*` is the static prefix.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

_TOKEN = re.compile(r"(?<![^/])\*\*/|\*\*|\*|[^*]+")
_GLOBSTARS = ("**/", "**")

ANY, IN_A_PART = None, "^/"
Step = tuple[str | None, bool]
"""Of a name: characters that may stand here (ANY; IN_A_PART: all but the slash), and whether none or several may."""


@dataclass(frozen=True, slots=True)
class _Block:
    """What stands between two `**` of a pattern: literal texts with one `*` between each two.

    Attributes:
        anywhere: a `**` stands before it: it begins anywhere; else where the name begins.
        overlaps: that was a `**/`: its first text begins with the slash before it, which may be the last one matched.
    """

    texts: tuple[str, ...]
    anywhere: bool
    overlaps: bool


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return whether the pattern means a name.

    Anyone who lands objects chooses their names, so there is no backtracking: the first place where a text fits is
    right, because `*` and `**` match whatever comes between. The time is bounded by the length of the name times that
    of the pattern. As a regular expression, `*_*_*_*.json` took minutes on `____…`.

    `a/**/b*.csv` and `a/x/bc.csv`: the name gets a slash in front, so that `**/` follows one always. The block `/a/` is
    where the name begins; `/b` and `.csv` are matched from the end backwards, because the last block ends there.
    """
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
    """Return whether a name is texts with parts of a part between them."""
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
    """Return where the first fit of texts ends, each behind any characters of its part; -1: they do not fit."""
    for text in texts:
        slash = name.find("/", position)
        found = name.find(text, position, (len(name) if slash < 0 else slash) + len(text))
        if found < 0:
            return -1
        position = found + len(text)
    return position


def _after_block(name: str, block: _Block, position: int) -> int:
    """Return where the first fit of a block ends that begins at a position or behind it; -1: there is none."""
    text, *more = block.texts
    while (found := name.find(text, position)) >= 0:
        end = _after(name, more, found + len(text))
        if end >= 0:
            return end
        # What does not fit from here fits from nowhere in the same part.
        position = found + 1 if "/" in text else name.find("/", found) + 1
        if not position:
            return -1
    return -1


def _ends_with(name: str, texts: Sequence[str], position: int) -> bool:
    """Return whether a name ends with texts that begin at a position or behind it: of each its last fit is taken."""
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
    """Return what every name begins with."""
    return pattern.split("*", 1)[0]


def hidden_by(pattern: str) -> Callable[[str], bool]:
    """Return whether a name that matches has a part that begins with ``_`` or ``.`` below the static prefix.

    A part whose first character the pattern itself spells out is wanted, whatever it begins with.
    """
    static = static_prefix(pattern)
    hidden = re.compile(r"/[_.]" if static and not static.endswith("/") else r"(?:^|/)[_.]").search
    return lambda name: hidden(name[len(static) :]) is not None


def can_name(pattern: str, names: Sequence[Step]) -> bool:
    """Return whether some text is both a name that the pattern means and one that the steps spell.

    Both are walked side by side: a place is the number of steps behind in either, and a text exists when both ends can
    be reached together. `a*/x` and `ab/` + any character: (0,0) a (1,1) b (1,2) * is done (2,2) / (3,3) x (4,4).
    """
    steps: list[Step] = []
    skips: dict[int, int] = {}
    for token in _TOKEN.findall(pattern):
        if token == "**/":
            skips[len(steps)] = len(steps) + 3
            steps += [("", True), (ANY, True), ("/", False)]  # the first is passed once: only there it may be skipped
        elif token in ("**", "*"):
            steps.append((ANY if token == "**" else IN_A_PART, True))
        else:
            steps += [(character, False) for character in token]
    waiting, seen = [(0, 0)], set()
    while waiting:
        place = i, j = waiting.pop()
        if place in seen:
            continue
        seen.add(place)
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


def _share(one: str | None, other: str | None) -> bool:
    """Return whether a character may be of both."""
    if one == "" or other == "":
        return False
    if one is ANY or other is ANY or one == other:
        return True
    if one == IN_A_PART:
        return other != "/"
    return one != "/" if other == IN_A_PART else not set(one).isdisjoint(other)
