"""Suggest a known name for an unknown one, but never its opposite.

to_be_not_null  ->  to_not_be_null       the same words in another order
start_with      ->  startswith           similar spelling
median          ->  none, not `min`      short names must be almost equal
is_not_nan      ->  none, not `isnan`    only one of them is negated
to_be_betwixt   ->  to_be_between        one word of several differs, with a similar beginning
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher

_MIN_SIMILARITY = 0.6
"""Minimum similarity ratio, 0 to 1, of similar names or words."""

_SHORT = 4
"""Names of up to this many letters may be similar by chance."""

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
    """Return the known name that `name` probably means. None: none is similar, or the best two are opposites."""
    by_folded = {candidate.casefold(): candidate for candidate in known}
    folded = name.casefold()
    words = sorted(_WORD.findall(folded))
    ranked = sorted(
        (
            (sorted(_WORD.findall(candidate)) == words, SequenceMatcher(None, candidate, folded).ratio(), candidate)
            for candidate in by_folded
            if _is_plausible(folded, candidate)
        ),
        reverse=True,
    )
    if not ranked:
        return None
    best = ranked[0]
    if any(rank[:2] == best[:2] and _are_opposite(rank[2], best[2]) for rank in ranked[1:]):
        return None
    return by_folded[best[2]]


def _is_plausible(name: str, candidate: str) -> bool:
    if _are_opposite(name, candidate):
        return False
    if not _is_similar(name, candidate):
        return False
    if len(candidate) <= _SHORT:
        return name.startswith(candidate) or _is_typo(name, candidate)
    return _differs_in_one_word(name, candidate) or _is_similar(*_different_words(name, candidate))


def _are_opposite(name: str, candidate: str) -> bool:
    """Return whether only one of two names is negated, or a word of one is the opposite of a word of the other."""
    words, others = set(_WORD.findall(name)), set(_WORD.findall(candidate))
    if any(map(_NEGATIVE.fullmatch, words)) != any(map(_NEGATIVE.fullmatch, others)):
        return True
    if name.count("not") != candidate.count("not") and _is_typo(name.replace("not", ""), candidate.replace("not", "")):
        return True
    return any((a in words and b in others) or (b in words and a in others) for a, b in _OPPOSITES)


def _different_words(name: str, candidate: str) -> tuple[str, str]:
    """Return, for each of two names, the words that only it has, concatenated."""
    words, others = _WORD.findall(name), _WORD.findall(candidate)
    return "".join(word for word in words if word not in others), "".join(word for word in others if word not in words)


def _differs_in_one_word(name: str, candidate: str) -> bool:
    """Return whether two names of at least three words differ in exactly one, and its first half is the same."""
    words, others = _WORD.findall(name), _WORD.findall(candidate)
    if len(words) != len(others) or len(words) < 3:
        return False
    different = [(a, b) for a, b in zip(words, others, strict=True) if a != b]
    return len(different) == 1 and _half(*different[0]) == _half(*reversed(different[0]))


def _half(word: str, other: str) -> str:
    """Return the beginning of `word`, half as long as the longer of the two words."""
    return word[: (max(len(word), len(other)) + 1) // 2]


def _is_similar(text: str, other: str) -> bool:
    """Return whether two texts are similar. An empty text is similar to any, since a word may be missing."""
    if not text or not other:
        return True
    matcher = SequenceMatcher(None, other, text)
    return all(bound() >= _MIN_SIMILARITY for bound in (matcher.real_quick_ratio, matcher.quick_ratio, matcher.ratio))


def _is_typo(name: str, candidate: str) -> bool:
    """Return whether two names differ by one letter added, missing or wrong, or by the order of letters."""
    if sorted(name) == sorted(candidate):
        return True
    same = sum(block.size for block in SequenceMatcher(None, candidate, name).get_matching_blocks())
    return max(len(name), len(candidate)) - same <= 1
