"""The last line of `make referees` says what did not run, because what it needs could not be reached."""

from __future__ import annotations

from scripts.browser import environment
from scripts.spark import spark_readers


def closing_line() -> str:
    """Return it."""
    missing = [words for words in (spark_readers.closing_words(), environment.closing_words()) if words is not None]
    if not missing:
        return "referees: all ran, Spark with Delta's and Iceberg's jars and a browser among them"
    return f"referees: {'; '.join(missing)}"


if __name__ == "__main__":
    print(closing_line())
