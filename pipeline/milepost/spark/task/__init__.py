"""A Spark task of an epoch runs a source or a level's subtasks, and the output stage behind them."""
