"""The whole platform on an embedded cluster of its own: its command line, its objects, load through its gateway."""
