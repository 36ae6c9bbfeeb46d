"""Experiments as data: what is run, at which settings, and what the paper says about it."""
