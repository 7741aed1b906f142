"""A headless Chromium looks at the pages in Airflow, for tests of `make test-all` and for pictures of the docs."""
