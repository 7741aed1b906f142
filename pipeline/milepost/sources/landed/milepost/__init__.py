"""Format `milepost`: the rows that are appended to the published table of another job."""
