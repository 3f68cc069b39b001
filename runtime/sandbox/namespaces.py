"""Namespaces, mounts and privileges of one worker, by the system calls of Linux.

Needs only the standard library, and is called only in processes that are about to run a candidate.
The meaning of the numbers is in the manual pages of unshare(2), mount(2), mount_setattr(2),
prctl(2), capset(2) and user_namespaces(7).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Iterable
from pathlib import Path

NEWNS, NEWUTS, NEWIPC = 0x00020000, 0x04000000, 0x08000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000

_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_SYS_MOUNT_SETATTR = 442  # the same on all architectures
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_ATTR_RDONLY = 1

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP = 1, 4, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 36, 38, 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION_3 = 0x20080522
_LAST_CAPABILITY = 40

#: The user (nobody) that candidates run as where this process is root.
NOBODY = 65534

_LIBC = ctypes.CDLL(None, use_errno=True)


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """unshare(2). Raises `OSError`."""
    _check(_LIBC.unshare(flags), "unshare")


def prctl(option: int, value: int = 0) -> None:
    """prctl(2) with one argument. Raises `OSError`."""
    zero = ctypes.c_ulong(0)
    _check(_LIBC.prctl(option, ctypes.c_ulong(value), zero, zero, zero), "prctl")


def map_to_self(user: int, group: int) -> None:
    """In a new user namespace: map `user` and `group` to themselves, and give up setgroups(2)."""
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


@functools.cache
def has_nobody() -> bool:
    """Whether the user and the group nobody are mapped in this process's user namespace."""
    maps = (Path(f"/proc/self/{kind}_map").read_text().splitlines() for kind in ("uid", "gid"))
    ranges = ([tuple(map(int, line.split())) for line in lines] for lines in maps)
    return all(any(0 <= NOBODY - each[0] < each[2] for each in ids) for ids in ranges)


def map_root_to(process: int, user: int) -> None:
    """For a `process` that has just made its user namespace: map its user 0 to `user`, and its
    group 0 to the group of the same number."""
    Path(f"/proc/{process}/uid_map").write_text(f"0 {user} 1")
    Path(f"/proc/{process}/gid_map").write_text(f"0 {user} 1")


# ---------------------------------------------------------------- mounts


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    arguments = [text.encode() if text else None for text in (source, target, kind)]
    data = options.encode() if options else None
    _check(_LIBC.mount(*arguments, ctypes.c_ulong(flags), data), f"mount on {target}")


def _set_read_only(path: str, read_only: bool, recursive: bool = False) -> None:
    attributes = _MountAttributes()
    if read_only:
        attributes.attr_set = _ATTR_RDONLY
    else:
        attributes.attr_clr = _ATTR_RDONLY
    result = _LIBC.syscall(
        ctypes.c_long(_SYS_MOUNT_SETATTR),
        ctypes.c_int(_AT_FDCWD),
        path.encode(),
        ctypes.c_uint(_AT_RECURSIVE if recursive else 0),
        ctypes.byref(attributes),
        ctypes.c_size_t(ctypes.sizeof(attributes)),
    )
    _check(result, f"mount_setattr on {path}")


def mount_proc() -> None:
    """Mount a /proc that shows this PID namespace alone. Raises `OSError`."""
    _mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)


def rearrange(
    hidden: Iterable[str], readable: Iterable[str], writable: Iterable[str], size: int
) -> None:
    """In a new mount namespace: make everything read-only; put an empty folder in memory (of `size`
    bytes at most) in place of each of `hidden`; show `readable` and `writable` where they were.

    Paths that do not exist are left out. Raises `OSError`.
    """
    _mount("", "/", "", _MS_REC | _MS_PRIVATE)
    places = _outermost(hidden)
    writing = set(_existing(writable))
    shown = _outermost([*_existing(readable), *writing], keep=writing)
    opened = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in shown}
    _set_read_only("/", True, recursive=True)
    for place in places:
        _mount("tmpfs", place, "tmpfs", _MS_NOSUID | _MS_NODEV, f"size={size},mode=1777")
    for path, descriptor in opened.items():
        if path in writing or any(_inside(path, place) for place in places):
            _make_place(path, os.path.isdir(f"/proc/self/fd/{descriptor}"))
            _mount(f"/proc/self/fd/{descriptor}", path, "", _MS_BIND)
            _set_read_only(path, path not in writing)
        os.close(descriptor)


def _existing(paths: Iterable[str]) -> list[str]:
    return [os.path.realpath(path) for path in paths if path and os.path.exists(path)]


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _outermost(paths: Iterable[str], keep: Iterable[str] = ()) -> list[str]:
    """The existing ones of `paths`, outer before inner, without those inside of another (unless
    they are in `keep`) and without "/"."""
    kept = set(keep)
    found: list[str] = []
    for path in sorted(set(_existing(paths))):
        if path != "/" and (path in kept or not any(_inside(path, one) for one in found)):
            found.append(path)
    return found


def _make_place(path: str, folder: bool) -> None:
    """Make an empty folder, or an empty file, to mount on at `path`, unless something is there."""
    if os.path.exists(path):
        return
    place = Path(path)
    if folder:
        place.mkdir(parents=True, exist_ok=True)
    else:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()


# ---------------------------------------------------------------- privileges


def drop_capabilities() -> None:
    """Give up all capabilities, now and after execve(2). Raises `OSError`."""
    for number in range(_LAST_CAPABILITY + 1):
        try:
            prctl(PR_CAPBSET_DROP, number)
        except OSError:
            break  # this kernel has fewer, or there is nothing to drop
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _check(_LIBC.capset(header, (ctypes.c_uint32 * 6)()), "capset")
    with contextlib.suppress(OSError):  # a kernel before ambient capabilities
        prctl(PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)


def become_nobody() -> None:
    """Change from root to the user and group nobody, without other groups, irreversibly."""
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
