"""The library that tests, benchmarks and campaigns share: servers, stores, jobs, models of what must hold, and faults.

Its floors are in `repository/import_rules.py`. It imports `milepost` and `scripts`, never `tests` or `bench`."""
