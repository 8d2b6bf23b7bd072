"""The identity of a job: the differences that make two layouts two jobs, and the workers and stores that are refused."""

from __future__ import annotations

import msgspec

from monitor.coordination.handshake import another_program, layout_changes, refusal
from monitor.coordination.records import KeptDecision
from recovery.layout import GroupInfo, Layout
from recovery.place import Place
from recovery.protocol import Join
from tests.recovery.layouts import FIREWALL, LINE, layout
from timely.dataflow.functions import PYTHON, SCHEME
from timely.seen_functions import Functions
from timely.state.shapes import PartShape, Shape


def test_where_an_operator_stands_and_how_often_it_is_saved_may_change() -> None:
    before = layout(*LINE)
    moved = msgspec.structs.replace(before.processors[0], site="app.py:99")
    after = msgspec.structs.replace(
        before, processors=(moved, *before.processors[1:]), groups=(GroupInfo(None, 5.0),) * len(before.groups)
    )
    assert layout_changes(before, after) == []


def test_another_number_of_workers_is_named() -> None:
    (line,) = layout_changes(layout(*LINE, 2), layout(*LINE, 3))
    assert "its state moves to another number only" in line


def test_another_policy_operator_or_log_is_named() -> None:
    before = layout(*FIREWALL)
    changed = layout(*FIREWALL, policies=["Lazy", "Lazy", "LogHistory", "Lazy"])
    assert any("'count'" in line and "policy" in line for line in layout_changes(before, changed))
    gone = layout(*LINE)
    assert any("'clean' is gone" in line for line in layout_changes(before, gone))
    assert any("'map' is new" in line for line in layout_changes(before, gone))
    edge = msgspec.structs.replace(before.edges[1], logged=False)
    unlogged = msgspec.structs.replace(before, edges=(before.edges[0], edge, before.edges[2]))
    assert layout_changes(before, unlogged) == ["the edge from 'clean' to 'count' is no longer logged"]


def test_what_the_outline_does_not_tell_is_named_too() -> None:
    """Two layouts of one program, as its outline has it, may be fused, ordered or numbered in another way."""
    before = layout("read source, a chain, b chain", "read>a, read>b")
    other = layout("read source, b chain, a chain", "read>a, read>b")
    fewer = layout("read source, a chain", "read>a")
    assert layout_changes(before, msgspec.structs.replace(other, outline=before.outline)) == [
        "its operators are in another order"
    ]
    gone = "operator 'b' is gone, or is fused with others in another way"
    new = "operator 'b' is new, or is fused with others in another way"
    assert layout_changes(before, msgspec.structs.replace(fewer, outline=before.outline)) == [gone]
    assert layout_changes(fewer, msgspec.structs.replace(before, outline=fewer.outline)) == [new]
    (line,) = layout_changes(before, msgspec.structs.replace(before, fingerprint="7"))
    assert "fingerprint" in line
    changed = msgspec.structs.replace(before, outline=before.outline.replace('"Lazy"', '"LogHistory"'))
    assert any("LogHistory" in line for line in layout_changes(before, changed))


def test_edges_and_operators_that_differ_are_named_where_the_outline_is_the_same() -> None:
    before = layout("read source, a chain", "read>a")
    (edge,) = before.edges
    nowhere = ["an edge leads to an operator that it does not have"]
    for new, lines in (
        ([msgspec.structs.replace(edge, spread=True)], ["the edge from 'read' to 'a' is of another kind"]),
        ([msgspec.structs.replace(edge, target=2)], nowhere),
        ([msgspec.structs.replace(edge, source=-1)], nowhere),
        ([msgspec.structs.replace(edge, source=2, target=0)], nowhere),
        ([msgspec.structs.replace(edge, target=-1)], nowhere),
        ([msgspec.structs.replace(edge, source=1, target=0)], ["the edge from 'a' to 'read' is of another kind"]),
        ([], ["it had 1 edges and has 0"]),
    ):
        assert layout_changes(before, msgspec.structs.replace(before, edges=tuple(new))) == lines
    logs = (before.processors[0], msgspec.structs.replace(before.processors[1], policy="LogHistory"))
    assert layout_changes(before, msgspec.structs.replace(before, processors=logs)) == [
        "operator 'a': its policy was 'Lazy' and is 'LogHistory'"
    ]


def test_stores_that_do_not_belong_together_are_refused() -> None:
    plan = layout(*LINE)
    decision = KeptDecision(4, 2, ((),), ())
    join = Join(Place(1), 1, 4, False, plan, ())

    def why(join: Join) -> str:
        return refusal(join, plan, decision) or ""

    assert why(join) == ""
    assert why(msgspec.structs.replace(join, generation=2)) == ""
    assert "older copy" in why(msgspec.structs.replace(join, generation=1))
    assert "monitor's folder of the store is older" in why(msgspec.structs.replace(join, generation=5))
    first = msgspec.structs.replace(join, generation=1)
    assert "monitor's folder of the store is older" in (refusal(first, plan, None) or "")
    assert refusal(msgspec.structs.replace(join, generation=0), plan, None) is None
    assert "start all with the same number" in (refusal(join, layout(*LINE, 3), decision) or "")
    assert "another program" in why(msgspec.structs.replace(join, layout=layout(*FIREWALL)))


def test_a_worker_that_has_applied_decisions_is_refused_by_a_monitor_that_knows_none() -> None:
    plan = layout(*LINE)
    assert refusal(Join(Place(1), 1, 1, False, plan, ()), plan, None) is not None
    assert refusal(Join(Place(1), 1, 0, False, plan, ()), plan, None) is None
    assert refusal(Join(Place(1), 1, 0, False, plan, ()), plan, KeptDecision(1, 0, ((),), ())) is None


def with_state(of: Layout, shape: Shape | None) -> Layout:
    first, *others = of.processors
    return msgspec.structs.replace(of, processors=(msgspec.structs.replace(first, state=shape), *others))


def test_a_state_of_another_shape_is_named_with_both_sides_and_cannot_be_accepted() -> None:
    plan = layout(*LINE)
    name = plan.processors[0].name
    before = with_state(plan, (PartShape(0, "TimedBatches", "", "now"), PartShape(1, "KeyedState", "", "kept")))
    after = with_state(plan, (PartShape(0, "KeyedState", "", "kept"), PartShape(1, "TimedBatches", "", "now")))
    (line,) = layout_changes(before, after)
    assert line == (
        f"operator {name!r} (app.py:1): its state was Parts(now: TimedBatches; kept: KeyedState), and is "
        "Parts(kept: KeyedState; now: TimedBatches)"
    )
    assert line in (another_program(before, after, accept=[name]) or "")
    assert line in (refusal(Join(Place(1), 1, 0, False, after, ()), before, None) or "")
    assert layout_changes(with_state(plan, None), after) == layout_changes(before, with_state(plan, None)) == []


def test_a_state_that_is_only_called_otherwise_is_accepted_where_that_is_said() -> None:
    plan = layout(*LINE)
    name = plan.processors[0].name
    before, after = (with_state(plan, (PartShape(0, "KeyedState", "", called),)) for called in ("sums", "totals"))
    assert refusal(Join(Place(1), 1, 0, False, after, ()), before, None) is None
    assert "its state 'sums' is called 'totals' now" in (another_program(before, after) or "")
    assert another_program(before, after, accept=[name]) is None
    assert another_program(before, before) is None


def test_changed_functions_are_refused_unless_all_of_them_are_accepted() -> None:
    def of(**digests: str) -> Layout:
        found = {name: {"the function": f"code {digest}"} for name, digest in digests.items()}
        sites = {name: f"map {name!r} (app.py:{number})" for number, name in enumerate(digests)}
        return msgspec.structs.replace(layout(*LINE), functions=Functions(SCHEME, PYTHON, "1", found, sites))

    before, after = of(clean="1", parse="1", by="1"), of(clean="2", parse="2", by="1")
    text = another_program(before, after) or ""
    assert "map 'clean' (app.py:0): the code of the function is another one" in text
    assert "falkirk run --accept clean,parse, or falkirk.run(accept='clean,parse')" in text
    assert "'by'" not in text
    text = another_program(before, after, accept=["clean"]) or ""
    assert "'clean'" not in text
    assert "--accept parse," in text
    assert another_program(before, after, accept=["clean", "parse"]) is None
    assert another_program(before, before) is another_program(None, after) is None
    assert another_program(layout(*LINE), after) is another_program(before, layout(*LINE)) is None
    assert refusal(Join(Place(1), 1, 0, False, after, ()), before, None) is None  # it is the program of the job


def test_a_journal_of_another_layout_of_the_store_is_refused() -> None:
    plan = layout("a source, b chain", "a=>b")
    joined = Join(Place(1), 4, 0, False, msgspec.structs.replace(plan, number=2), ())
    assert refusal(joined, plan, None) is not None
    assert "has the journal of layout 2 of the store, and the job is at layout 0" in str(refusal(joined, plan, None))
    assert refusal(joined, msgspec.structs.replace(plan, number=2), None) is None
