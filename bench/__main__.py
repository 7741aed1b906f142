"""`python -m bench`: measure workloads on systems side by side; see README.md beside this file."""

from __future__ import annotations

import sys

from bench.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
