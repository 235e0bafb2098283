"""One file per kind of study: from its folder to a `Section`."""
