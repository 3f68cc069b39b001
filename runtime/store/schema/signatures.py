"""Version 3: the sketch that a kernel by others was called by, where `--signature` named one.

It belongs to the verdict and not to the kernel: the same file may be verified with and without, and
what was refuted once stays so. NULL where nothing was named; a kernel of a run has its own sketch.
"""

STATEMENTS = (
    "ALTER TABLE verdicts ADD COLUMN signature TEXT REFERENCES texts (digest)",
    "CREATE INDEX verdicts_by ON verdicts (signature)",
)
