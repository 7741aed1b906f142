"""Pictures of a page, as SVG that needs no style and no script."""
