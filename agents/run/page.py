"""The page of a run: from the folder that `sketchc gen` left to what a report shows.

Reads `trace.json`, `verdict.json`, the sketch, the kernel, the map between them, and the ledger
where there is one. Everything in them is data that others wrote; what is missing is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from sketchc.agents.llm.ledger import Record, read_ledger
from sketchc.agents.llm.messages import Reply
from sketchc.base.diagnostics import UsageError
from sketchc.base.json_form import from_plain
from sketchc.lowering.registry import language_of_file
from sketchc.lowering.source_map import digest
from sketchc.runtime.bench.text import is_measurement
from sketchc.runtime.report.content import (
    OPEN,
    Call,
    Code,
    Message,
    Page,
    Step,
    Trace,
)
from sketchc.runtime.report.files import facts_of, read_json, versions_of
from sketchc.runtime.report.listings import LINKED, code_of, links_of, quotations
from sketchc.runtime.report.results import Reproduce, measured_of, verified_of
from sketchc.runtime.report.text import Fields, clean, clean_line
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


def is_run(folder: Path) -> bool:
    """True for a folder that `sketchc gen` wrote its outputs to, or is writing to."""
    return (folder / "trace.json").exists() or (folder / "run" / "run.json").exists()


def page_of_run(folder: Path) -> Page:
    """The page of a run. Raises `UsageError` for a folder without one, or one that has no end."""
    if not (folder / "trace.json").exists():
        if is_run(folder):
            msg = f"the run in {folder} has not come to an end; `sketchc gen ... --resume` goes on"
        else:
            msg = f"{folder} holds no run: `sketchc gen` leaves a trace.json in its folder"
        raise UsageError(msg)
    trace = Fields(read_json(folder / "trace.json"))
    if not isinstance(trace.raw("steps"), list):
        msg = f"{folder / 'trace.json'} holds no trace of `sketchc gen`"
        raise UsageError(msg)
    found = folder / "verdict.json"
    result = Fields(read_json(found) if found.exists() else {})
    files = _Files(folder, trace)
    verdict, measured = result.within("verdict"), result.within("measurement")
    verdicts = (verified_of(verdict.data, files.reproduce()),) if verdict.mapping else ()
    measurements = (measured_of(measured.mapping),) if is_measurement(measured.mapping) else ()
    word = trace.text("outcome") or "unfinished"
    target = trace.text("target")
    facts = dict(facts_of(verdicts, measurements))
    own = {
        "task": trace.text("task"),
        "target": target,
        "chip": trace.text("hardware"),
        "workflow": trace.text("workflow"),
        "Coder": {"builtin": "the built-in one", "llm": "a language model"}.get(
            trace.text("coder"), trace.text("coder")
        ),
        "attempts": trace.text("attempts"),
        "seed": trace.text("seed"),
    }
    facts = {name: value for name, value in own.items() if value} | {
        name: value for name, value in facts.items() if not own.get(name)
    }
    return Page(
        title=f"{trace.text('task').removesuffix('.py') or 'a task'} for {target}",
        state=_WORDS.get(word, FAILED),
        word=word,
        conclusion=trace.text("reason"),
        facts=tuple(facts.items()),
        verdicts=verdicts,
        measurements=measurements,
        not_measured=measured.text("not_measured"),
        code=files.code(),
        trace=_trace(folder, trace),
        files=tuple((name, _about(name)) for name in trace.texts("files")),
        options=tuple((k.replace("_", " "), v) for k, v in trace.pairs("options")),
        versions=tuple(dict.fromkeys((*trace.pairs("versions"), *versions_of(verdicts)))),
    )


# ---------------------------------------------------------------- the files


@attrs.define
class _Files:
    """The sketch and the kernel of a run's folder."""

    folder: Path
    trace: Fields

    def named(self) -> list[str]:
        """The files of the run, by its own account; only names, no paths."""
        names = self.trace.texts("files")
        return [name for name in names if name == Path(name).name and name not in ("", ".", "..")]

    def first(self, *endings: str, but: tuple[str, ...] = ()) -> str:
        """The first file whose name ends so, and not in one of `but`; "" without one."""
        fitting = (name for name in self.named() if name.endswith(endings))
        return next((name for name in fitting if not name.endswith(but)), "")

    def sketch_name(self) -> str:
        """The sketch."""
        return self.first(".sketch")

    def kernel_name(self) -> str:
        """The kernel: the source file that is neither glue, nor task, nor drop-in."""
        return self.first(".cpp", ".py", but=("_dropin.py", "_task.py", "_module.cpp"))

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
        origins = [
            step.within("details").text("origin")
            for step in self.trace.each("steps")
            if step.text("agent") == "coder"
        ]
        given = "given" if self.trace.within("options").text("kernel") else "builtin"
        return next((origin for origin in reversed(origins) if origin), given) != "builtin"

    def reproduce(self) -> Reproduce:
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
        """The map, and what to say of it."""
        name = self.first(".map.json")
        if not name:
            if not kernel or not self.by_others():
                return {}, ""
            quoted = quotations(sketch_text, kernel_text)
            return quoted, _QUOTED if quoted else _OTHERS
        try:
            data = Fields(read_json(self.folder / name))
        except UsageError:
            return {}, _CHANGED
        fits = (
            data.text("code") == kernel
            and data.text("code_digest") == digest(kernel_text)
            and data.text("sketch_digest") == digest(sketch_text)
        )
        return (links_of(data.data), LINKED) if fits else ({}, _CHANGED)


_ENDINGS = {
    ".sketch": "the sketch",
    ".plan": "the plan: the sketch mapped onto the chip",
    ".map.json": "which lines of the kernel come from which lines of the sketch",
    "_dropin.py": "the drop-in module",
    "_task.py": "the task, which the drop-in builds on",
    "_module.cpp": "the glue of the Python module around the kernel",
    ".so": "the kernel as a Python module, for this machine",
    "trace.json": "every step and route, as data",
    "verdict.json": "the verdict and the measurement, as data",
    "SUMMARY.md": "the run in words",
    ".cpp": "the kernel",
    ".py": "the kernel",
}


def _about(name: str) -> str:
    return next((what for ending, what in _ENDINGS.items() if name.endswith(ending)), "")


# ---------------------------------------------------------------- the trace


def _trace(folder: Path, trace: Fields) -> Trace:
    """The trace with what the ledger of the folder holds."""
    note = ""
    records: Sequence[Record] = ()
    ledger = folder / "run" / "ledger.jsonl"
    if ledger.exists() and ledger.stat().st_size:
        try:
            records = read_ledger(ledger).records
        except UsageError as error:
            note = f"The ledger cannot be shown: {clean_line(error)}"
    return trace_of(trace, records, note)


def trace_of(trace: Fields, records: Sequence[Record], note: str = "") -> Trace:
    """What the agents did, from trace.json's data; `records` are all calls, in order."""
    calls = _calls(records)
    if any(call.left_out for call in calls):
        note = "Some texts are left out, since the page would be too large; "
        note += "`sketchc llm ledger` shows each call in full."
    steps, rest = [], list(calls)
    for data in trace.each("steps"):
        mine: list[Call] = []
        wanted = data.integer("calls") or 0
        # Calls that failed stand before the one that was answered, and are the same step's.
        while rest and sum(not call.failed for call in mine) < wanted:
            mine.append(rest.pop(0))
        steps.append(_step(data, tuple(mine)))
    return Trace(tuple(steps), _totals(trace.within("totals")), tuple(rest), note)


def _totals(data: Fields) -> tuple[tuple[str, str], ...]:
    shown = [
        (name.replace("_", " "), f"{value:,}")
        for name in ("calls", "input_tokens", "output_tokens")
        if (value := data.integer(name)) is not None
    ]
    unpriced = data.integer("unpriced_calls") or 0
    cost = data.number("cost") or 0.0
    if data.integer("calls"):
        known = f"{cost:.4f}" if cost else "unknown" if unpriced else "0"
        shown.append(("cost", f"{known}, without {unpriced} calls" if cost and unpriced else known))
    seconds = data.number("seconds")
    if seconds is not None:
        shown.append(("time of all steps", f"{seconds:.1f} s"))
    return tuple(shown)


def _step(data: Fields, made: tuple[Call, ...]) -> Step:
    details = data.within("details")
    evidence = details.within("evidence")
    advice, route = details.within("advice").mapping, details.within("route").mapping
    inner = {
        "diagnostics": [one.data for one in evidence.each("diagnostics")[:40]],
        "route": {**advice, **route, "decided_by": details.raw("decided_by")} if route else None,
    }
    step = from_plain(Step, {**data.mapping, **inner}, text=clean_line)
    return attrs.evolve(
        step,
        state=_state(step),
        seconds=max(step.seconds, 0.0),
        evidence=tuple(_evidence(evidence)),
        log=clean("\n".join(_log_lines(evidence)), 20_000),
        tried=tuple(_tried(one) for one in details.each("attempts")[:40]),
        made=made,
    )


def _state(step: Step) -> str:
    """A failure is the step's own; the Conductor's is that of the step before, which it handles."""
    if step.agent == "conductor":
        return {"finish": PASSED, "exhausted": FAILED}.get(step.outcome, OPEN)
    return FAILED if step.failure else PASSED


def _evidence(data: Fields) -> Iterator[tuple[str, str]]:
    """The facts of a failure, in the words of docs/VERIFICATION.md."""
    for name in ("meaning", "reason"):
        if data.text(name):
            yield name, data.text(name)
    case = data.within("case")
    sizes = sizes_text(dict(case.within("sizes").entries()))
    if case.mapping:
        about = case.text("inputs_are") or case.text("inputs")
        yield (
            "case",
            "; ".join(part for part in (sizes, f"inputs: {about}" if about else "") if part),
        )
    if data.integer("wrong") is not None:
        yield (
            "wrong elements",
            f"{data.text('wrong')} of {data.text('elements')} of {data.text('output')}",
        )
    first = data.within("first_wrong")
    if first.mapping:
        index = first.raw("index")
        place = ", ".join(map(str, index)) if isinstance(index, list) else ""
        text = f"[{place}] is {first.text('actual')} and should be {first.text('expected')}"
        if first.text("allowed"):
            text += f" (off by {first.text('error')}, allowed {first.text('allowed')})"
        yield "first wrong element", clean_line(text)
    asked = {
        "sketch_right": "the sketch is right there",
        "code_as_sketch": "the code does what the sketch says",
    }
    for name, words in asked.items():
        truth = data.truth(name)
        if truth is not None:
            yield words, "yes" if truth else "no"
    if undecided := data.text("undecided"):
        yield "undecided", clean_line(undecided)


def _log_lines(evidence: Fields) -> Sequence[str]:
    found = evidence.raw("log")
    lines = found if isinstance(found, list) else [found] if isinstance(found, str) else []
    return [str(line) for line in lines]


def _tried(data: Fields) -> str:
    """One sketch of the Designer in a line."""
    codes = ", ".join(data.texts("codes"))
    said = f"sketch {data.text('number')}: {data.text('stage')}"
    return (
        said
        + (f" ({codes})" if codes else "")
        + (f": {data.text('summary')}" if data.text("summary") else "")
    )


# ---------------------------------------------------------------- calls


def _calls(records: Sequence[Record]) -> tuple[Call, ...]:
    """All calls; once the page would be too large, the texts of the rest are left out."""
    found, room = [], _MOST_TEXT
    for record in records:
        messages = tuple(
            Message(clean_line(m.role), clean(m.content, _LONGEST_MESSAGE))
            for m in record.request.messages
        )
        said = clean(record.reply.text if record.reply else record.message, _LONGEST_MESSAGE)
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
        purpose=clean_line(record.request.purpose),
        level=clean_line(record.request.level),
        provider=clean_line(record.provider),
        model=clean_line(reply.model),
        started=clean_line(record.started),
        outcome=clean_line(record.error or reply.finish),
        failed=record.reply is None,
        tokens=tokens,
        cost="" if reply.cost is None else f"{reply.cost:.4f}",
        seconds=reply.seconds,
    )
