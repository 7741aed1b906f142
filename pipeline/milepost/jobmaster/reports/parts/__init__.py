"""The parts of one epoch as reports tell them: what each source, operator, sink and subtask did."""
