"""Suggest the known name that an unknown one was meant to be, never one that means the opposite.

to_be_not_null  ->  to_not_be_null       the same words in another order
start_with      ->  startswith           alike
median          ->  none, not `min`      a short name has to be almost the same
is_not_nan      ->  none, not `isnan`    one is negated, the other is not
to_be_betwixt   ->  to_be_between        one word of several differs, and begins alike
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher

_ALIKE = 0.6
"""Least ratio, of 0 to 1, of two names or words that are alike."""

_SHORT = 4
"""Names of up to this many letters are alike by chance."""

_WORD = re.compile(r"[^\W_]+")
_NEGATIVE = re.compile(r"not|no|non|never|without|isnt|(?:is|are|has)?(?:not|non)(?:null|nan|in|empty|unique)|isnot\w*")
_OPPOSITES = (
    ("min", "max"), ("minimum", "maximum"), ("first", "last"), ("earliest", "latest"), ("start", "end"),
    ("starts", "ends"), ("start", "stop"), ("begin", "end"), ("left", "right"), ("upper", "lower"), ("before", "after"),
    ("add", "sub"), ("encode", "decode"), ("encrypt", "decrypt"), ("increasing", "decreasing"), ("asc", "desc"),
    ("include", "exclude"), ("less", "greater"), ("pause", "resume"), ("enable", "disable"), ("any", "every"),
    ("any", "all"), ("floor", "ceil"), ("inner", "outer"),
)  # fmt: skip


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that `name` was probably meant to be; None: none is alike, or two opposites are."""
    by_folded = {candidate.casefold(): candidate for candidate in known}
    written = name.casefold()
    words = sorted(_WORD.findall(written))
    ranked = sorted(
        (
            (sorted(_WORD.findall(candidate)) == words, SequenceMatcher(None, candidate, written).ratio(), candidate)
            for candidate in by_folded
            if _could_be_meant(written, candidate)
        ),
        reverse=True,
    )
    if not ranked:
        return None
    best = ranked[0]
    if any(rank[:2] == best[:2] and _are_opposite(rank[2], best[2]) for rank in ranked[1:]):
        return None
    return by_folded[best[2]]


def _could_be_meant(written: str, candidate: str) -> bool:
    if _are_opposite(written, candidate):
        return False
    if not _is_alike(written, candidate):
        return False
    if len(candidate) <= _SHORT:
        return written.startswith(candidate) or _is_slip(written, candidate)
    return _begins_alike(written, candidate) or _is_alike(*_different_words(written, candidate))


def _are_opposite(one: str, other: str) -> bool:
    """Return whether one of two names is negated, or each has a word that is the opposite of one of the other."""
    ours, theirs = set(_WORD.findall(one)), set(_WORD.findall(other))
    if any(map(_NEGATIVE.fullmatch, ours)) != any(map(_NEGATIVE.fullmatch, theirs)):
        return True
    if one.count("not") != other.count("not") and _is_slip(one.replace("not", ""), other.replace("not", "")):
        return True
    return any((a in ours and b in theirs) or (b in ours and a in theirs) for a, b in _OPPOSITES)


def _different_words(one: str, other: str) -> tuple[str, str]:
    """Return the words that only one of two names has, in order, without what is between them."""
    ours, theirs = _WORD.findall(one), _WORD.findall(other)
    return "".join(word for word in ours if word not in theirs), "".join(word for word in theirs if word not in ours)


def _begins_alike(one: str, other: str) -> bool:
    """Return whether two names of at least three words differ in a single one, whose first half is the same."""
    ours, theirs = _WORD.findall(one), _WORD.findall(other)
    if len(ours) != len(theirs) or len(ours) < 3:
        return False
    different = [(a, b) for a, b in zip(ours, theirs, strict=True) if a != b]
    return len(different) == 1 and _half(*different[0]) == _half(*reversed(different[0]))


def _half(word: str, other: str) -> str:
    """Return the beginning of a word, of half the length of the longer of two."""
    return word[: (max(len(word), len(other)) + 1) // 2]


def _is_alike(one: str, other: str) -> bool:
    """Return whether two texts are alike; nothing is like any text, since a word may have been left out."""
    if not one or not other:
        return True
    matcher = SequenceMatcher(None, other, one)
    return all(bound() >= _ALIKE for bound in (matcher.real_quick_ratio, matcher.quick_ratio, matcher.ratio))


def _is_slip(written: str, candidate: str) -> bool:
    """Return whether a name has one letter too many, too few or wrong, or two that changed places."""
    if sorted(written) == sorted(candidate):
        return True
    same = sum(block.size for block in SequenceMatcher(None, candidate, written).get_matching_blocks())
    return max(len(written), len(candidate)) - same <= 1
