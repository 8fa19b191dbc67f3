"""The benchmark suites: generated and recorded clusters, openb, gangs; results and report."""
