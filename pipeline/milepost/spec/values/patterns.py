"""The pattern in a source's path: which names it means, and whether it can mean those of some files.

`*` stands for any characters within one part, `**` for any characters across parts (a whole part `**/` also for no part
at all); every other character is literal. What lies before the first `*` is the static prefix.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

_TOKEN = re.compile(r"(?<![^/])\*\*/|\*\*|\*|[^*]+")
_REGEX = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}

ANY, IN_A_PART = None, "^/"
Step = tuple[str | None, bool]
"""Of a name: characters that may stand here (ANY; IN_A_PART: all but the slash), and whether none or several may."""


def compiled(pattern: str) -> re.Pattern[str]:
    """Return the regular expression that names match whole."""
    return re.compile("".join(_REGEX.get(token) or re.escape(token) for token in _TOKEN.findall(pattern)), re.DOTALL)


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
        elif token in _REGEX:
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
