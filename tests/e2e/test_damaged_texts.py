"""A check ends, and without a traceback, whatever one changed token makes of an example.

Every text is judged in a process of its own that the system ends when it takes too long, so that
this ends, too. `SKETCHC_DAMAGED=2000 pytest tests/e2e/test_damaged_texts.py` tries that many; a
failure names the number of its text.
"""

from __future__ import annotations

import os
import traceback

import attrs
import pytest
from damaged_texts import EXAMPLES, damaged, judged

from sketchc.api import Request, check_text
from sketchc.base.diagnostics import Source
from sketchc.ir import nodes as ir

COUNT = int(os.environ.get("SKETCHC_DAMAGED", "300"))
#: Processor seconds for `check --static` of one text (the promise), and for all of `check`.
STATIC_SECONDS = 5.0
SECONDS = 60.0


@attrs.frozen
class Verdict:
    """What a check said of a text: the codes found, or why it did not say."""

    codes: tuple[str, ...] = ()
    wrong: str = ""


def checked(text: str, static: bool) -> Verdict:
    try:
        report = check_text(Source("damaged.sketch", text), Request(static=static))
    except Exception:
        return Verdict(wrong=traceback.format_exc())
    tiers: dict[tuple[str, str], set[ir.Tier]] = {}
    for proof in (proof for sketch in report.sketches for proof in sketch.proofs):
        tiers.setdefault((proof.claim, proof.subject), set()).add(proof.tier)
    for claim, found in tiers.items():
        if ir.Tier.REFUTED in found and not found <= {ir.Tier.REFUTED, ir.Tier.UNPROVED}:
            return Verdict(wrong=f"{claim} is refuted, and {found}")
    return Verdict(tuple(diagnostic.code for diagnostic in report.diagnostics))


def checked_static(number: int) -> Verdict:
    return checked(damaged(number).text, static=True)


def checked_whole(number: int) -> Verdict:
    return checked(damaged(number).text, static=False)


def test_a_damaged_example_is_checked_in_time():
    for found in judged(checked_static, range(COUNT), STATIC_SECONDS):
        text = damaged(found.item)
        told = f"number {text.number}, {text.example}, {text.change}"
        assert found.verdict is not None, f"{told}: more than {STATIC_SECONDS} s, or it died"
        assert not found.verdict.wrong, f"{told}: {found.verdict.wrong}"


def test_no_damaged_example_makes_a_traceback():
    """All of `check`, with its runs, in which the interpreter compares every domain that was
    inferred with the lanes that it finds."""
    for found in judged(checked_whole, range(COUNT, COUNT + COUNT // 3), SECONDS):
        text = damaged(found.item)
        told = f"number {text.number}, {text.example}, {text.change}"
        assert found.verdict is not None, f"{told}: more than {SECONDS} s, or it died"
        assert not found.verdict.wrong, f"{told}: {found.verdict.wrong}"


CONVOLUTION = """sketch conv3d {
    symbols: N, C, D, H, W;
    params: padding: i64 = 0;
    let: OD = D+2*padding; OH = H+2*padding; OW = W+2*padding;
    tensors: X[N, C, D, H, W]: in f32; Y[N, C, OD, OH, OW]: out f32;
    views: YV[N*C, OD, OH, OW] = Y;
    constexpr: T = 16;
    require: padding >= 0;

    @llm_hint("parallel", "grididx")
    for n in range(N*C):
        @llm_hint("parallel", "grididx")
        for d in range(OD):
            @llm_hint("parallel", "grididx")
            for h in range(OH):
                @llm_hint("parallel", "grididx")
                for w in range(ceil(OW, T)):
                    y = alloc([T], init=1.0)
                    store(y -> YV[n, d, h, w*T:(w+1)*T])
}
"""

#: What once did not end, or ended in a traceback: a text, and what is changed in it.
FOUND = {
    # The search for a witness looked for a lane with the help of the loop, and the reverse.
    "a step that depends on the loop": (EXAMPLES["gelu"], "i*TILE:(i+1)", "i:TILE:(i+1)"),
    "a slice with a step": (EXAMPLES["max_pool1d"], "j*T:(j+1)*T", "j*T: :(j+1)*T"),
    # An operation that has no value on some lanes left all lanes of its tile valid.
    "shift counts out of range": (EXAMPLES["murmur_hash"], "shl(h, 15, h)", "shl(h, h, h)"),
    # No elements, and steps between them that do not fit 64 bits.
    "a view with a wrong count": (CONVOLUTION, "YV[N*C", "YV[N%C"),
    "more axes than NumPy has": (
        EXAMPLES["relu"].replace("[M, N]", f"[M, N{', 1' * 70}]"),
        "relu {",
        "many_axes {",
    ),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_once(name):
    text, old, new = FOUND[name]
    assert old in text
    (found,) = judged(lambda text: checked(text, False), [text.replace(old, new)], SECONDS)
    assert found.verdict is not None
    assert not found.verdict.wrong, found.verdict.wrong


DECODED = """sketch conv3d {
    symbols: N, C, D, H, W, O, KD, KH, KW;
    params: stride: i64 = 1; padding: i64 = 0;
    let: OD = (D+2*padding-KD)//stride + 1;
    let: OH = (H+2*padding-KH)//stride + 1;
    let: OW = (W+2*padding-KW)//stride + 1;
    tensors: X[N, C, D, H, W]: in f32; WEIGHT[O, C, KD, KH, KW]: in f32;
    tensors: Y[N, O, OD, OH, OW]: out f32;
    views: WF[O, C*KD*KH*KW] = WEIGHT;
    constexpr: TP in [32, 64], TO in [16, 32], TK in [16, 32];
    require: stride >= 1 and padding >= 0;

    @llm_hint("parallel", "grididx")
    for i in range(ceil(N*OD*OH*OW, TP)):
        @llm_hint("parallel", "grididx")
        for j in range(ceil(O, TO)):
            y = alloc([TP, TO], f32, init=0, llm_hint=["fastest", "accumulator"])
            p = iota(TP, i*TP, N*OD*OH*OW)
            n = p//(OD*OH*OW)
            od = p//(OW*OH) % OD
            oh = p//OW % OH
            ow = p % OW
            o = iota(TO, j*TO, O)
            @llm_hint("pipeline")
            for k0 in range(0, C*KD*KH*KW, TK):
                x = alloc([TP, TK], llm_hint=["fast", "input_cache"])
                w = alloc([TO, TK], llm_hint=["fast", "input_cache"])
                k = iota(TK, k0, C*KD*KH*KW)
                c = k//(KD*KH*KW)
                d = (od*stride-padding)[:, None] + (k//(KW*KH)%KD)[None, :]
                h = (oh*stride-padding)[:, None] + (k//KW%KH)[None, :]
                v = (ow*stride-padding)[:, None] + (k%KW)[None, :]
                load(X[n[:, None], c[None, :], d, h, v] -> x, pad=0)
                load(WF[o, k0:k0+TK] -> w)
                gemm(x, w, y, trans_b=True)
            store(y -> Y[n[:, None], o[None, :], od[:, None], oh[:, None], ow[:, None]])
}
"""

#: Slips in the decode of a pixel: a wrong modulus, a wrong divisor, an index swapped.
SLIPS = (
    ("p//(OW*OH) % OD", "p//(OW*OH) % 3"),
    ("p//(OW*OH) % OD", "p//(OW*OH) % 27"),
    ("p//OW % OH", "p//OW % OD"),
    ("p % OW", "p % OH"),
    ("n = p//(OD*OH*OW)", "n = p//(OD*OH)"),
    ("od[:, None], oh[:, None]", "oh[:, None], od[:, None]"),
    ("iota(TO, j*TO, O)", "iota(TO, j*TP, O)"),
)


def refuted(text: str) -> tuple[bool, list[str]]:
    """Whether a claim of a text is refuted, and those neither proved nor with a word of why."""
    report = check_text(Source("decoded.sketch", text), Request(static=True))
    proofs = [proof for sketch in report.sketches for proof in sketch.proofs]
    silent = [p.claim for p in proofs if p.tier is not ir.Tier.PROVED and not p.detail]
    return any(proof.tier is ir.Tier.REFUTED for proof in proofs), silent


@pytest.mark.sweep
@pytest.mark.parametrize(("old", "new"), [("", ""), *SLIPS])
def test_a_slip_in_the_decode_of_a_convolution_is_refuted_in_time(old: str, new: str) -> None:
    assert old in DECODED
    seconds = 2 * STATIC_SECONDS  # these take half of the bound, on a machine that others slow down
    (found,) = judged(refuted, [DECODED.replace(old, new, 1) if old else DECODED], seconds)
    assert found.verdict is not None, f"more than {seconds} s, or it died"
    assert found.verdict == (bool(old), [])
