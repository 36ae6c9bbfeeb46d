"""The work of a run, one module for each kind of run."""
