"""Facts about a sketch, and the procedures that decide claims by them: the package's interface.

A sketch's expressions become affine forms over numbered atoms, and what is known of its names
becomes facts: inequalities between such forms. Domains and claims ask whether an inequality holds
at one place, or whether a system of facts has a point; the answer is a proof, a counter-example in
concrete numbers, or that neither was found within the work that a check may do.

- `affine`: forms, facts, and the atoms that stand for quotients, products, minima and maxima
- `systems`: whether a system of facts has no integer point, by a quick refutation
- `scope`: names as forms, and the facts that hold at one place of a sketch
- `lane_forms`: index tiles as forms over the lanes of an access
- `sites`: every access of a sketch with where it stands, and the elements that it touches
- `prover`: asks for a counter-example, of isl where the quick refutation does not decide
- `concrete`: claims tried on concrete numbers; it never proves
- `answers`: the finding on a claim, and the text of counter-examples
- `budget`: how much work a check may do

Other packages import from here, never from these modules. `budget` and `concrete` are exported as
modules: `budget.claim`, `concrete.runs` say what kind of function is called.
"""

import sketchc.checker.facts.budget as budget
import sketchc.checker.facts.concrete as concrete
from sketchc.checker.facts.affine import (
    ONE,
    Atoms,
    Extremum,
    Fact,
    Floor,
    Linear,
    Product,
    add,
    constant,
    constant_value,
    relation,
    scale,
)
from sketchc.checker.facts.answers import (
    OPEN,
    RECHECKED,
    Finding,
    contested,
    counter_example,
    for_sizes,
    in_iteration,
    proved,
    severity,
    unproved,
)
from sketchc.checker.facts.concrete import ParamValues, accessed, deciding_params, other_params
from sketchc.checker.facts.lane_forms import (
    Lanes,
    lane_facts,
    lane_name,
    loaded_names,
    parts,
    pointwise,
    proves,
    validity,
)
from sketchc.checker.facts.prover import PROVED, Outcome, Prover, Space, Verdict, iteration, worst
from sketchc.checker.facts.scope import (
    Branch,
    Scope,
    Step,
    host_path,
    inlined,
    monotonicity,
    phase_scope,
    root_scope,
)
from sketchc.checker.facts.sites import (
    ALWAYS,
    CASE_LIMIT,
    Cases,
    Computation,
    Footprint,
    Site,
    both,
    cases,
    collect,
    computations,
    footprint,
    placed,
    resolve,
)
from sketchc.checker.facts.systems import refuted
