"""The lab runs studies with the library: experiments, kinds of runs, the store, workers, the report."""
