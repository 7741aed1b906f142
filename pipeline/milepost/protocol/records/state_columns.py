"""State columns whose meaning operators, which make them, and state, which keeps them, know by their names.

Names only: they lie here so that both can name them without importing each other.
"""

TIMER_COLUMN = "__timer"
"""State column (int64, us): the row is *due* when its timer <= the firing watermark. Optional."""

EXPIRES_COLUMN = "__expires"
"""State column (int64, us): the row is dead when it is <= the firing watermark; merges drop it. Optional."""

FIRED_COLUMN = "__fired"
"""State column (bool): the timer, which is kept, has rung already, where another subtask had fired further. Null: not.
Optional: without it such a timer becomes null.
"""

TIMER_EVERY = b"milepost.timer_every/1"
"""Field metadata of `TIMER_COLUMN`: a row is due again each so many microseconds, until it expires."""

BEGINS_NULL = b"milepost.begins_null"
"""Field metadata of a state column: null is what it is until it is set, so it may be added to recorded state."""

ROW_IDENTITY = b"milepost.row_identity/1"
"""Field metadata of the first of `IDENTITY_COLUMNS`: the names of the columns that the identity is over, in JSON."""

IDENTITY_COLUMNS = ("__row_1", "__row_2")
"""State columns (int64) of a table that keeps the rows of a key one by one: which row it is."""

WEIGHT_COLUMN = "__weight"
"""State column (int64) of such a table: how many rows are equal to it; below 0 while the row itself is still to come.

In the rows of an input (int64): its mode is retract, and a row came (above 0) or is taken back (below 0) so many times.
"""

SCALE = b"milepost.scale"
"""Field metadata of a state column that holds a sum of decimals as a whole number: its decimal places."""
