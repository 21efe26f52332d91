"""Templates that nobody trusts, rendered within bounds of memory and time."""
