"""One checkpoint as reports tell it: what became of it, what its epoch read, did, published and looked rows up in."""
