"""The lists of inputs that a task's file makes: their titles, and the file narrowed to some of
them. Needs the standard library alone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

#: The function of a task's file that gives its own inputs, and those that give several lists.
OWN_MAKER = "get_inputs"
LIST_MAKERS = ("get_inputs_dyn_list", "get_input_groups")


def list_title(number: int, maker: str) -> str:
    """The title of list `number`, counted from 1, that the function `maker` gives."""
    return f"list {number} of {maker}"


def narrowed(source: str, every: Sequence[str], kept: Collection[str]) -> str:
    """The text of a task's file, with code at the end that leaves of `every` list of inputs those
    that are `kept` (both are titles)."""
    lines = ["", "", "# Of the lists of inputs, those that one kernel is made for."]
    if OWN_MAKER in every and OWN_MAKER not in kept:
        lines.append(f"del {OWN_MAKER}")
    for maker in LIST_MAKERS:
        own = [title for title in every if title.endswith(f" {maker}")]
        places = [place for place, title in enumerate(own) if title in kept]
        if not places and own:
            lines.append(f"del {maker}")
        elif len(places) < len(own):
            lines += [
                f"_every_list_of_{maker} = {maker}",
                "",
                "",
                f"def {maker}():",
                f"    lists = _every_list_of_{maker}()",
                f"    return [lists[place] for place in {places}]",
            ]
    return source.rstrip("\n") + "\n" + "\n".join(lines) + "\n"
