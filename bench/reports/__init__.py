"""From raw results to a page: ratios, targets, reasons, plots."""
