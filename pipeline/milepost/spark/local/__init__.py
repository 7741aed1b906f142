"""An epoch's tasks in this process: for tests of a job."""
