"""`python -m pipeline` is `milepost`."""

from __future__ import annotations

from pipeline.cli.main import app

if __name__ == "__main__":
    app(prog_name="milepost")
