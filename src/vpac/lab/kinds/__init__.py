"""What a run does, one module for each kind of run."""
