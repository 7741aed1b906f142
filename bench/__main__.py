"""`python -m bench`: benchmark workloads on several systems; see README.md in this folder."""

from __future__ import annotations

import signal
import sys

from bench.command import main

if __name__ == "__main__":
    # Told to end, end the systems too: paused ones would stay for ever.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main(sys.argv[1:]))
