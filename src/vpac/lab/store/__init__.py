"""Storage of runs, in a folder or in a bucket."""
