"""Table formats under test: Delta, Iceberg, a format of the tests' own, and writers that are not ours."""
