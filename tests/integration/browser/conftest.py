"""Where there is no Chromium and none can be fetched, no test is collected: `make test-all` ends by saying so."""

from __future__ import annotations

from scripts.browser import environment

NOT_TO_BE_HAD = environment.chromium() is None and environment.UNREACHED.reason() is not None
collect_ignore = ["test_acts_in_a_browser.py", "test_pages_in_a_browser.py"] if NOT_TO_BE_HAD else []
