"""OpenLineage events: what an epoch read and published, for catalogs; imported only where it is configured."""
