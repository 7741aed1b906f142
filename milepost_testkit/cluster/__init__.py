"""Jobs on a real Spark cluster, and the faults that strike them there."""
