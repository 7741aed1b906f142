"""What is kept and what is deleted: subsumption, garbage, tables, the audit (I8)."""
