"""Where rows lie in the files of a table, so that readers find a few of them by reading little."""
