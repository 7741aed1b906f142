"""The Spark tasks of an epoch: a source or a level's operators, then the output stage."""
