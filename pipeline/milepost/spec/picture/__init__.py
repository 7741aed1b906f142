"""Pictures of what a spec means."""
