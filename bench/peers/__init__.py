"""The sides of bench/compare.py, each run under its own Python: ``python bench/peers SCRIPT JOB REQUEST``."""
