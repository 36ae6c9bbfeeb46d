"""Where runs are kept: in a folder or in a bucket."""
