"""Row-group order on Delta: which files, how they are written, checked and committed."""
