"""The switch of the verifiers between stages: `ir.verify` and the plan's.

Off, it costs a look at the environment per stage. It is an environment variable, so that worker
processes have it from the process that starts them.
"""

from __future__ import annotations

import os

#: "1" switches the verifiers on.
VARIABLE = "SKETCHC_VERIFY_IR"


def enabled() -> bool:
    """Whether each stage's result is to be verified."""
    return os.environ.get(VARIABLE) == "1"


def enable() -> None:
    """Verify each stage's result from now on, in this process and those that it starts."""
    os.environ[VARIABLE] = "1"
