"""TPC-H: its eight tables by scale factor, their changes as feeds, and the job of its queries."""
