"""The reference pages that follow from the code: `make reference` writes them, a test compares them."""
