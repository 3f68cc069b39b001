"""Random sketches: accepted by the checker, they mean the same everywhere.

The interpreter runs each at several sizes and with other tile sizes; `fmt` gives the same sketch
back. test_random_cpp.py and test_random_triton.py compare the targets with the interpreter.
"""

from __future__ import annotations

import random

import pytest
from random_sketches.corpus import COUNT, LEAST, corpus, wanted
from random_sketches.running import checked, difference, inputs, reference

from sketchc.base.diagnostics import Source
from sketchc.parsing.formatter import format_file
from sketchc.parsing.parser import parse

CHUNK = 60


def test_every_operation_and_every_form_of_access_is_used(capsys):
    """The histogram is printed: pytest -s shows it."""
    found = corpus()
    with capsys.disabled():
        width = max(map(len, wanted()))
        print(f"\n{len(found.accepted)} of {COUNT} random sketches are accepted; they use")
        for feature, count in sorted(found.histogram.items()):
            print(f"  {feature:{width}} {count:4}")
    assert len(found.accepted) >= 0.9 * COUNT
    missing = {f: found.histogram[f] for f in wanted() if found.histogram[f] < LEAST}
    assert not missing


@pytest.mark.sweep
@pytest.mark.parametrize("chunk", range(COUNT // CHUNK))
def test_the_interpreter_keeps_every_rule_and_tile_sizes_do_not_matter(chunk):
    for generated, sketch in corpus().accepted:
        if generated.seed // CHUNK != chunk:
            continue
        chosen = random.Random(generated.seed)
        other = {name: chosen.choice((1, 3, 5, 32)) for name in generated.tunable}
        changed = checked(generated, other)
        assert changed is not None, (generated.text, other)
        for sizes in generated.sizes:
            given = inputs(generated, sketch, sizes)
            expected = reference(generated, sketch, sizes, given, check_domains=True)
            shuffled = reference(
                generated,
                changed,
                sizes,
                given,
                shuffle=generated.seed,
                padding=3,
                check_domains=True,
            )
            differs = difference(generated, sketch, expected, shuffled)
            assert not differs, f"{generated.text}\n{sizes}, {other}: {differs}"


def test_the_formatter_gives_the_same_sketch_back():
    for generated, _ in corpus().accepted:
        tree, _ = parse(Source("random", generated.text))
        assert tree is not None
        layout = format_file(tree, Source("random", generated.text))
        again, _ = parse(Source("random", layout))
        assert again == tree, generated.text
        assert again is not None
        assert format_file(again, Source("random", layout)) == layout
