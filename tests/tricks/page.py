"""docs/TRICKS.md, made from the table: `python tests/tricks/page.py` writes it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tricks.table import FOLDER, Trick, load

PLACE = FOLDER.parents[1] / "docs" / "TRICKS.md"

HEAD = """# Tricks, and what catches them

Kernels that try to be accepted without doing the work. Each is a real file under `tests/tricks/`,
written to win: where it could, it says none of the words that the look at the text refuses, so
that behaviour must decide. `tests/e2e/test_tricks.py` puts them before `sketchc verify` and
`sketchc bench` on each change, together with honest kernels that look suspicious and must pass;
`tests/device/test_tricks_cuda.py` does so with those that need a GPU
(`SKETCHC_TRICKS_RECORD=FILE` keeps what is said of each; on an H200:
[tricks_h200.jsonl](data/tricks_h200.jsonl)). This page is made from
`tests/tricks/tricks.toml` by `tests/tricks/page.py`.

{cheats} tricks, {mechanisms} mechanisms (the others are the same for another language or target:
"as ..."), {cpu} run without a GPU; {honest} honest kernels. The classes of failure are those of
[VERIFICATION.md](VERIFICATION.md).
"""

LIMITS = """
## What is not caught

- **Right answers that were looked up.** A kernel that recognises the *whole* input and returns
  what it computed for it before is a pure function, and passes `verify`. It gains nothing in
  `bench`, where each sample has inputs of its own.
- **Noise within the tolerance, in a kernel that adds atomically.** Its runs may differ; each must
  be right.
- **Knowing that one is being verified.** A kernel may be right on all sizes up to some bound,
  poisoned outputs or few calls, and wrong later. `bench` compares the outputs of timed runs, at
  the sizes that are timed; nobody compares what runs afterwards.
- **Python that sets out to break its guard.** A `ModelNew` shares an interpreter with what
  watches it. The guard listens to audit events, sees who sets its attributes and who takes modes
  off, and looks whether functions are still what they were; code that writes into the
  interpreter's memory, or into the guard's dictionary, can still undo it. What it returns is
  compared by another process all the same, and the numbers must be right.
- **Machine code of its own.** A C++ kernel can carry system calls in its text, or find functions
  of the C library in memory, which no table of symbols shows. It is held by the sandbox: no
  programs, no files, no network. A library that a `ModelNew` builds is held less: it starts no
  program once forward has inputs (on CPUs; on a GPU Triton compiles in forward), but it lives in a
  process that holds Python and torch, opens files, and can find their functions in memory and
  call them from a thread of its own, where no mode of torch watches.
- **BLAS that a kernel brings along.** A product copied from a library's sources, or one written
  as well, is a kernel.
"""


def text() -> str:
    """The page."""
    tricks = load()
    cheats = [trick for trick in tricks if trick.caught]
    head = HEAD.format(
        cheats=len(cheats),
        mechanisms=sum(not trick.like for trick in cheats),
        cpu=sum(trick.runs == "cpu" for trick in cheats),
        honest=len(tricks) - len(cheats),
    )
    parts = [head]
    for title, folder in (
        ("C++ kernels", "cpp"),
        ("Models (`ModelNew`)", "module"),
        ("Triton wrappers", "triton"),
        ("Measured with `sketchc bench`", "bench"),
        ("On GPUs only", "gpu"),
    ):
        rows = [_row(trick) for trick in cheats if trick.file.startswith(f"{folder}/")]
        columns = ["| kernel | what it does | class | caught by |", "|---|---|---|---|"]
        parts += [f"## {title}\n", *columns, *rows, ""]
    parts += ["## Honest kernels that look suspicious\n"]
    parts += ["| kernel | what it does |", "|---|---|"]
    parts += [f"| `{t.file}` | {t.mechanism} |" for t in tricks if not t.caught]
    return "\n".join(parts) + "\n" + LIMITS


def _row(trick: Trick) -> str:
    classes = " or ".join(f"`{name}`" for name in trick.caught)
    caught = f"{trick.by} (as `{trick.like}`)" if trick.like else trick.by
    timed = ", timed" if trick.command == "bench" and trick.runs == "gpu" else ""
    return f"| `{trick.file}`{timed} | {trick.mechanism} | {classes} | {caught} |"


def main(arguments: Sequence[str] = ()) -> int:
    """Write the page."""
    del arguments
    PLACE.write_text(text(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
