"""The keyed state of one operator in one subtask: restored, changed, frozen, encoded."""
