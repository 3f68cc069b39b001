"""The seed of what is drawn at random, where a command is not given one."""

from __future__ import annotations

import os
import secrets

from sketchc.base.diagnostics import refuse

#: Gives every command the same seed, unless it has `--seed`.
VARIABLE = "SKETCHC_SEED"
_BITS = 48


def fresh_seed() -> int:
    """$SKETCHC_SEED, else an unpredictable number. Raises `UsageError` where the variable is no
    seed."""
    named = os.environ.get(VARIABLE, "")
    if not named:
        return secrets.randbits(_BITS)
    if not (named.isascii() and named.isdigit() and int(named) < 1 << _BITS):
        refuse(f"{VARIABLE} is {named!r}: it must be a whole number from 0 to 2^{_BITS} - 1")
    return int(named)
