"""`milepost`, and `python -m pipeline`, which is the same."""

from __future__ import annotations

import gc

from pipeline.cli.main import app


def main() -> None:
    """Run the command line in a process of its own."""
    try:
        app(prog_name="milepost")
    finally:
        gc.freeze()  # an interpreter that ends would look through all modules for garbage, for a fifth of a second


if __name__ == "__main__":
    main()
