"""Side-by-side benchmarks: the same epochs on Milepost, Structured Streaming, PyFlink SQL and the bare limit."""
