"""Who carries out runs: this process, a pool of processes, a Ray cluster."""
