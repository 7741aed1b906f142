"""`make reference`: write every generated page of the reference."""

from __future__ import annotations

from scripts.processes import ROOT
from scripts.reference.pages import PAGES


def main() -> None:
    """Write each page, and print which have changed."""
    for place, page in PAGES.items():
        file, text = ROOT / place, page()
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
            print(f"written: {place}")


if __name__ == "__main__":
    main()
