"""The catalogue: one set per file. Sets never import sets."""
