"""What a changed spec or changed code means for the state that it is to continue."""
