"""What the compiler says and writes, recorded before a large change and compared after it.

    python benchmarks/behaviour.py draw FOLDER [COUNT]     random sketches (needs PYTHONPATH=tests)
    python benchmarks/behaviour.py record FOLDER OUT.jsonl.gz [--jobs N] [--only PATTERN]
    python benchmarks/behaviour.py compare BEFORE.jsonl.gz AFTER.jsonl.gz [--full] [--only PATTERN]

`record` runs the command line on every example, every golden input under tests/golden/diagnostics
and every sketch of FOLDER: `check --format json` (with its execution), `lower --emit ir`, and for
each target `lower --emit plan` and `lower`. An entry is the exit status and both outputs. The
random sketches are drawn once, so that both sides read the same texts. PATTERN is a regular
expression that names of entries ("examples/rms:cpp:code") must hold.

`compare` names each entry that differs, with the claims whose tier changed; it ends with status 1
where there is a difference, and with 2 where a verdict became weaker: a proved claim that no longer
is, or a sketch that was accepted and is refused.
"""

from __future__ import annotations

import argparse
import difflib
import gzip
import importlib.metadata
import io
import json
import multiprocessing
import os
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
TARGETS = ("triton_cuda", "triton_ascend", "cpp")
SEED = "20231"
#: From the weakest to the strongest.
TIERS = (
    "refuted",
    "unproved",
    "assumed",
    "tested",
    "checked at launch",
    "proved for these shapes",
    "proved",
)
OPTIONS = "# sketchc check"
Entry = dict[str, Any]


def draw(folder: Path, count: int) -> None:
    """Write `count` random sketches, one file each."""
    from random_sketches.__main__ import drawn

    folder.mkdir(parents=True, exist_ok=True)
    for generated in drawn(count):
        (folder / f"random_{generated.seed:04}.sketch").write_text(generated.text, "utf-8")


def options_of(path: Path) -> list[str]:
    """What the first line of a golden input asks for, as its test reads it."""
    head = path.read_text("utf-8", errors="replace").partition("\n")[0]
    return shlex.split(head.removeprefix(OPTIONS)) if head.startswith(OPTIONS) else []


def jobs(folder: Path) -> Iterator[tuple[str, str, list[str]]]:
    """(name, working directory, arguments) of every call."""
    folders = (REPOSITORY / "examples", REPOSITORY / "tests/golden/diagnostics", folder)
    for where in folders:
        for path in sorted(where.glob("*.sketch")):
            key = f"{where.name}/{path.stem}"
            extra = options_of(path)
            bound = [word for word in extra if word != "--execute"]
            if "--target" in bound:
                at = bound.index("--target")
                del bound[at : at + 2]
            yield f"{key}:check", str(where), ["check", "--format", "json", *extra, path.name]
            yield f"{key}:ir", str(where), ["lower", path.name, "--emit", "ir", "-t", "cpp", *bound]
            for target in TARGETS:
                base = ["lower", path.name, "--target", target, *bound]
                yield f"{key}:{target}:plan", str(where), [*base, "--emit", "plan"]
                yield f"{key}:{target}:code", str(where), base


def perform(job: tuple[str, str, list[str]]) -> Entry:
    """One call of the command line, in this (forked) process."""
    name, where, arguments = job
    os.chdir(where)
    (entry,) = importlib.metadata.entry_points(group="console_scripts", name="sketchc")
    output, errors = io.StringIO(), io.StringIO()
    status: Any = 0
    with redirect_stdout(output), redirect_stderr(errors):
        try:
            entry.load()(arguments)
        except SystemExit as error:
            status = error.code
    return {"name": name, "status": status, "out": output.getvalue(), "err": errors.getvalue()}


def record(folder: Path, out: Path, workers: int, only: str) -> None:
    """Run every job in a process of its own, forked from one that has the package loaded."""
    os.environ["SKETCHC_SEED"] = SEED
    (entry,) = importlib.metadata.entry_points(group="console_scripts", name="sketchc")
    entry.load()
    context = multiprocessing.get_context("fork")
    with (
        context.Pool(workers, maxtasksperchild=1) as pool,
        gzip.open(out, "wt", encoding="utf-8") as stream,
    ):
        wanted = [job for job in jobs(folder) if re.search(only, job[0])]
        for count, result in enumerate(pool.imap(perform, wanted, chunksize=1)):
            stream.write(json.dumps(result) + "\n")
            if count % 1000 == 0:
                print(count, result["name"], flush=True)


def read(path: Path, only: str) -> dict[str, Entry]:
    """The entries of a recording by name; `only` is the PATTERN that names must hold."""
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        entries = (json.loads(line) for line in stream)
        return {entry["name"]: entry for entry in entries if re.search(only, entry["name"])}


def claims(entry: Entry) -> Counter[tuple[str, str, str, int, int]]:
    """Sketch, claim, subject and place of each proof, and its tier."""
    with suppress(ValueError):
        return Counter(
            {
                (s["name"], p["claim"], p["subject"], p["span"]["start"], p["span"]["end"]): (
                    TIERS.index(p["tier"]) if p["tier"] in TIERS else 0
                )
                for s in json.loads(entry["out"])["sketches"]
                for p in s["proofs"]
            }
        )
    return Counter()


def weaker(old: Entry, new: Entry) -> list[str]:
    """What the new entry says less of than the old one."""
    found = []
    if old["status"] == 0 and new["status"] != 0:
        found.append("accepted before, refused now")
    if old["name"].endswith(":check"):
        before, after = claims(old), claims(new)
        for key, tier in before.items():
            now = after.get(key, -1)
            if now < tier:
                word = TIERS[now] if now >= 0 else "gone"
                found.append(f"{' '.join(map(str, key))}: {TIERS[tier]} -> {word}")
    return found


def difference(old: Entry, new: Entry) -> Iterable[str]:
    """Lines that say how two entries of one name differ; none where they do not."""
    if old["status"] != new["status"]:
        yield f"status {old['status']} -> {new['status']}"
    for part in ("out", "err"):
        lines = [entry[part].splitlines() for entry in (old, new)]
        yield from difflib.unified_diff(*lines, f"{part} before", f"{part} after", "", "", 1, "")


def compare(before: Path, after: Path, full: bool, only: str) -> int:
    """Print how two recordings differ; returns 2 where a proof is weaker, 1 for other changes."""
    old, new = read(before, only), read(after, only)
    missing, added = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
    for word, names in (("gone", missing), ("new", added)):
        for name in names:
            print(f"{word}: {name}")
    differ, weak = 0, len(missing)
    for name in sorted(old.keys() & new.keys()):
        lines = list(difference(old[name], new[name]))
        if not lines:
            continue
        differ += 1
        print(f"differs: {name}")
        for text in weaker(old[name], new[name]):
            weak += 1
            print(f"  weaker: {text}")
        for line in lines if full else lines[:6]:
            print(f"    {line[:160]}")
    print(f"{len(old)} entries before, {len(new)} after: {differ} differ, {weak} weaker")
    return 2 if weak else 1 if differ or added else 0


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    commands = parser.add_subparsers(dest="command", required=True)
    drawing = commands.add_parser("draw")
    drawing.add_argument("folder", type=Path)
    drawing.add_argument("count", type=int, nargs="?", default=1000)
    recording = commands.add_parser("record")
    recording.add_argument("folder", type=Path)
    recording.add_argument("out", type=Path)
    recording.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--full", action="store_true")
    for command in (recording, comparing):
        command.add_argument("--only", default="")
    given = parser.parse_args()
    match given.command:
        case "draw":
            draw(given.folder.resolve(), given.count)
        case "record":
            record(given.folder.resolve(), given.out.resolve(), given.jobs, given.only)
        case _:
            sys.exit(compare(given.before, given.after, given.full, given.only))


if __name__ == "__main__":
    main()
