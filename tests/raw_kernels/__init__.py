"""Kernels, called raw through the C table."""
