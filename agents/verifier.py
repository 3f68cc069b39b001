"""The Verifier: compile the kernel, run it on many sizes and inputs, compare, and measure.

It decides nothing but right or wrong: `runtime.verify` says what a verdict means. Evidence for the
Conductor stands in the step's details; a kernel that passed is measured where its target runs at
its own speed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

import attrs

from sketchc.agents.state.candidates import candidate_of
from sketchc.agents.state.state import RunContext, RunState, Turn
from sketchc.base.diagnostics import UsageError
from sketchc.runtime.tasks.client import TaskClient
from sketchc.runtime.verify.evidence import evidence
from sketchc.runtime.verify.verdict import CaseResult, Verdict, from_json, taken_again, to_json
from sketchc.runtime.verify.verify import Candidate, verify
from sketchc.runtime.verify.words import UNBUILT

#: A sign of life at least so often, in seconds.
_TELL_SECONDS = 10.0


class Verifier:
    """See the module; outcomes "passed", "failed" and "incomplete"."""

    def run(self, state: RunState, context: RunContext) -> Turn:
        """Verify `state.kernel`; leaves the verdict, and the measurement of one that passed."""
        candidate = candidate_of(state, context)
        again = state.disputed == "asked" and state.verdict is not None
        verdict = (self._verify_again if again else self._verify)(candidate, state, context)
        told = "taken" if again else ""
        left = attrs.evolve(state, verdict=to_json(verdict), measurement=None, disputed=told)
        if verdict.incomplete:
            what = UNBUILT if verdict.word == UNBUILT else "not all was reached"
            reason = f"{what}: {'; '.join(verdict.gaps)}"
            return Turn(left, "incomplete", reason, details=_counts(verdict))
        if not verdict.passed:
            found = evidence(verdict)
            details = {"evidence": found, **_counts(verdict)} | ({"again": True} if again else {})
            return Turn(left, "failed", _failed(verdict, found), verdict.failure, details)
        details = _counts(verdict)
        reason = f"right in {details['passed']} cases, {verdict.how_it_runs}"
        if context.bench:
            measurement, wrong = self._measure(candidate, context)
            left = attrs.evolve(left, measurement=measurement)
            if wrong:
                details["evidence"] = {"failure": "numerical", "reason": wrong}
                return Turn(left, "failed", wrong, "numerical", details)
            if measurement.get("speedup") is not None:
                reason += f"; {measurement['speedup']['of_medians']:.2f}x of eager"
        return Turn(left, "passed", reason, details=details)

    def _verify_again(self, candidate: Candidate, state: RunState, context: RunContext) -> Verdict:
        """Verify again, with the inputs that failed and with others: a model disputes a verdict."""
        assert state.verdict is not None
        context.progress.note("verifier", "takes the disputed evidence again")
        before = from_json(state.verdict)
        same = self._verify(candidate, state, context, before.seed)
        return taken_again(before, same, self._verify(candidate, state, context))

    def _verify(
        self, candidate: Candidate, state: RunState, context: RunContext, old: int | None = None
    ) -> Verdict:
        """The verdict on a candidate, with the seed of this step, or with the seed `old`."""
        done, told = 0, time.monotonic()

        def progress(result: CaseResult) -> None:
            nonlocal done, told
            done += 1
            if not result.failed and time.monotonic() - told > _TELL_SECONDS:
                told = time.monotonic()
                context.progress.note("verifier", f"{done} cases done")
            if result.failed:
                text = f"{result.shape.text} ({result.kind}): {result.failure}: {result.reason}"
                context.progress.note("verifier", text)

        # Other inputs for each attempt, and the same ones when a step is done again.
        seed = context.seed + 1000 * len(state.history) if old is None else old
        settings = context.configuration.target(context.target)
        number = f"{len(state.history) + 1:03}"
        folder = context.folder / "build" / (number if old is None else f"{number}-again")
        return verify(
            candidate,
            context.task,
            folder,
            seed,
            dict(context.constants),
            progress,
            timeout=settings.verify_timeout,
        )

    def _measure(self, candidate: Candidate, context: RunContext) -> tuple[dict[str, Any], str]:
        """The measurement as JSON (why there is none: {"not_measured": ...}), and what is wrong
        with the outputs of the timed runs, "" for nothing."""
        task = context.task
        if not isinstance(task, TaskClient):
            return {"not_measured": "there is no task in PyTorch to measure it against"}, ""
        status = candidate.toolchain.status()
        if status.interpreted:
            return {"not_measured": f"it runs {status.how_it_runs}, not at its own speed"}, ""
        from sketchc.runtime.bench import text as report
        from sketchc.runtime.bench.bench import bench
        from sketchc.runtime.bench.machine import this_machine
        from sketchc.runtime.bench.schedule import Schedule, Settings

        context.progress.note("verifier", "measures against eager")
        own = context.configuration.target(context.target)
        settings = Settings(
            context.seed,
            len(os.sched_getaffinity(0)),
            Schedule(samples=own.runs, warm_up_seconds=own.warmup_seconds),
            values=dict(context.constants),
            device=candidate.device,
        )
        folder = context.folder / "bench"
        folder.mkdir(parents=True, exist_ok=True)
        try:
            machine = this_machine(candidate.device)
            measured = bench(candidate, task, folder, settings, machine)
        except UsageError as error:
            return {"not_measured": str(error)}, ""
        wrong = "" if measured.passed else "the outputs of the timed runs are wrong"
        if not measured.believable:
            wrong = "its time cannot be true"
        return report.to_json(measured), wrong


def _counts(verdict: Verdict) -> dict[str, Any]:
    return {
        "cases": len(verdict.cases),
        "passed": sum(case.passed for case in verdict.cases),
        "skipped": sum(case.failure == "skipped" for case in verdict.cases),
        "how_it_runs": verdict.how_it_runs,
    }


def _failed(verdict: Verdict, found: Mapping[str, Any]) -> str:
    """One sentence on the first failure, with nothing in it that differs between machines."""
    first = verdict.failures[0]
    return f"{first.failure} at {first.shape.text} ({first.kind}): {found['reason']}"
