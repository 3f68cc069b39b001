"""Targets that exist only as documents: a folder with a manifest that says what they are."""
