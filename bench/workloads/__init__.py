"""What is measured: queries over bids, and the answers that DuckDB gives."""
