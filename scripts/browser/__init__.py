"""Open the pages in Airflow with a headless Chromium, for tests of `make test-all` and screenshots of the docs."""
