"""Entry point of `milepost` and `python -m milepost`: one process for one command.

Most commands are short, so the overhead of the interpreter matters: garbage collection during imports, and a quarter
of a second at exit for the teardown of 1,300 modules.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import signal
import sys
from typing import NoReturn

from milepost import python_problem

_NEW_OBJECTS = 50_000
"""Allocations between two garbage collections. Imports create many objects that stay, and hardly any garbage."""


_INTERRUPTED, _UNUSABLE = 130, 8


class _End:
    """Ends the process with the requested exit code, after all other exit handlers."""

    code: int | None = None

    def __call__(self) -> None:
        if self.code is None:
            return
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(self.code)


class _NoPandas:
    """Hides pandas in a process that only reads, because nothing there converts to it or runs user code.

    Arrow looks for it at its first array, and would wait a fifth of a second until it is imported.
    """

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(f"{fullname} is left alone", name=fullname)


def main() -> None:
    """Run the command line, and end the process."""
    problem = python_problem()
    if problem is not None:
        sys.stderr.write(f"Error: {problem}\n")
        sys.exit(_UNUSABLE)
    gc.set_threshold(_NEW_OBJECTS, 10, 10)
    end = _End()
    reads = False
    atexit.register(end)  # before anything else is imported: the first to be registered is the last to be called
    try:
        from milepost.cli import app_for, needs_pandas, only_reads

        words = sys.argv[1:]
        reads = only_reads(words)
        if reads and not needs_pandas(words):
            sys.meta_path.insert(0, _NoPandas())
        app_for(words)(prog_name="milepost")
    except SystemExit as asked:
        if reads and asked.code == _INTERRUPTED:  # its threads may wait for a store, and nothing is to be put in order
            sys.stderr.flush()
            _leave()
        signal.signal(signal.SIGINT, _leave)  # all is said: a second Ctrl-C ends the process without a stack trace
        end.code = asked.code if isinstance(asked.code, int) else None
        raise
    except KeyboardInterrupt:  # before, or after, the command line listens for it
        sys.stderr.write("Error: interrupted.\n")
        _leave()


def _leave(*_: object) -> NoReturn:
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
