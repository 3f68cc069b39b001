"""The template of `torch_template`: it imports torch and forks one process for each task."""

from __future__ import annotations

import importlib
import json
import os
import random
import socket
import sys
import traceback
from contextlib import suppress

import numpy as np

from sketchc.runtime.process.parent import die_with_parent
from sketchc.runtime.tasks.torch_template import MESSAGE
from sketchc.runtime.tasks.worker.torch_worker import main

#: What torch imports when a model first runs without data, for seconds. Here from the second task
#: on: the first may be the only one, and too small to need it.
_LAZY = ("torch.fx.experimental.symbolic_shapes", "torch._dynamo")


def serve(descriptor: int) -> None:
    """Answer `torch_template.Template`: make processes, and say how they ended."""
    tasks = 0
    with socket.socket(fileno=descriptor) as channel:
        while True:
            content, descriptors, _, _ = socket.recv_fds(channel, MESSAGE, 3)
            if not content:
                return
            message = json.loads(content)
            if "wait" in message:
                answer = os.waitstatus_to_exitcode(os.waitpid(message["wait"], 0)[1])
            else:
                tasks += 1
                for name in _LAZY if tasks == 2 else ():
                    with suppress(ImportError):
                        importlib.import_module(name)
                answer = os.fork()
                if answer == 0:
                    channel.close()
                    os.environ.update(message["environment"])
                    _serve_apart(message["place"], *descriptors)
            for one in descriptors:
                os.close(one)
            channel.send(str(answer).encode())


def _serve_apart(place: str, reads: int, writes: int, log: int) -> None:
    """The forked process of one task; does not return."""
    status = 1
    try:
        os.setsid()
        die_with_parent()
        for stream in (1, 2):
            os.dup2(log, stream)
        os.close(log)
        os.chdir(place)
        # As in a process of its own: the template's state is the same for all.
        random.seed()
        np.random.seed()
        main(reads, writes)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    die_with_parent()
    serve(int(sys.argv[1]))
