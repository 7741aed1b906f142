"""Tools of this repository, not of the product: environments, the demo's processes, the demo."""
