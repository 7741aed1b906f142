"""The Iceberg table format: tables that every engine reads through their catalog (I14)."""
