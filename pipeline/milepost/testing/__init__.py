"""Tests of a job: cases of rows that come, and of rows that must come out, by the product's own tasks."""
