"""Retention keeps what is needed and deletes the rest: subsumption, garbage, tables, the audit (I8)."""
