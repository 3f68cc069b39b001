"""The ledger: what is written comes back exactly, and a killed run costs at most its last line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sketchc.agents.llm.ledger import Header, Ledger, Record, read_ledger
from sketchc.agents.llm.messages import Message, Part, Reply, Request, Usage
from sketchc.base.diagnostics import InternalError, UsageError

HEADER = Header(
    task="softmax.py",
    target="cpp",
    hardware="host",
    workflow="default",
    coder="builtin",
    seed=7,
    options={"max_attempts": 5, "shapes": ["a", "b"]},
)

text = st.text(max_size=30)
part = st.builds(Part, text, text)
with_parts = st.tuples(text, part, part, text).map(list)
requests = st.builds(
    Request,
    purpose=text,
    level=st.sampled_from(["complex", "standard", "fast"]),
    messages=st.lists(
        st.builds(Message, st.sampled_from(["system", "user", "assistant"]), text | with_parts),
        max_size=3,
    ).map(tuple),
    max_output_tokens=st.none() | st.integers(1, 10**6),
)
counts = st.integers(0, 10**9)
replies = st.builds(
    Reply,
    text=text,
    model=text,
    finish=st.sampled_from(["stop", "length"]),
    usage=st.builds(Usage, input_tokens=counts, output_tokens=counts, estimated=st.booleans()),
    cost=st.none() | st.floats(0, 1e6),
    seconds=st.floats(0, 1e6),
    attempts=st.integers(1, 9),
)
calls = st.tuples(requests, st.none() | replies, text, text)

fresh_folder = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def write(path: Path, drawn: list[tuple[Request, Reply | None, str, str]]) -> list[Record]:
    path.unlink(missing_ok=True)
    with Ledger(path) as ledger:
        ledger.begin(HEADER)
        return [
            ledger.append(request, "openai", reply, error, message)
            for request, reply, error, message in drawn
        ]


def example(path: Path, count: int = 3) -> list[Record]:
    question = Request("designer", "complex", (Message("user", "µ → \u2028 ?\n"),), 100)
    answer = Reply("```sketch\n…\n```", "m", usage=Usage(3, 4), cost=0.25, seconds=1.5, attempts=2)
    drawn = [(question, answer, "", ""), (question, None, "server", "HTTP 500"), (question, answer)]
    return write(path, [(*call, "", "")[:4] for call in drawn[:count]])


def test_a_constant_part_is_written_once_and_read_back_by_version(tmp_path: Path) -> None:
    def ask(rules: str) -> Request:
        message = Message("system", ["Hello.\n", Part("rules", rules), "The end."])
        return Request("designer", "complex", (message, message))

    path = tmp_path / "run.jsonl"
    with Ledger(path) as ledger:
        ledger.begin(HEADER)
        ledger.append(ask("Be right.\n"), "openai", None)
    with Ledger(path) as ledger:  # a run that goes on
        for rules in ("Be right.\n", "Be quick.\n"):
            ledger.append(ask(rules), "openai", None)
    assert path.read_bytes().count(b"Be right.") == 1
    assert [record.request for record in read_ledger(path).records] == [
        ask("Be right.\n"), ask("Be right.\n"), ask("Be quick.\n")
    ]  # fmt: skip
    path.write_bytes(path.read_bytes().replace(b'"rules", "version": "', b'"rules", "version": "x'))
    with pytest.raises(UsageError, match="line 2 of the ledger"):
        read_ledger(path)


@fresh_folder
@given(drawn=st.lists(calls, max_size=4))
def test_what_was_written_is_read_back_exactly(
    tmp_path: Path, drawn: list[tuple[Request, Reply | None, str, str]]
) -> None:
    path = tmp_path / "ledger.jsonl"
    written = write(path, drawn)
    contents = read_ledger(path)
    assert contents.header == HEADER
    assert list(contents.records) == written
    assert [record.number for record in written] == list(range(1, len(drawn) + 1))
    assert [record.request.messages for record in contents.records] == [
        c[0].messages for c in drawn
    ]
    reopened = Ledger(path)
    assert (reopened.header, list(reopened.records)) == (HEADER, written)
    reopened.close()


@fresh_folder
@given(drawn=st.lists(calls, min_size=1, max_size=3), data=st.data())
def test_a_ledger_cut_at_any_byte_keeps_every_whole_record_and_takes_new_ones(
    tmp_path: Path, drawn: list[tuple[Request, Reply | None, str, str]], data: st.DataObject
) -> None:
    path = tmp_path / "ledger.jsonl"
    written = write(path, drawn)
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    # A line whose newline alone is missing is whole.
    lines = whole.split(b"\n")[:-1]
    ends = [sum(len(line) + 1 for line in lines[: n + 1]) - 1 for n in range(len(lines))]
    complete = sum(end <= cut for end in ends)
    ledger = Ledger(path)
    assert ledger.header == (HEADER if complete else None)
    assert list(ledger.records) == written[: max(0, complete - 1)]
    ledger.begin(HEADER)
    record = ledger.append(drawn[0][0], "mailbox", None, "timeout", "again")
    ledger.close()
    after = read_ledger(path)
    assert list(after.records) == [*written[: max(0, complete - 1)], record]


def test_reading_does_not_touch_a_half_written_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    written = example(path)
    half = path.read_bytes()[:-20]
    path.write_bytes(half)
    contents = read_ledger(path)
    assert list(contents.records) == written[:-1]
    assert path.read_bytes() == half
    Ledger(path).close()
    assert path.read_bytes() == half[: contents.size]


def test_every_line_is_on_disk_when_append_returns(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "one" / "ledger.jsonl"
    ledger = Ledger(path)
    assert not path.parent.exists()  # nothing is made before there is something to write
    ledger.begin(HEADER)
    assert read_ledger(path).header == HEADER
    for count in (1, 2):
        ledger.append(Request("coder", "fast", ()), "openai", None, "server", "HTTP 503")
        assert len(read_ledger(path).records) == count
    ledger.close()
    assert ledger.records[0].started.endswith("Z")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"def f():\n    return 1\n", "not a ledger"),
        (b'{"number": 1}\n', "not a ledger"),
        (b"\x00\x01\x02", "not a ledger"),
        (b'{"sketchc_ledger": 99, "new": true}\n', "version 99; this sketchc reads version 2"),
        (b'{"sketchc_ledger": 1, "task": "t.py"}\n', "line 1 .* no 'target'"),
        (b'{"sketchc_ledger": "one"}\n', "'sketchc_ledger' is 'one'"),
    ],
)
def test_a_file_that_is_no_ledger_is_refused_and_left_alone(
    tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=said):
        Ledger(path)
    with pytest.raises(UsageError, match=said):
        read_ledger(path)
    assert path.read_bytes() == content


def test_damage_before_the_last_line_is_no_half_written_line(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    example(path)
    lines = path.read_bytes().split(b"\n")
    for damaged, said in [
        ([lines[0], lines[1][:-9], lines[2], b""], "line 2 .* damaged"),
        ([lines[0], lines[2], b""], "number 2, where 1 comes next"),
        ([lines[0], b'{"number": 1}', b""], "line 2 .* no 'reply'"),
        ([lines[0], b"[]", b""], "a JSON object is expected"),
    ]:
        path.write_bytes(b"\n".join(damaged))
        with pytest.raises(UsageError, match=said):
            read_ledger(path)


def test_a_missing_or_empty_file_cannot_be_replayed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_ledger(tmp_path / "none.jsonl")
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(UsageError, match="holds no ledger"):
        read_ledger(tmp_path / "empty")
    with pytest.raises(UsageError, match="cannot write the ledger"):
        Ledger(tmp_path)


def test_a_ledger_belongs_to_one_way_of_starting_a_run(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    example(path)
    same = Header(**{**_fields(HEADER), "options": {"max_attempts": 5, "shapes": ("a", "b")}})
    ledger = Ledger(path)
    ledger.begin(same)
    before = path.read_bytes()
    other = Header(**{**_fields(HEADER), "target": "triton_cuda", "seed": 8})
    with pytest.raises(UsageError, match="target was 'cpp', is 'triton_cuda'; seed was 7, is 8"):
        ledger.begin(other)
    ledger.close()
    assert path.read_bytes() == before


def test_nothing_is_appended_before_the_header_or_after_closing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    with pytest.raises(InternalError):
        ledger.append(Request("coder", "fast", ()), "openai", None)
    ledger.begin(HEADER)
    ledger.close()
    with pytest.raises(InternalError):
        ledger.append(Request("coder", "fast", ()), "openai", None)
    assert read_ledger(ledger.path or Path()).records == ()


def test_in_memory_there_is_no_file(tmp_path: Path) -> None:
    ledger = Ledger(None)
    record = ledger.append(Request("check", "fast", ()), "openai", None, "timeout", "")
    assert ledger.records == (record,)
    assert list(tmp_path.iterdir()) == []


def test_two_processes_cannot_write_to_one_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    example(path)
    held = Ledger(path)
    program = (
        "import sys; from pathlib import Path\n"
        "from sketchc.agents.llm.ledger import Ledger\n"
        "try: Ledger(Path(sys.argv[1]))\n"
        "except Exception as error: print(type(error).__name__, error)\n"
        "else: print('opened')\n"
    )

    def other() -> str:
        command = [sys.executable, "-c", program, str(path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "UsageError another run is writing to the ledger" in other()
    held.close()
    assert other() == "opened\n"


def test_a_full_disk_leaves_the_ledger_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    example(path)
    before = path.read_bytes()
    # A limit on the size of files is a real failure half-way through a write.
    program = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from sketchc.agents.llm.ledger import Ledger\n"
        "from sketchc.agents.llm.messages import Message, Request\n"
        "ledger = Ledger(Path(sys.argv[1]))\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({len(before) + 50}, {len(before) + 50}))\n"
        "request = Request('coder', 'fast', (Message('user', 'x' * 1000),))\n"
        "try: ledger.append(request, 'openai', None)\n"
        "except Exception as error: print(type(error).__name__, error, len(ledger.records))\n"
    )
    command = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("UsageError cannot write the ledger")
    assert done.stdout.endswith(" 3\n")
    assert path.read_bytes() == before


def test_the_file_is_plain_lines_of_json_with_readable_text(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    example(path, 1)
    lines = path.read_bytes().split(b"\n")
    assert [bool(line) for line in lines] == [True, True, False]
    assert "µ → " in lines[1].decode()
    surrogate = Request("coder", "fast", (Message("user", "\ud800"),))
    ledger = Ledger(path)
    ledger.append(surrogate, "openai", None)
    ledger.close()
    assert read_ledger(path).records[-1].request == surrogate
    assert all(json.loads(line) for line in path.read_bytes().splitlines())


def _fields(header: Header) -> dict[str, object]:
    return {name: getattr(header, name) for name in Header.__annotations__}
