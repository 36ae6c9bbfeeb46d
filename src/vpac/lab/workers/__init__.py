"""Executors of runs: this process, a pool of processes, a Ray cluster."""
