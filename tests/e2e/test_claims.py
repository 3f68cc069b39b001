"""What the checker says is true, and what it refutes is false: examples with one token changed.

`SKETCHC_CLAIMS=20000 pytest tests/e2e/test_claims.py` challenges that many instead of 300; a
failure names the number of the text.
"""

from __future__ import annotations

import os

import pytest
from claims import challenge
from damaged_texts import damaged, judged

from sketchc.base.diagnostics import InternalError

COUNT = int(os.environ.get("SKETCHC_CLAIMS", "300"))
CHUNK = 50
#: Processor time that one text may take, several times what the slowest takes.
SECONDS = 120.0


def _faults(number: int) -> list[str]:
    try:
        return challenge(damaged(number).text, number)
    except InternalError as error:
        return [f"internal error: {error}"]


@pytest.mark.sweep
@pytest.mark.parametrize("chunk", range(max(1, COUNT // CHUNK)))
def test_no_verdict_on_a_damaged_text_is_wrong(chunk: int) -> None:
    wrong = []
    numbers = range(chunk * CHUNK, (chunk + 1) * CHUNK)
    for result in judged(_faults, numbers, SECONDS, 1):
        text = damaged(result.item)
        if result.verdict is None:
            wrong.append(f"{result.item} {text.example}, {text.change}: did not end")
        else:
            wrong += [f"{result.item} {text.example}, {text.change}: {f}" for f in result.verdict]
    assert not wrong, "\n".join(wrong)
