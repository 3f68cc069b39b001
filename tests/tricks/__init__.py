"""Kernels that try to be accepted without doing the work, and honest ones that look like them."""
