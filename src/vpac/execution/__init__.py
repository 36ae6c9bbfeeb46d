"""From a specification and a seed to files."""
