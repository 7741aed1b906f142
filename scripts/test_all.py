"""The last line of `make test-all` says what did not run, because what it needs could not be reached."""

from __future__ import annotations

import sys

from scripts.browser import environment
from scripts.spark import spark_readers


def closing_line(share: float) -> str:
    """Return it.

    Args:
        share: of the deep tests, that was drawn.
    """
    missing = [words for words in (spark_readers.closing_words(), environment.closing_words()) if words is not None]
    if not missing:
        ran = "all" if share >= 1 else f"a drawn share of {share:g}"
        return f"test-all: {ran} ran, Spark with Delta's and Iceberg's jars and a browser at hand"
    return f"test-all: {'; '.join(missing)}"


if __name__ == "__main__":
    print(closing_line(float(sys.argv[1])))
