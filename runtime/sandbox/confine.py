"""The trusted processes around a candidate: how it is shut in, watched, and ended.

    template -> keeper -> watcher -> candidate

The *keeper* arranges the mounts and enters new namespaces; the *watcher* is the first process of
the PID namespace, so that everything in it ends with it; it bounds memory and the number of
processes together. The *candidate* gives up privileges and runs the handler. Neither of the first
two runs anything of the candidate's. Where the kernel allows no namespaces ("plain"), the keeper
hunts down what the candidate leaves. Only the standard library.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sketchc.runtime.process import memory
from sketchc.runtime.sandbox import cgroups, gate, namespaces, seccomp

NAMESPACES, PLAIN = "namespaces", "plain"
#: Seconds between two looks at what the processes of a candidate use.
_LOOK = 0.05
#: The candidate dies first when memory runs out.
_OOM_SCORE = "1000"
_PAGE = os.sysconf("SC_PAGE_SIZE")

Settings = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Descriptors:
    """`lifeline`: everything ends when its other end is closed; `status` takes what the watcher
    says, and has what it is told (see `gate`); `own` are the candidate's alone: the parent takes
    their closing for its end."""

    lifeline: int
    status: int
    own: tuple[int, ...]

    def leave(self) -> None:
        """In the keeper and the watcher, once the candidate has its copies."""
        for descriptor in self.own:
            os.close(descriptor)


def keep(settings: Settings, descriptors: Descriptors, candidate: Callable[[], int]) -> None:
    """The keeper: runs `candidate` shut in, as `settings` say. Does not return.

    `settings`: "mode", "hidden", "readable", "writable" (paths), "scratch_bytes", "network",
    "nobody" (whether root's candidates run as that user), "limits" (by rlimit's name),
    "memory_bytes" and "processes" (of all together, or None), "gated" (see `gate`).
    """
    mode, status = settings["mode"], descriptors.status
    code = 1
    try:
        os.setsid()
        if mode == PLAIN:
            namespaces.prctl(namespaces.PR_SET_CHILD_SUBREAPER, 1)
        else:
            _enter(settings)
        namespaces.prctl(namespaces.PR_SET_DUMPABLE, 0)  # nobody looks into this process
        with _bounded(settings) as groups:
            watcher = os.fork()
            if watcher == 0:
                os.close(descriptors.lifeline)
                _watch_over(settings, descriptors, candidate, groups)
            descriptors.leave()
            _wait(watcher, descriptors.lifeline)
            if mode == PLAIN:
                _end_descendants()
        code = 0
    except BaseException as error:
        _tell(status, {"failed": f"{type(error).__name__}: {error}"})
    finally:
        os._exit(code)


def _bounded(settings: Settings) -> contextlib.AbstractContextManager[cgroups.Groups]:
    """Control groups, which only root can make: for what is held in memory, and where no rlimit
    bounds the number of processes (without namespaces, or with files that only root may read)."""
    if os.geteuid() != 0:
        return cgroups.bounded(None, None)
    processes = None if settings["nobody"] else settings["processes"]
    return cgroups.bounded(processes, settings["memory_bytes"])


def _enter(settings: Settings) -> None:
    """New namespaces, and the file system as the candidate will see it."""
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
    apart = ns.NEWPID | ns.NEWIPC | ns.NEWUTS | (0 if settings["network"] else ns.NEWNET)
    ns.unshare(apart)


def _give_away(path: str) -> None:
    """Let nobody write to a folder that this process (root) has made for it, or to a file."""
    with contextlib.suppress(OSError):
        os.chown(path, namespaces.NOBODY, namespaces.NOBODY, follow_symlinks=False)
        for folder, folders, files in os.walk(path):
            for name in (*folders, *files):
                place = os.path.join(folder, name)
                os.chown(place, namespaces.NOBODY, namespaces.NOBODY, follow_symlinks=False)


def _wait(watcher: int, lifeline: int) -> None:
    """Until the watcher has ended, or the lifeline is cut: then it is ended."""
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


# ---------------------------------------------------------------- the watcher


def _watch_over(
    settings: Settings,
    descriptors: Descriptors,
    candidate: Callable[[], int],
    groups: cgroups.Groups,
) -> None:
    """The watcher: starts the candidate, bounds what it and its children use together, says how it
    ended. Does not return; its end is the end of the PID namespace."""
    mode, status = settings["mode"], descriptors.status
    try:
        namespaces.prctl(namespaces.PR_SET_PDEATHSIG, signal.SIGKILL)
        namespaces.prctl(namespaces.PR_SET_DUMPABLE, 0)
        if mode == PLAIN:
            namespaces.prctl(namespaces.PR_SET_CHILD_SUBREAPER, 1)
        else:
            namespaces.mount_proc()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        child, listener = _start(settings, mode, status, candidate, groups)
        descriptors.leave()
        if settings["gated"]:
            gate.Gate(listener, status, child, lambda: _own(mode)).start()
        _tell(status, _supervise(settings, mode, child, groups))
    except BaseException as error:
        _tell(status, {"failed": f"{type(error).__name__}: {error}"})
    finally:
        os._exit(0)


def _start(
    settings: Settings,
    mode: str,
    status: int,
    candidate: Callable[[], int],
    groups: cgroups.Groups,
) -> tuple[int, int | None]:
    """Fork the candidate; it runs when its user is mapped. Also what listens at its gate."""
    asks, answered = os.pipe()
    waits, answers = os.pipe()
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        code = 70
        try:
            for descriptor in (asks, answers, status, ours.detach()):
                os.close(descriptor)
            groups.join()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            _give_up(settings, mode, answered, waits)
            if settings["gated"]:
                gate.hand_over(theirs)
            theirs.close()
            code = candidate()
        finally:
            os._exit(code)
    os.close(answered)
    os.close(waits)
    theirs.close()
    try:
        if os.read(asks, 1):  # it has made its user namespace
            namespaces.map_root_to(child, namespaces.NOBODY if settings["nobody"] else 0)
            os.write(answers, b"m")
    except OSError:
        pass  # it sees the pipe closed, and goes without
    finally:
        os.close(asks)
        os.close(answers)
    with ours:
        return child, gate.taken(ours) if settings["gated"] else None


def _give_up(settings: Settings, mode: str, asks: int, answered: int) -> None:
    """In the candidate: user, groups, capabilities, then limits and the filter of system calls."""
    import resource

    namespaces.prctl(namespaces.PR_SET_DUMPABLE, 1)  # its own files in /proc are its own
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(_OOM_SCORE)
    root = os.geteuid() == 0
    if root and mode != PLAIN:
        os.setgroups([])
        try:
            namespaces.unshare(namespaces.NEWUSER)
            os.write(asks, b"u")
            mapped = os.read(answered, 1) == b"m"
        except OSError:
            mapped = False  # user namespaces are off: the processes of nobody count together
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
    seccomp.install(network=settings["network"])


def _supervise(settings: Settings, mode: str, child: int, groups: cgroups.Groups) -> dict[str, Any]:
    """How the candidate ended: "status" as `waitstatus_to_exitcode` has it; "why" it was ended, for
    "memory" or "processes"; and, of memory, what it held at most ("held"), what the machine had
    left at the start ("free") and at least ("least"), whether the kernel ended processes for want
    of it ("kills"), and some of the candidate at its own bound ("own")."""
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
    found |= {"kills": memory.kills() - kills, "own": groups.kills()}
    return {"status": ended, "why": why, **found}


def _own(mode: str) -> Iterator[int]:
    """The processes below the watcher."""
    if mode == PLAIN:
        yield from _descendants(os.getpid())
    else:
        yield from (int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1")


def _usage(processes: Iterator[int]) -> tuple[int, int]:
    """How many there are, and the bytes that they hold in memory."""
    count, pages = 0, 0
    for process in processes:
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{process}/statm") as file:
                pages += int(file.read().split()[1])
            count += 1
    return count, pages * _PAGE


def _descendants(ancestor: int) -> list[int]:
    """All processes below one, by /proc."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                with open(f"/proc/{name}/stat") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
                parents.setdefault(parent, []).append(int(name))
    found: list[int] = []
    todo = [ancestor]
    while todo:
        children = parents.get(todo.pop(), [])
        found += children
        todo += children
    return found


def _end_descendants() -> None:
    """Without namespaces: end what is left, which is adopted by this process, until nothing is."""
    for _ in range(200):
        left = _descendants(os.getpid())
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
