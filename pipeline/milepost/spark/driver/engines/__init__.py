"""Engines: a Spark session in this process, or on a Connect server, and what starts one."""
