"""Names of state columns that both operators and state interpret.

They are here so that neither has to import the other.
"""

TIMER_COLUMN = "__timer"
"""State column (int64, µs): the row is *due* once its timer <= the firing watermark. Optional."""

EXPIRES_COLUMN = "__expires"
"""State column (int64, µs): the row is dead once this is <= the firing watermark; merges drop it. Optional."""

FIRED_COLUMN = "__fired"
"""State column (bool): the timer has already fired, in a subtask whose watermark was ahead. Null: it has not.

Optional. Without this column a fired timer is set to null instead.
"""

TIMER_EVERY = b"milepost.timer_every/1"
"""Field metadata of `TIMER_COLUMN`: the row is due again every N microseconds, until it expires."""

BEGINS_NULL = b"milepost.begins_null"
"""Field metadata of a state column: it is null until it is set, so it may be added to recorded state."""

ROW_IDENTITY = b"milepost.row_identity/1"
"""Field metadata of the first of `IDENTITY_COLUMNS`: the columns that the identity is computed from, as JSON."""

IDENTITY_COLUMNS = ("__row_1", "__row_2")
"""State columns (int64) of a table that stores the rows of a key individually: a 128-bit id of the row."""

WEIGHT_COLUMN = "__weight"
"""State column (int64) of such a table: the number of equal rows. Negative if the row was retracted before it arrived.

In input rows of mode `retract` (int64): the row arrived (positive) or was retracted (negative) this many times.
"""

SCALE = b"milepost.scale"
"""Field metadata of a state column that holds a sum of decimals as an integer: its number of decimal places."""
