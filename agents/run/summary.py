"""A run in words: SUMMARY.md, from the run's record.

Pure: nothing here reads a file or a clock. Takes plain data, returns Markdown.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from sketchc.agents.llm.messages import ReplayMissError
from sketchc.agents.run.record import RunRecord, details_of, headline
from sketchc.agents.state.state import RunState, Step
from sketchc.agents.workflows import Workflow, load_workflow
from sketchc.lowering.registry import load_target
from sketchc.runtime.verify.verdict import Verdict, from_json
from sketchc.runtime.verify.words import SKIPPED, UNBUILT, sizes_text

if TYPE_CHECKING:
    from sketchc.agents.run.run import RunOptions

#: Rows of the table of cases, and characters of a cell and of a log.
_MOST_CASES = 60
_CELL = 240
_LOG_LINES = 20


@attrs.frozen
class Facts:
    """What a summary is made of: the record, and what stands in verdict.json. `files` are (name,
    what it is); `dropin` is the module's name, "" where there is none, and `no_dropin` then says
    why; `task_path` and `folder` are as the user gave them; `given_kernel` is the file here that
    holds the kernel that was given."""

    record: RunRecord
    options: RunOptions
    verdict: Mapping[str, Any] | None
    measurement: Mapping[str, Any] | None
    files: Sequence[tuple[str, str]]
    task_path: str
    folder: str = "out"
    given_kernel: str = ""
    dropin: str = ""
    no_dropin: str = ""

    @property
    def workflow(self) -> Workflow:
        """The workflow of the run."""
        return load_workflow(self.options.workflow)

    @property
    def replies(self) -> bool:
        """Whether the ledger holds a reply, so that it can be replayed."""
        return bool(self.record.used.input_tokens + self.record.used.output_tokens)


def summary(facts: Facts) -> str:
    """The whole text of SUMMARY.md."""
    options, record = facts.options, facts.record
    parts = [
        f"# {_stem(options.task)} for {options.target}: {record.outcome}",
        conclusion(record),
        "## What was asked\n\n" + _asked(facts),
        "## What happened\n\n" + _steps(record.steps),
    ]
    if routes := _routes(record.steps):
        parts.append("## Who mended what, and why\n\n" + routes)
    parts.append("## Calls and spend\n\n" + _spend(facts))
    verdict = None if facts.verdict is None else from_json(facts.verdict)
    if verdict is not None:
        parts.append("## What was tried\n\n" + _tried(verdict))
    if verdict is not None and verdict.failures:
        parts.append("## The failure\n\n" + _failure(verdict))
    if diagnostics := _diagnostics(record.steps):
        parts.append("## What is wrong with the sketch\n\n" + diagnostics)
    if measured := _measured(facts.measurement):
        parts.append("## Speed\n\n" + measured)
    parts.append("## Files\n\n" + table(("file", "what it is"), _files(facts)))
    parts.append("## How to use it\n\n" + _use(facts))
    parts.append("## How to repeat it\n\n" + _repeat(facts))
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def ending(state: RunState, stopped: str) -> str:
    """How the run ended, and why, unless a kernel passed or was to be generated only."""
    if stopped:
        return f"stopped: {stopped}"
    told = state.reason if state.outcome not in ("passed", "generated") else ""
    return f"{headline(state, '')}: {told}" if told else headline(state, "")


def conclusion(record: RunRecord) -> str:
    """The outcome of a run in words."""
    reason = record.reason
    match record.outcome:
        case "stopped":
            return (
                f"The run stopped before an end: {reason.rstrip('.')}. What follows is how far it "
                f"came. {_going_on(reason)}"
            )
        case "passed":
            return f"**The kernel is right**: {reason}."
        case "generated":
            return (
                "**A kernel was written, and it is NOT VERIFIED**: this workflow compiles, runs "
                "and compares nothing. Do not rely on it before `--workflow verifier-only` has "
                "passed."
            )
        case "partial":
            return f"**Not the whole task**: {reason}. This never counts as passed."
        case "rejected" if record.steps and record.steps[-1].failure == "infrastructure":
            return f"**The kernel could not be judged**: {reason}."
        case "rejected":
            return f"**The kernel is wrong**: {reason}."
        case "incomplete" if reason.startswith(UNBUILT):
            return f"**A kernel was written, and it is NOT BUILT**: {reason}. It is no pass."
        case "incomplete":
            return f"**The kernel could not be judged**: {reason}."
        case "exhausted":
            return f"**No kernel was found that is right**: {reason}."
        case _:
            return f"**The run could not go on**: {reason}."


def _going_on(stopped: str) -> str:
    """What `--resume` does for a run that stopped."""
    if stopped.startswith(f"{ReplayMissError.kind}:"):
        return (
            "`--resume` with the same recording would stop here again, for the recording has no "
            "reply to what is asked next; with a model or a mailbox instead (`--llm`), `--resume` "
            "goes on from here."
        )
    return "The same command with `--resume` goes on from here, and pays for no call twice."


def table(head: Sequence[str], rows: Sequence[Sequence[object]], right: Sequence[str] = ()) -> str:
    """A Markdown table; columns named in `right` are aligned right."""
    lines = [
        "| " + " | ".join(head) + " |",
        "|" + "|".join(" ---: " if name in right else " --- " for name in head) + "|",
    ]
    lines += ["| " + " | ".join(_cell(value) for value in row) + " |" for row in rows]
    return "\n".join(lines)


def _cell(value: object) -> str:
    """Text that cannot break the table."""
    text = " ".join(str(value).split())
    text = text if len(text) <= _CELL else text[: _CELL - 4] + " ..."
    return re.sub(r"<(?=[a-zA-Z/!?])", "&lt;", text.replace("\\", "\\\\").replace("|", "\\|"))


def _stem(task: str) -> str:
    """The file's name without its ending, and without `:NAME`."""
    return re.sub(r"\.py(:\w+)?$", "", task)


def number(value: object) -> str:
    """An integer with separators, a fraction with three digits, anything else as it is."""
    match value:
        case bool():
            return str(value).lower()
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.3g}"
        case _:
            return str(value)


def counted(count: int, noun: str) -> str:
    """A count with its noun: "1 call", "1,200 calls"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


# ---------------------------------------------------------------- parts


def _asked(facts: Facts) -> str:
    options = facts.options
    coder = {"builtin": "the built-in one (deterministic)", "llm": "a language model"}
    constants = ", ".join(f"{name} = {value}" for name, value in options.constants.items())
    moved = options.migration
    task = "none: the kernel is compared with the original alone"
    rows = [("migrated", f"`{moved.file}`, a kernel for {moved.target}")] if moved else []
    rows += [
        ("task", f"`{options.task}`" if moved is None or not moved.alone else task),
        ("target", f"{options.target} ({options.hardware})"),
        ("workflow", f"{options.workflow}: {facts.workflow.description}"),
    ]
    if options.sketch:
        rows.append(("sketch", "given" if moved is None else moved.sketch))
    if options.kernel:
        rows.append(("kernel", "given" + (f", `{options.entry}`" if options.entry else "")))
    if "coder" in facts.workflow.agents:
        rows.append(("Coder", coder.get(options.coder, options.coder)))
    if "conductor" in facts.workflow.agents:
        rows.append(("attempts", f"at most {options.max_attempts}"))
    seed = f"{options.seed}: `--seed {options.seed}` draws the same inputs again; it is kept in "
    rows.append(("seed", seed + "trace.json and run/ledger.jsonl"))
    if constants:
        rows.append(("constants", constants))
    if options.everything_to_coder and "conductor" in facts.workflow.agents:
        rows.append(("ablation", "every failure goes to the Coder"))
    return table(("", ""), rows)


#: The columns of `step_rows`, and those of numbers.
STEP_COLUMNS = ("step", "attempt", "agent", "outcome", "why", "calls", "tokens", "time")
STEP_NUMBERS = ("step", "attempt", "calls", "tokens", "time")


def _steps(history: Sequence[Step]) -> str:
    if not history:
        return "No agent finished a step."
    return table(STEP_COLUMNS, step_rows(history), STEP_NUMBERS)


def step_rows(history: Sequence[Step]) -> list[tuple[object, ...]]:
    """A row of `STEP_COLUMNS` for each step."""
    return [
        (
            step.number,
            step.attempt,
            step.agent.capitalize(),
            step.outcome.replace("_", " ") + (f" ({step.failure})" if step.failure else ""),
            step.reason,
            step.calls or "",
            number(step.input_tokens + step.output_tokens) if step.calls else "",
            seconds(step.seconds),
        )
        for step in history
    ]


def seconds(value: float) -> str:
    """A duration for people."""
    if value < 1:
        return f"{1000 * value:.0f} ms"
    return f"{value:.1f} s" if value < 120 else f"{value / 60:.1f} min"


def _routes(history: Sequence[Step]) -> str:
    """One item per decision of the Conductor."""
    items = []
    for step in history:
        found = details_of(step).route if step.agent == "conductor" else None
        if found is None:
            continue
        who = {"verifier": "the Verifier, once more", "nobody": "nobody"}.get(
            found.agent, f"the {found.agent.capitalize()}"
        )
        doubt = "" if found.certain else ", which leaves it open"
        item = f"- Attempt {step.attempt}, after {step.failure or 'no candidate'}: to {who}"
        if step.outcome == "exhausted":
            item = f"- Attempt {step.attempt}, after {step.failure or 'no candidate'}: the end;"
            item += f" another attempt would have gone to {who}"
        item += f", by {'the model' if found.decided_by == 'model' else 'evidence'}{doubt}."
        item += f" {_sentence(found.reason)}"
        if found.suggestion:
            item += f"\n  Suggested: {' '.join(found.suggestion.split())[:600]}"
        items.append(item)
    return "\n".join(items)


def _sentence(text: str) -> str:
    text = " ".join(str(text).split())
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _spend(facts: Facts) -> str:
    totals = facts.record.used
    if not totals.calls:
        return "No language model was called."
    agents: dict[str, list[Step]] = {}
    for step in facts.record.steps:
        agents.setdefault(step.agent.capitalize(), []).append(step)
    rows: list[tuple[object, ...]] = [
        (
            name,
            sum(step.calls for step in steps),
            number(sum(step.input_tokens for step in steps)),
            number(sum(step.output_tokens for step in steps)),
            _money(sum(step.cost for step in steps)),
            seconds(sum(step.seconds for step in steps)),
        )
        for name, steps in agents.items()
    ]
    used = (number(totals.input_tokens), number(totals.output_tokens), _money(totals.cost))
    rows.append(
        ("**all, unfinished steps included**", totals.calls, *used, seconds(totals.seconds))
    )
    head = ("", "calls", "tokens in", "tokens out", "cost", "time")
    text = table(head, rows, head[1:])
    if not totals.unpriced_calls:
        return text
    if not totals.cost:
        return text + "\n\nThe cost is unknown: no price is known of any call."
    without = counted(totals.unpriced_calls, "call")
    return text + f"\n\nThe cost is without that of {without}, of which no price is known."


def _money(value: float) -> str:
    return f"{value:.4f}" if value else ""


def _tried(verdict: Verdict) -> str:
    text = _cases(verdict) if verdict.cases else "No case was run."
    for note in verdict.notes:
        text += f"\n\nNote: {note}."
    versions = ", ".join(f"{name} {value}" for name, value in verdict.versions.items())
    return text + (f"\n\nWith {versions}." if versions else "")


def _cases(verdict: Verdict) -> str:
    """The table of cases."""
    cases = verdict.cases
    rows = [
        (
            (sizes_text(case.shape.symbols) or "fixed")
            + (" (the task's own)" if case.shape.own else ""),
            case.kind.replace("_", " "),
            case.failure or "passed",
            "" if case.worst is None else number(case.worst),
        )
        for case in cases[:_MOST_CASES]
    ]
    passed = sum(case.passed for case in cases)
    skipped = sum(case.state == SKIPPED for case in cases)
    text = f"{passed} of {len(cases) - skipped} cases passed"
    text += f", {skipped} that the task itself refuses were skipped" if skipped else ""
    text += f"; run {verdict.how_it_runs}. The error is the largest of all elements, as"
    text += " a share of what is allowed.\n\n"
    text += table(("sizes", "inputs", "result", "error"), rows, ("error",))
    if len(cases) > _MOST_CASES:
        text += f"\n\n{len(cases) - _MOST_CASES} more are in verdict.json."
    return text


def _failure(verdict: Verdict) -> str:
    """The evidence of the first failing case."""
    case = verdict.failures[0]
    sizes = sizes_text(case.shape.symbols) or "fixed sizes"
    lines = [f"{case.failure} at {sizes} ({case.kind}): {case.reason}."]
    for output in case.comparisons:
        if output.first is not None:
            index = ", ".join(map(str, output.first.index))
            lines.append(
                f"`{output.name}[{index}]` is {number(output.first.actual)} and should be "
                f"{number(output.first.expected)}."
            )
    if log := case.log.strip():
        excerpt = "\n".join(log.split("\n")[-_LOG_LINES:]).replace("```", "'''")
        lines.append(f"```text\n{excerpt}\n```")
    return "\n\n".join(lines)


def _diagnostics(history: Sequence[Step]) -> str:
    """Why the last sketch was refused, where nobody has mended it; "" where it was not."""
    step = next((step for step in reversed(history) if step.agent != "conductor"), None)
    if step is None or step.agent == "verifier":
        return ""
    evidence = details_of(step).evidence
    lines = []
    for item in evidence.diagnostics:
        line = f"- {item.severity} `{item.code}`"
        if item.line:
            line += f" in line {item.line}"
        if text := item.text.replace("`", "'"):
            line += f", `{text}`"
        said = [item.message, *item.notes, item.help]
        lines.append(f"{line}: {'. '.join(part.rstrip('.') for part in said if part)}.")
    if not lines:
        return ""
    if evidence.not_shown:
        lines.append(f"- and {evidence.not_shown} more")
    code = evidence.diagnostics[0].code
    lines.append(f"\n`sketchc explain {code}` says what the first one means.")
    return "\n".join(lines)


def _measured(measurement: Mapping[str, Any] | None) -> str:
    if measurement is None:
        return ""
    from sketchc.runtime.bench.text import from_json, is_measurement, seconds_text

    found = from_json(measurement) if is_measurement(measurement) else None
    gain = None if found is None else found.speedup
    if found is None or gain is None:
        why = "PyTorch has nothing of its class of precision" if found is not None else ""
        return f"Not measured: {measurement.get('not_measured', why or 'no reason is known')}."
    rows = [
        (who, seconds_text(times.median), number(times.samples))
        for who, times in (("PyTorch eager", found.eager), ("the kernel", found.kernel))
    ]
    text = table(("", "median time", "samples"), rows, ("median time", "samples"))
    return text + (
        f"\n\nAt {sizes_text(found.symbols) or 'the fixed sizes'}: {number(gain.of_medians)}x of "
        f"eager (95 % interval {number(gain.low)} to {number(gain.high)}), "
        f"{100 * found.roofline:.0f} % of the roofline. The raw samples are in verdict.json."
    )


def _files(facts: Facts) -> list[tuple[str, str]]:
    files = [(f"`{name}`", what) for name, what in facts.files]
    if facts.record.used.calls:
        what = "every call, with its prompt, reply, tokens and cost; to read it: "
        show = shlex.join(["sketchc", "llm", "ledger", facts.folder])
        files.append(("`run/ledger.jsonl`", f"{what}`{show}`"))
    return files


def _use(facts: Facts) -> str:
    if not facts.dropin:
        return f"There is no drop-in module: {facts.no_dropin}."
    module = facts.dropin
    warning = ""
    if facts.record.outcome != "passed":
        warning = "Nothing of this was verified.\n\n"
    target = load_target(facts.options.target)
    move = "" if target.device == "cpu" else f".{target.device}()"
    return (
        f"{warning}With this folder on `sys.path` (it can be moved):\n\n"
        f"```python\nfrom {module} import ModelNew, get_init_inputs, get_inputs\n\n"
        f"model = ModelNew(*get_init_inputs()).eval(){move}\n```\n\n"
        "`ModelNew` has the constructor, the parameters and the results of the task's `Model`. It "
        "takes other sizes as well, copies inputs that are not contiguous, refuses other dtypes "
        "and devices with one clear line, and has no backward pass."
        + (f" {target.untried}" if target.untried else "")
    )


def _repeat(facts: Facts) -> str:
    options, moved = facts.options, facts.options.migration
    words = ["sketchc", "gen", facts.task_path, "--target", options.target]
    if moved is not None:
        words = ["sketchc", "migrate", moved.file, "--from", moved.target, "--to", options.target]
        # A task that was found is found again, and may lie in a folder that is gone by then.
        words += ["--task", facts.task_path] if moved.task == "--task" else []
        words += ["--signature", moved.signature] if moved.signature else []
    words += ["--hardware", options.hardware]
    words += ["--workflow", options.workflow] if moved is None else []
    words += ["--coder", options.coder] if "coder" in facts.workflow.agents else []
    words += ["--seed", str(options.seed)]
    if "conductor" in facts.workflow.agents:
        words += ["--max-attempts", str(options.max_attempts)]
    if "designer" in facts.workflow.agents:
        words += ["--max-repairs", str(options.max_repairs)]
    for name, value in options.constants.items():
        words += ["--set", f"{name}={value}"]
    if options.everything_to_coder:
        words.append("--everything-to-coder")
    for flag, text, name in (
        ("--sketch", options.sketch, f"{_stem(options.task)}.sketch"),
        ("--kernel", options.kernel, facts.given_kernel),
    ):
        if text and moved is None:
            words += [flag, f"{facts.folder}/{name}" if name else "KERNEL"]
    if options.entry:
        words += ["--entry", options.entry]
    needs_model = facts.workflow.needs_model(options.coder)
    if needs_model and facts.replies:
        words += ["--llm", f"replay:{facts.folder}/run/ledger.jsonl"]
    words += ["-o", f"{facts.folder}-again"]
    text = "From where the run was started:\n\n```sh\n" + shlex.join(words) + "\n```"
    text += f"\n\n{_replayed(facts)}" if needs_model else ""
    if "KERNEL" in words:
        text += "\n\n`KERNEL` is the file that was given; its text is in run/run.json."
    if facts.record.stopped:
        text += f"\n\nThis starts anew. {_going_on(facts.record.stopped)}"
    return text


def _replayed(facts: Facts) -> str:
    """What happens when a run that asks a model is repeated, in words."""
    if not facts.replies:
        return (
            "The command needs a model (`--llm`), as the run did: no reply was recorded that could "
            "be replayed."
        )
    if facts.record.stopped:
        return (
            "`run/ledger.jsonl` holds every prompt and reply up to the stop: replayed, the agents "
            "take the same steps so far, and the run stops where the next reply is missing."
        )
    anew = ", and everything is compiled, run and compared anew" * (
        "verifier" in facts.workflow.agents
    )
    return (
        "`run/ledger.jsonl` holds every prompt and reply; replayed, the agents take the same "
        f"steps{anew}."
    )
