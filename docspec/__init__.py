"""Documents of targets: what a model reads before it writes a kernel (docs/DOCSPEC.md)."""
