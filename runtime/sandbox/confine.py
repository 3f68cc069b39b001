"""A candidate's process, and the trusted processes that confine it, watch it and end it.

    template -> keeper -> watcher -> candidate

The *keeper* arranges the mounts and enters new namespaces; the *watcher* is the first process of
the PID namespace, so that everything in the namespace ends with it; it bounds the memory and the
number of all the candidate's processes together. The *candidate* gives up privileges and runs the
handler. Keeper and watcher run no code of the candidate's. Where the kernel allows no namespaces
("plain"), the keeper finds and ends the processes that the candidate leaves.

A candidate gets messages (`messages`) with a handler ("package.module:function" or
"/path/file.py:function"), its request and arrays, and answers each; `serve` does this also for a
process that is inside of a sandbox already.

Control groups, in both layouts of Linux (version 2 is one tree, version 1 a tree for each
controller), bound how many processes there are, and how much memory they hold. They are for root,
whom no rlimit binds, and they tell afterwards whether the kernel killed a process for its memory.

Needs only the standard library, so that it runs in environments without sketchc.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import importlib.util
import json
import os
import resource
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from sketchc.runtime.process import memory, messages
from sketchc.runtime.sandbox import namespaces, seccomp

NAMESPACES, PLAIN = "namespaces", "plain"
#: Seconds between two checks of what the processes of a candidate use.
_LOOK = 0.05
#: The candidate's oom_score_adj: it is killed first when memory runs out.
_OOM_SCORE = "1000"
_PAGE = os.sysconf("SC_PAGE_SIZE")
_ROOT = Path("/sys/fs/cgroup")
#: Controller -> folders where a group may be made (versions 1 and 2), each with its bound's file.
_PLACES = {
    "pids": ((_ROOT / "pids", "pids.max"), (_ROOT, "pids.max")),
    "memory": ((_ROOT / "memory", "memory.limit_in_bytes"), (_ROOT, "memory.max")),
}
#: Files that count the processes that were ended at a group's own bound.
_COUNTS = ("memory.events.local", "memory.events", "memory.oom_control")

#: A handler: (request, input arrays) -> (JSON-able reply, output arrays). The arrays are NumPy
#: arrays, or `messages.Raw` where the function has an attribute `takes_raw`.
Handler: TypeAlias = (
    "Callable[[dict[str, Any], dict[str, Any]], tuple[dict[str, Any], dict[str, Any]]]"
)

#: The descriptor of a worker's channel.
_CHANNEL = 3

Settings = Mapping[str, Any]


def keep(settings: Settings, given: Sequence[int]) -> None:
    """The keeper: runs a candidate in a sandbox, as `settings` say. Does not return. `given` are
    the descriptors channel, output, lifeline and status. Only the candidate keeps channel and
    output: the parent takes their closing for its end. Everything ends when the other end of the
    lifeline is closed; the watcher reports to `status` and reads the gate's commands from there.

    `settings`: "folder" and "environment" of the candidate, "mode", "hidden", "readable",
    "writable" (paths), "scratch_bytes", "nobody" (whether root's candidates run as the user
    nobody), "limits" (by rlimit's name), "memory_bytes" and "processes" (bounds on all processes
    together, or None), "gated" (see `seccomp.Gate`).
    """
    *own, lifeline, status = given
    mode, code = settings["mode"], 1
    try:
        os.setsid()
        if mode == PLAIN:
            namespaces.prctl(namespaces.PR_SET_CHILD_SUBREAPER, 1)
        else:
            _enter(settings)
        namespaces.prctl(namespaces.PR_SET_DUMPABLE, 0)  # nobody looks into this process
        with _groups(settings) as groups:
            watcher = os.fork()
            if watcher == 0:
                os.close(lifeline)
                _watch_over(settings, status, own, groups)
            _leave(own)
            _wait(watcher, lifeline)
            if mode == PLAIN:
                _end_descendants()
        code = 0
    except BaseException as error:
        _tell(status, {"failed": f"{type(error).__name__}: {error}"})
    finally:
        os._exit(code)


def _leave(own: Sequence[int]) -> None:
    """Close the candidate's descriptors `own` in the keeper or watcher, once it has its copies."""
    for descriptor in own:
        os.close(descriptor)


def _enter(settings: Settings) -> None:
    """Enter new namespaces, and mount the file system as the candidate will see it."""
    ns = namespaces
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        for path in settings["writable"] if settings["nobody"] else ():
            _give_away(path)
        ns.unshare(ns.NEWNS)
    else:
        ns.unshare(ns.NEWUSER | ns.NEWNS)
        ns.map_to_self(user, group)
    ns.rearrange(
        settings["hidden"], settings["readable"], settings["writable"], settings["scratch_bytes"]
    )
    ns.unshare(ns.NEWPID | ns.NEWIPC | ns.NEWUTS | ns.NEWNET)


def _give_away(path: str) -> None:
    """Make the user nobody the owner of a file, or of a folder with all that is in it. Called by
    root for the candidate's writable paths."""
    with contextlib.suppress(OSError):
        os.chown(path, namespaces.NOBODY, namespaces.NOBODY, follow_symlinks=False)
        for folder, folders, files in os.walk(path):
            for name in (*folders, *files):
                place = os.path.join(folder, name)
                os.chown(place, namespaces.NOBODY, namespaces.NOBODY, follow_symlinks=False)


def _wait(watcher: int, lifeline: int) -> None:
    """Wait until the watcher has ended; kill it when the lifeline is cut."""
    watched = select.poll()
    watched.register(lifeline, 0)
    ended = os.pidfd_open(watcher)
    watched.register(ended, select.POLLIN)
    while True:
        if any(descriptor == lifeline for descriptor, _ in watched.poll()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(watcher, signal.SIGKILL)
        if os.waitpid(watcher, os.WNOHANG)[0]:
            os.close(ended)
            return
        time.sleep(0.001)


# ---------------------------------------------------------------- control groups


@contextlib.contextmanager
def _groups(settings: Settings) -> Iterator[list[Path]]:
    """Control groups for one candidate, by their folders, removed at the end. Only root can make
    them: one for memory, and one for the number of processes where no rlimit bounds that (without
    namespaces, or with files that only root may read)."""
    processes = None if settings["nobody"] else settings["processes"]
    bounds = {"pids": processes, "memory": settings["memory_bytes"]}
    made: list[Path] = []
    for controller, most in bounds.items() if os.geteuid() == 0 else ():
        if most is not None and (folder := _make(controller, most)) is not None:
            made.append(folder)
    try:
        yield list(dict.fromkeys(made))
    finally:
        for folder in made:
            _remove(folder)


def _make(controller: str, most: int) -> Path | None:
    for place, name in _PLACES[controller]:
        group = place / f"sketchc-{os.getpid()}"
        new = not group.exists()  # else it was made for another controller of the same tree
        with contextlib.suppress(OSError):
            group.mkdir(exist_ok=True)
            if (group / name).exists():  # there is such a controller in this tree
                (group / name).write_text(str(most))
                return group
        if new and group.exists():
            _remove(group)
    return None


def _kills(folder: Path) -> int:
    """How many processes the kernel killed because the control group reached its memory limit."""
    for name in _COUNTS:
        with contextlib.suppress(OSError, ValueError, IndexError):
            for line in (folder / name).read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    return 0


def _remove(group: Path) -> None:
    """Remove a control group once it is empty, which takes the kernel a moment."""
    for _ in range(100):
        try:
            group.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY:
                return
            time.sleep(0.01)
        else:
            return


# ---------------------------------------------------------------- the watcher


def _watch_over(settings: Settings, status: int, own: Sequence[int], groups: list[Path]) -> None:
    """The watcher: starts the candidate, bounds what it and its children use together, and reports
    to `status` how it ended. Does not return; its end is the end of the PID namespace."""
    mode = settings["mode"]
    try:
        namespaces.prctl(namespaces.PR_SET_PDEATHSIG, signal.SIGKILL)
        namespaces.prctl(namespaces.PR_SET_DUMPABLE, 0)
        if mode == PLAIN:
            namespaces.prctl(namespaces.PR_SET_CHILD_SUBREAPER, 1)
        else:
            namespaces.mount_proc()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        child, listener = _start(settings, status, own, groups)
        _leave(own)
        if settings["gated"]:
            seccomp.Gate(listener, status, child, lambda: _own(mode)).start()
        _tell(status, _supervise(settings, mode, child, groups))
    except BaseException as error:
        _tell(status, {"failed": f"{type(error).__name__}: {error}"})
    finally:
        os._exit(0)


def _start(
    settings: Settings, status: int, own: Sequence[int], groups: list[Path]
) -> tuple[int, int | None]:
    """Fork the candidate, which runs once its user is mapped; returns its process id and the
    listener of its gate (None without a gate)."""
    asks, answered = os.pipe()
    waits, answers = os.pipe()
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        code = 70
        try:
            for descriptor in (asks, answers, status, ours.detach()):
                os.close(descriptor)
            for group in groups:  # the processes that it starts will be in the group, too
                with contextlib.suppress(OSError):
                    (group / "cgroup.procs").write_text("0")
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            _give_up(settings, answered, waits)
            if settings["gated"]:
                seccomp.hand_over(theirs)
            theirs.close()
            code = _candidate(settings, *own)
        finally:
            os._exit(code)
    os.close(answered)
    os.close(waits)
    theirs.close()
    try:
        if os.read(asks, 1):  # the candidate has made its user namespace
            namespaces.map_root_to(child, namespaces.NOBODY if settings["nobody"] else 0)
            os.write(answers, b"m")
    except OSError:
        pass  # the candidate sees the pipe closed, and runs without the mapping
    finally:
        os.close(asks)
        os.close(answers)
    with ours:
        return child, seccomp.taken(ours) if settings["gated"] else None


def _give_up(settings: Settings, asks: int, answered: int) -> None:
    """In the candidate: give up user, groups and capabilities, set the limits, and install the
    filter of system calls. `asks` and `answered` are pipes by which the watcher maps the user."""
    namespaces.prctl(namespaces.PR_SET_DUMPABLE, 1)  # so that it owns its files in /proc
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(_OOM_SCORE)
    root = os.geteuid() == 0
    if root and settings["mode"] != PLAIN:
        # In the namespace of a user who is not root outside, groups stay as they are.
        with contextlib.suppress(PermissionError):
            os.setgroups([])
        try:
            namespaces.unshare(namespaces.NEWUSER)
            os.write(asks, b"u")
            mapped = os.read(answered, 1) == b"m"
        except OSError:
            mapped = False  # no user namespaces: RLIMIT_NPROC counts all processes of nobody
        if mapped:
            os.setresgid(0, 0, 0)
            os.setresuid(0, 0, 0)
        elif settings["nobody"]:
            namespaces.become_nobody()
    os.close(asks)
    os.close(answered)
    namespaces.prctl(namespaces.PR_SET_NO_NEW_PRIVS, 1)
    for name, value in settings["limits"].items():
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
    with contextlib.suppress(OSError):
        namespaces.drop_capabilities()
    # The change of user has closed /proc/self to the process itself, and tools look there.
    namespaces.prctl(namespaces.PR_SET_DUMPABLE, 1)
    seccomp.install()


def _supervise(settings: Settings, mode: str, child: int, groups: list[Path]) -> dict[str, Any]:
    """Wait for the candidate's end; returns "status" as `waitstatus_to_exitcode` gives it; "why" it
    was killed here ("memory", "processes" or ""); in bytes, the most memory that it held ("held"),
    the memory available at the start ("free") and at least ("least"); and how many processes the
    kernel killed for want of memory, on the machine ("kills") and in `groups` ("own")."""
    most_memory, most_processes = settings["memory_bytes"], settings["processes"]
    ended: int | None = None
    why = ""
    kills, free = memory.kills(), memory.available()
    least, most = free, 0
    while ended is None:
        signal.sigtimedwait({signal.SIGCHLD}, _LOOK)
        while True:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if process == child:
                ended = os.waitstatus_to_exitcode(status)
            if process == 0:
                break
        if ended is None and not why:
            processes, held = _usage(_own(mode))
            most, least = max(most, held), min(least, memory.available())
            if most_memory is not None and held > most_memory:
                why = "memory"
            elif most_processes is not None and processes > most_processes:
                why = "processes"
            if why:
                os.kill(child, signal.SIGKILL)
    found = {"held": most, "free": free, "least": least}
    found |= {"kills": memory.kills() - kills, "own": sum(map(_kills, groups))}
    return {"status": ended, "why": why, **found}


def _own(mode: str) -> Iterator[int]:
    """The ids of the processes below the watcher."""
    if mode == PLAIN:
        yield from memory.below(os.getpid())
    else:
        yield from (int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1")


def _usage(processes: Iterator[int]) -> tuple[int, int]:
    """How many of `processes` still exist, and the bytes of their resident memory together."""
    count, pages = 0, 0
    for process in processes:
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{process}/statm") as file:
                pages += int(file.read().split()[1])
            count += 1
    return count, pages * _PAGE


def _end_descendants() -> None:
    """Kill all descendants of this process until none is left (where there are no namespaces)."""
    for _ in range(200):
        left = memory.below(os.getpid())
        for process in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not left:
            return
        time.sleep(0.005)


def _tell(status: int, message: Mapping[str, Any]) -> None:
    with contextlib.suppress(OSError):
        os.write(status, json.dumps(message).encode() + b"\n")


# ---------------------------------------------------------------- the candidate


def load_handler(text: str) -> Handler:
    """The handler that `text` ("package.module:function" or "/path/file.py:function") names."""
    place, _, name = text.rpartition(":")
    if place.endswith(".py"):
        module = sys.modules.get(Path(place).stem)
        if module is None or getattr(module, "__file__", None) != place:
            module = import_file(place, Path(place).stem)
    else:
        module = importlib.import_module(place)
    handler: Handler = getattr(module, name)
    return handler


def import_file(path: str | Path, name: str) -> ModuleType:
    """Execute a Python file anew as the module `name`. Raises `ImportError` where the file has no
    loader."""
    specification = importlib.util.spec_from_file_location(name, path)
    if specification is None or specification.loader is None:
        raise ImportError(f"cannot load {path}")
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module


def exception_kinds(error: BaseException) -> list[str]:
    """The type names of an exception and of its causes and contexts, the outermost first, at most
    eight."""
    kinds: list[str] = []
    behind: BaseException | None = error
    while behind is not None and len(kinds) < 8:
        kinds.append(type(behind).__name__)
        behind = behind.__cause__ or behind.__context__
    return kinds


def serve(channel: socket.socket) -> None:
    """Answer the messages of `channel` until the parent goes away."""
    while True:
        try:
            body = messages.receive(channel)
        except (messages.Closed, OSError):
            return
        try:
            _answer(channel, body)
        except BrokenPipeError:
            return


def _answer(channel: socket.socket, body: Mapping[str, Any]) -> None:
    """Call the handler that `body` names and send its results; an exception of the handler's is
    sent to the parent, which decides what it means."""
    try:
        handler = load_handler(body["handler"])
        raw, raws = getattr(handler, "takes_raw", False), body["arrays"]
        given = raws if raw else {k: messages.array_of(v) for k, v in raws.items()}
        answer, results = handler(body["request"], given)
        sent = results if raw else {k: messages.raw_of(v) for k, v in results.items()}
        _flush()
        messages.send(channel, {"answer": answer, "arrays": sent})
    except BrokenPipeError:
        raise
    except Exception as error:
        told = {
            "type": type(error).__name__,
            "message": str(error),
            "traceback": traceback.format_exc(),
            "kinds": exception_kinds(error),
        }
        _flush()
        messages.send(channel, {"error": told})


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        # OSError: the limit on output is reached; ValueError: the candidate has closed the stream
        with contextlib.suppress(OSError, ValueError):
            stream.flush()


def _candidate(settings: Settings, channel: int, output: int) -> int:
    """The candidate's process: sets its streams, folder and environment, then serves requests;
    returns the exit status."""
    status = 70
    try:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        if channel != _CHANNEL:
            os.dup2(channel, _CHANNEL, inheritable=False)
        os.closerange(_CHANNEL + 1, 1 << 16)
        os.chdir(settings["folder"])
        os.environ.clear()
        os.environ.update(settings["environment"])
        with socket.socket(fileno=_CHANNEL) as connection:
            serve(connection)
            status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
        status = 1
    _flush()
    return status
