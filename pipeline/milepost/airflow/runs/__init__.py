"""Add notes to ended runs, and notify about failed ones."""
