"""A headless Chromium looks at the pages in Airflow, for tests of the referees and for pictures of the docs."""
