"""What `sketchc report` adds to JSON files: the sketch beside its code, lowered again to get the
source map, and pages of what the store holds (a verdict, a measurement, a kernel, a run)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from sketchc.api import sketches
from sketchc.base.diagnostics import DiagnosticError, UsageError, refuse
from sketchc.base.json_form import from_plain
from sketchc.cli import options
from sketchc.lowering.registry import load_language, load_target, target_names
from sketchc.runtime.report.content import Page
from sketchc.runtime.report.files import MOST, Result, page_of
from sketchc.runtime.report.listings import LINKED, code_of, quotations
from sketchc.runtime.report.results import Reproduce, pairs
from sketchc.runtime.report.steps import Trace
from sketchc.runtime.report.text import sanitised_line

if TYPE_CHECKING:
    from sketchc.base.diagnostics import Source
    from sketchc.lowering.kernel import Kernel
    from sketchc.runtime.report.content import Code

_NOW = "The code is what the sketch is lowered to now. "
_OTHER = (
    "This is not the code that this version of sketchc lowers the sketch to: comments that quote a "
)
_OTHER += "line of the sketch are linked with it, and nothing else."


@attrs.frozen
class Texts:
    """A sketch (its text as written, "" for none) and the code that was verified or measured, for a
    target, with its constants."""

    name: str
    sketch: str
    source: str
    language: str
    target: str
    hardware: str
    constants: tuple[tuple[str, str], ...]


def code_of_sketch(path: str, page: Page) -> Code | None:
    """The sketch in a file beside what it is lowered to for the target and with the constants of
    the page's first result. Raises `UsageError` and `SketchError` for a sketch that does not fit.
    """
    first = page.verdicts[0].verdict if page.verdicts else page.measurements[0].measurement
    source = sketches.read_source(path)
    kernel = _lowered(source, first.target, first.hardware, pairs(dict(first.constants)))
    name = f"{kernel.name}{load_language(kernel.language).suffix}"
    return code_of(
        (Path(path).name, source.text),
        (name, kernel.source, kernel.language),
        dict(kernel.source_map),
        _NOW + LINKED,
    )


def code_of_texts(texts: Texts) -> Code | None:
    """The sketch beside its recorded code, linked by source map or, for other code, by comments."""
    from sketchc.base.diagnostics import Source

    links: dict[int, tuple[int, ...]] = {}
    note = ""
    if texts.sketch:
        try:
            source = Source(f"{texts.name}.sketch", texts.sketch)
            kernel = _lowered(source, texts.target, texts.hardware, texts.constants)
        except (UsageError, sketches.SketchError):
            kernel = None
        if kernel is not None and kernel.source == texts.source:
            links, note = dict(kernel.source_map), LINKED
        else:
            links, note = quotations(texts.sketch, texts.source), _OTHER
    return code_of(
        (f"{texts.name}.sketch", texts.sketch) if texts.sketch else None,
        (f"{texts.name}{load_language(texts.language).suffix}", texts.source, texts.language),
        links,
        note,
    )


def texts_of_page(page: Page) -> Texts | None:
    """The texts of the first measurement on the page that has its code; None without one."""
    for one in page.measurements:
        found = one.measurement
        if found.source:
            known = found.target in target_names()
            return Texts(
                one.title,
                found.sketch_text,
                found.source,
                load_target(found.target).language.name if known else "python",
                found.target,
                found.hardware,
                pairs(found.constants),
            )
    return None


def _lowered(
    source: Source, target: str, hardware: str, given: Sequence[tuple[str, str]]
) -> Kernel:
    """The kernel of a text that holds one sketch, lowered with the constants `given`."""
    from sketchc.base.diagnostics import has_errors
    from sketchc.parsing.parser import parse

    constants = options.parse_assignments([f"{name}={value}" for name, value in given], "--set")
    with sketches.pointing_into(source):
        tree, found = parse(source)
        if tree is None or has_errors(found):
            raise DiagnosticError(found)
        if len(tree.entries) != 1:
            refuse(f"{source.name} holds {len(tree.entries)} sketches; a page shows one")
        chosen, chip = options.resolve_target(target, hardware or None)
        planned = sketches.plan_sketch(source, tree.entries[0], chosen, chip, constants)
        return load_target(chosen).emit(planned.plan)


_CLAIMS = ("verdict", "measurement")


def page_of_ids(store: Path, identities: Sequence[str]) -> Page:
    """One page for all ids. Raises `UsageError` for ids that the store lacks, or without a page."""
    from sketchc.runtime.store.database import read_store
    from sketchc.runtime.store.reading import show

    claims: list[dict[str, Any]] = []
    folders: dict[str, Path] = {}
    trace: Trace | None = None
    with read_store(store) as connection:
        for identity in identities:
            found = show(connection, identity)
            if found["kind"] in _CLAIMS:
                claims.append(found)
                continue
            of_run = found["kind"] == "run"
            # A run's last verdict is on its last kernel; those before stand in its trace.
            most = 1 if of_run else MOST
            rows = [r for kind in ("verdicts", "measurements") for r in _rows(found, kind)[:most]]
            if (not of_run and found["kind"] != "kernel") or not rows:
                msg = f"{identity} is a {found['kind']} without a verdict or a measurement of its "
                msg += "own to show: give the id of a verdict, a measurement, a kernel or a run"
                raise UsageError(msg)
            trace = _trace(found) if of_run else trace
            claims += [show(connection, row["id"]) for row in rows]
        for row in connection.execute("SELECT id, folder FROM runs"):
            folders[row["id"]] = Path(row["folder"])
    files = [_files(claim, folders.get(claim["run"] or "")) for claim in claims]
    results = [_result(claim, *found) for claim, found in zip(claims, files, strict=True)]
    notes = [
        note for claim, found in zip(claims, files, strict=True) for note in _gone(claim, found)
    ]
    page = page_of(results, code_of_texts(_texts(claims[0]["kernel"])), list(dict.fromkeys(notes)))
    return attrs.evolve(page, trace=trace)


def _rows(found: Mapping[str, Any], kind: str) -> list[Mapping[str, Any]]:
    rows = found.get(kind)
    return rows if isinstance(rows, list) else []


def _trace(found: Mapping[str, Any]) -> Trace | None:
    """What the agents of a run did; None for one that has no trace yet."""
    from sketchc.agents.llm.ledger import VERSION, parse
    from sketchc.agents.run.page import trace_of
    from sketchc.agents.run.record import RunRecord

    if not found.get("trace"):
        return None
    trace = from_plain(RunRecord, found["trace"], text=sanitised_line)
    lines = _rows(found, "ledger")
    if not lines:
        return trace_of(trace, ())
    # A ledger is recognised by its first key, which may stand elsewhere in a database.
    mark = {"sketchc_ledger": lines[0].get("sketchc_ledger", VERSION)}
    text = "".join(json.dumps(line) + "\n" for line in ({**mark, **lines[0]}, *lines[1:]))
    return trace_of(trace, parse(text.encode(), Path("the ledger in the store")).records)


@attrs.frozen
class _File:
    """A file that a verdict was reached with: its path, and whether its text is unchanged."""

    path: str
    same: bool


def _files(claim: Mapping[str, Any], folder: Path | None) -> tuple[_File, _File | None]:
    """The verified file of a claim, and the sketch with its signature where that is another file.
    `folder` is that of the run that made the claim; it may be gone, or hold later files."""
    evidence, kernel = claim["evidence"], claim["kernel"]
    given, name = evidence["kernel"].get("path", ""), sanitised_line(kernel["name"])
    sketch = kernel["sketch_text"] or ""
    if kernel["origin"] == "builtin":
        return _file(sketch, given, f"{name}.sketch", folder), None
    ending = load_language(kernel["language"]).suffix
    verified = _file(kernel["text"], given, f"{name}{ending}", folder)
    called = claim.get("signature") or sketch
    if not called:
        return verified, None
    named = evidence.get("asked", {}).get("signature", "")
    return verified, _file(called, named, f"{name}.sketch", folder)


def _file(text: str, given: str, name: str, folder: Path | None) -> _File:
    """The file with this text: the path `given`, else a file of the run's `folder`, else `name`."""
    if given:
        return _File(given, _holds(Path(given), text))
    if folder is None:
        return _File(name, _holds(Path(name), text))
    of_kind = sorted(folder.glob(f"*{Path(name).suffix}"))
    found = next((path for path in of_kind if _holds(path, text)), None)
    return _File(str(found or folder / name), found is not None)


def _holds(path: Path, text: str) -> bool:
    try:
        return path.read_text("utf-8", "replace") == text
    except (OSError, ValueError):
        return False


def _gone(claim: Mapping[str, Any], files: tuple[_File, _File | None]) -> list[str]:
    """A note where the files to repeat a verdict with no longer have the verified texts."""
    if claim["kind"] != "verdict":
        return []
    lost = [sanitised_line(one.path) for one in files if one is not None and not one.same]
    if not lost:
        return []
    note = f"To repeat it, write the texts that were verified to {' and '.join(lost)}: what is "
    note += f"there is another, or nothing; `sketchc store show {claim['id'][:12]} --json` has them"
    return [note]


def _result(claim: Mapping[str, Any], verified: _File, called: _File | None) -> Result:
    """A claim's evidence, and the files to repeat it with."""
    foreign = claim["kernel"]["origin"] != "builtin"
    signature = "" if called is None else called.path
    return Result(claim["evidence"], Reproduce(verified.path, signature, foreign))


def _texts(kernel: Mapping[str, Any]) -> Texts:
    return Texts(
        name=sanitised_line(kernel["name"]),
        sketch=kernel["sketch_text"] or "",
        source=kernel["text"],
        language=kernel["language"],
        target=kernel["target"],
        hardware=kernel["hardware"],
        constants=pairs(kernel["constants"]),
    )
