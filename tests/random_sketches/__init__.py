"""Random well-formed sketches: every operation and every access form, in many combinations.

`generate(seed, balance)` gives the text of one sketch, sizes to run it at, what its inputs must
hold, and which operations and forms it uses. `balance` counts what earlier sketches used; rows that
were used least come first, so that a few hundred sketches use every one of them many times.
"""

from random_sketches.draft import Generated
from random_sketches.generate import generate

__all__ = ["Generated", "generate"]
