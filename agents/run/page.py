"""The page of a run: from the folder that `sketchc gen` left to what a report shows.

Reads `trace.json`, `verdict.json`, the sketch, the kernel, the map between them, and the ledger
where there is one. Everything in them is data that others wrote; what is missing is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from sketchc.agents.llm.client import Spend
from sketchc.agents.llm.ledger import Record, read_ledger
from sketchc.agents.llm.messages import Reply
from sketchc.agents.run.record import FILES, Evidence, RunRecord, RunVerdict, Tried, details_of
from sketchc.agents.state.state import Step
from sketchc.base.diagnostics import UsageError, refuse
from sketchc.base.json_form import from_plain
from sketchc.lowering.registry import all_languages, language_of_file
from sketchc.lowering.source_map import digest
from sketchc.runtime.bench.text import is_measurement
from sketchc.runtime.report.content import Code, Page
from sketchc.runtime.report.files import facts_of, read_json, versions_of
from sketchc.runtime.report.listings import LINKED, code_of, links_of, quotations
from sketchc.runtime.report.results import Reproduce, measured_of, pairs, verified_of
from sketchc.runtime.report.steps import OPEN, Call, Message, Trace, Visit
from sketchc.runtime.report.text import sanitised, sanitised_line
from sketchc.runtime.verify.words import FAILED, PASSED, sizes_text

#: Characters of one prompt or reply, and of all of them, that a page holds.
_LONGEST_MESSAGE = 40_000
_MOST_TEXT = 2_000_000
#: Characters of a sketch or a kernel that are read.
_LARGEST_FILE = 4 << 20

_OTHERS = "This code was not written by the built-in Coder, so nobody knows which lines of the "
_OTHERS += "sketch it carries out."
_QUOTED = f"{_OTHERS} Comments that quote a line of the sketch are linked with it."
_CHANGED = "The sketch or the code has been changed since: their lines cannot be linked."
_WORDS = {
    "passed": PASSED,
    "generated": OPEN,
    "stopped": OPEN,
    "unfinished": OPEN,
    "incomplete": OPEN,
}


def page_of_run(folder: Path) -> Page:
    """The page of a run. Raises `UsageError` where there is no run, or one that has not ended."""
    if not (folder / "trace.json").exists():
        if (folder / "run" / "run.json").exists():
            msg = f"the run in {folder} has not come to an end; `sketchc gen ... --resume` goes on"
        else:
            msg = f"{folder} holds no run: `sketchc gen` leaves a trace.json in its folder"
        raise UsageError(msg)
    data = read_json(folder / "trace.json")
    if not isinstance(data, Mapping) or not isinstance(data.get("steps"), list):
        refuse(f"{folder / 'trace.json'} holds no trace of `sketchc gen`")
    record = from_plain(RunRecord, data, text=sanitised_line)
    found = folder / "verdict.json"
    result = from_plain(RunVerdict, read_json(found) if found.exists() else {})
    files = _Files(folder, record)
    measured = result.measurement or {}
    verdicts = (verified_of(result.verdict, files.reproduce()),) if result.verdict else ()
    measurements = (measured_of(measured),) if is_measurement(measured) else ()
    own = {
        "task": record.task,
        "target": record.target,
        "chip": record.hardware,
        "workflow": record.workflow,
        "Coder": {"builtin": "the built-in one", "llm": "a language model"}.get(
            record.coder, record.coder
        ),
        "attempts": str(record.attempts or ""),
        "seed": "" if record.seed is None else str(record.seed),
    }
    facts = {name: value for name, value in own.items() if value}
    facts |= {n: value for n, value in facts_of(verdicts, measurements) if n not in facts}
    word = record.outcome or "unfinished"
    return Page(
        title=f"{record.task.removesuffix('.py') or 'a task'} for {record.target}",
        state=_WORDS.get(word, FAILED),
        word=word,
        conclusion=record.reason,
        facts=tuple(facts.items()),
        verdicts=verdicts,
        measurements=measurements,
        not_measured=sanitised_line(measured.get("not_measured", "")),
        code=files.code(),
        trace=_trace(folder, record),
        files=tuple((name, _about(name)) for name in record.files),
        options=tuple((k.replace("_", " "), v) for k, v in pairs(record.options)),
        versions=tuple(dict.fromkeys((*pairs(record.versions), *versions_of(verdicts)))),
    )


# ---------------------------------------------------------------- the files


@attrs.define
class _Files:
    """The sketch and the kernel of a run's folder."""

    folder: Path
    record: RunRecord

    def first(self, *endings: str, but: tuple[str, ...] = ()) -> str:
        """The first file whose name ends so, and not in one of `but`; "" without one. Only names
        count, no paths."""
        names = (n for n in self.record.files if n == Path(n).name and n not in ("", ".", ".."))
        fitting = (name for name in names if name.endswith(endings))
        return next((name for name in fitting if not name.endswith(but)), "")

    def sketch_name(self) -> str:
        """The name of the sketch's file."""
        return self.first(".sketch")

    def kernel_name(self) -> str:
        """The name of the kernel's file: a source that is neither glue, task nor drop-in."""
        sources = (ending for language in all_languages() for ending in language.suffixes)
        return self.first(*sources, but=("_dropin.py", "_task.py", "_module.cpp"))

    def text(self, name: str) -> str:
        """The text of a file; "" where it cannot be read."""
        if not name:
            return ""
        try:
            with (self.folder / name).open("rb") as file:
                return file.read(_LARGEST_FILE).decode("utf-8", "replace")
        except OSError:
            return ""

    def by_others(self) -> bool:
        """Whether the last kernel was not made by the built-in Coder."""
        steps = self.record.steps
        origins = [details_of(step).origin for step in steps if step.agent == "coder"]
        given = "given" if self.record.options.get("kernel") else "builtin"
        return next((origin for origin in reversed(origins) if origin), given) != "builtin"

    def reproduce(self) -> Reproduce | None:
        """How to verify the kernel again; None where there is no task to verify it against."""
        moved = self.record.options.get("migration")
        if isinstance(moved, Mapping) and not moved.get("task"):
            return None
        sketch, kernel = self.sketch_name(), self.kernel_name()
        if self.by_others() and kernel:
            signature = str(self.folder / sketch) if sketch else ""
            return Reproduce(str(self.folder / kernel), signature, foreign=True)
        return Reproduce(str(self.folder / (sketch or kernel or "FILE")))

    def code(self) -> Code | None:
        """The sketch beside the kernel, linked where there is a map that fits both."""
        sketch, kernel = self.sketch_name(), self.kernel_name()
        texts = self.text(sketch), self.text(kernel)
        links, note = self._links(kernel, *texts)
        return code_of(
            (sketch, texts[0]) if texts[0] else None,
            (kernel, texts[1], language_of_file(kernel).name) if texts[1] else None,
            links,
            note,
        )

    def _links(
        self, kernel: str, sketch_text: str, kernel_text: str
    ) -> tuple[Mapping[int, tuple[int, ...]], str]:
        """The links between lines of the sketch and of the kernel, and a note on them."""
        name = self.first(".map.json")
        if not name:
            if not kernel or not self.by_others():
                return {}, ""
            quoted = quotations(sketch_text, kernel_text)
            return quoted, _QUOTED if quoted else _OTHERS
        try:
            data = read_json(self.folder / name)
        except UsageError:
            return {}, _CHANGED
        digests = {"code_digest": digest(kernel_text), "sketch_digest": digest(sketch_text)}
        wanted = {"code": kernel, **digests}.items()
        fits = isinstance(data, Mapping) and wanted <= data.items()
        return (links_of(data), LINKED) if fits else ({}, _CHANGED)


def _about(name: str) -> str:
    return next((what for ending, what in FILES.items() if name.endswith(ending)), "")


# ---------------------------------------------------------------- the trace


def _trace(folder: Path, record: RunRecord) -> Trace:
    """The trace with what the ledger of the folder holds."""
    note = ""
    records: Sequence[Record] = ()
    ledger = folder / "run" / "ledger.jsonl"
    if ledger.exists() and ledger.stat().st_size:
        try:
            records = read_ledger(ledger).records
        except UsageError as error:
            note = f"The ledger cannot be shown: {sanitised_line(error)}"
    return trace_of(record, records, note)


def trace_of(record: RunRecord, records: Sequence[Record], note: str = "") -> Trace:
    """What the agents did; `records` are all calls, in order."""
    calls = _calls(records)
    if any(call.left_out for call in calls):
        note = "Some texts are left out, since the page would be too large; "
        note += "`sketchc llm ledger` shows each call in full."
    steps, rest = [], list(calls)
    for step in record.steps:
        mine: list[Call] = []
        # Calls that failed stand before the one that was answered, and are the same step's.
        while rest and sum(not call.failed for call in mine) < step.calls:
            mine.append(rest.pop(0))
        steps.append(_visit(step, tuple(mine)))
    return Trace(tuple(steps), tuple(_totals(record.totals)), tuple(rest), note)


def _totals(totals: Spend | None) -> Iterator[tuple[str, str]]:
    if totals is None:
        return
    yield "calls", f"{totals.calls:,}"
    yield "input tokens", f"{totals.input_tokens:,}"
    yield "output tokens", f"{totals.output_tokens:,}"
    if totals.calls:
        unpriced = totals.unpriced_calls
        known = f"{totals.cost:.4f}" if totals.cost else "unknown" if unpriced else "0"
        without = f", without {unpriced} calls" if totals.cost and unpriced else ""
        yield "cost", known + without
    yield "time of all steps", f"{totals.seconds:.1f} s"


def _visit(step: Step, made: tuple[Call, ...]) -> Visit:
    details = details_of(step, sanitised_line)
    evidence = details.evidence
    return Visit(
        attrs.evolve(step, seconds=max(step.seconds, 0.0)),
        details,
        _state(step),
        tuple(_evidence(evidence)),
        sanitised("\n".join(map(str, evidence.log)), 20_000),
        tuple(map(_tried, details.attempts[:40])),
        made,
    )


def _state(step: Step) -> str:
    """The state of a step: of a Conductor's, by its outcome, since its failure is that of the step
    before, which it handles."""
    if step.agent == "conductor":
        return {"finish": PASSED, "exhausted": FAILED}.get(step.outcome, OPEN)
    return FAILED if step.failure else PASSED


def _evidence(found: Evidence) -> Iterator[tuple[str, str]]:
    """The facts of a failure, in the words of docs/VERIFICATION.md."""
    for name in ("meaning", "reason"):
        if said := getattr(found, name):
            yield name, said
    if (case := found.case) is not None:
        about = case.inputs_are or case.inputs
        parts = (sizes_text(dict(pairs(case.sizes))), f"inputs: {about}" if about else "")
        yield "case", "; ".join(part for part in parts if part)
    if found.wrong is not None and found.elements is not None:
        yield "wrong elements", f"{found.wrong} of {found.elements} of {found.output}"
    if (first := found.first_wrong) is not None:
        place = ", ".join(map(str, first.index))
        text = f"[{place}] is {first.actual} and should be {first.expected}"
        if first.allowed != "":
            text += f" (off by {first.error}, allowed {first.allowed})"
        yield "first wrong element", sanitised_line(text)
    asked = {
        "the sketch is right there": found.sketch_right,
        "the code does what the sketch says": found.code_as_sketch,
    }
    for words, truth in asked.items():
        if truth is not None:
            yield words, "yes" if truth else "no"
    if found.undecided:
        yield "undecided", found.undecided


def _tried(found: Tried) -> str:
    """One sketch of the Designer in a line."""
    codes = f" ({', '.join(found.codes)})" if found.codes else ""
    said = f": {found.summary}" if found.summary else ""
    return f"sketch {found.number}: {found.stage}{codes}{said}"


# ---------------------------------------------------------------- calls


def _calls(records: Sequence[Record]) -> tuple[Call, ...]:
    """All calls; once the page would be too large, the texts of the rest are left out."""
    found, room = [], _MOST_TEXT
    for record in records:
        messages = tuple(
            Message(sanitised_line(m.role), sanitised(m.content, _LONGEST_MESSAGE))
            for m in record.request.messages
        )
        said = sanitised(record.reply.text if record.reply else record.message, _LONGEST_MESSAGE)
        room -= sum(len(message.text) for message in messages) + len(said)
        call = attrs.evolve(_call(record), left_out=room < 0)
        found.append(call if room < 0 else attrs.evolve(call, messages=messages, reply=said))
    return tuple(found)


def _call(record: Record) -> Call:
    """A call without its texts."""
    reply = record.reply or Reply("", "")
    tokens = ""
    if record.reply is not None:
        counted = "estimated" if reply.usage.estimated else "counted"
        tokens = f"{reply.usage.input_tokens:,} in, {reply.usage.output_tokens:,} out ({counted})"
    return Call(
        number=record.number,
        purpose=sanitised_line(record.request.purpose),
        level=sanitised_line(record.request.level),
        provider=sanitised_line(record.provider),
        model=sanitised_line(reply.model),
        started=sanitised_line(record.started),
        outcome=sanitised_line(record.error or reply.finish),
        failed=record.reply is None,
        tokens=tokens,
        cost="" if reply.cost is None else f"{reply.cost:.4f}",
        seconds=reply.seconds,
    )
