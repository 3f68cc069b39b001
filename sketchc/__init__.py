"""Unified Sketches: a compiler for small, readable, hardware-neutral kernel descriptions."""

__version__ = "0.1.0"
