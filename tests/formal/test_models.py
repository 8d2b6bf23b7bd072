"""The models of recovery: two of them are searched here, `make check` searches all; their names are those of the product."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from formal import check
from formal.check import OWN, RULES, WHOLE, Case
from monitor.coordination.invariants import INVARIANTS as OF_THE_COORDINATOR
from recovery.agent.invariants import INVARIANTS as OF_THE_AGENT

ROOT = Path(__file__).resolve().parents[2]
MODELS = sorted((ROOT / "formal").glob("*.pml"))
PAGE = (ROOT / "formal" / "README.md").read_text()
ROW = re.compile(
    r"^\| `(\w+)` \|.*\| `(\w+)` \| [\d,]+ \| `([\w/]+\.py)` `([\w.]+)` \| `([\w/]+\.py)` \|$", re.MULTILINE
)
PRODUCT = {each.__name__ for each in (*OF_THE_AGENT, *OF_THE_COORDINATOR)}

searched = pytest.mark.skipif(check.missing() is not None, reason=check.NEEDS)


def names(model: Path) -> set[str]:
    """The invariants that a model declares."""
    declared = re.search(r"^hidden byte (no_record_is_lost\b[^;]*);", model.read_text(), re.MULTILINE)
    assert declared, f"{model.name} does not declare no_record_is_lost first"
    return {name.strip() for name in declared[1].split(",")}


@pytest.mark.check
@searched
@pytest.mark.parametrize("case", [Case("gates", ("FAULTS=2",)), *(c for c in RULES if c.dropped == "SUPPRESSION")])
def test_a_model_holds_whole_and_breaks_without_a_rule(case: Case) -> None:
    outcome = check.check(case)
    assert outcome.wrong is None
    assert outcome.states > 1000


@pytest.mark.check
@searched
def test_a_rule_that_breaks_another_invariant_or_none_is_told() -> None:
    dropped = "WHAT_WAITS_AT_A_GATE_IS_OUTSTANDING"
    other = check.check(Case("gates", (), dropped, "no_record_is_lost"))
    assert other.wrong == "no_record_is_lost must break, and cuts_are_at_what_is_complete broke"
    none = check.check(Case("gates", ("FAULTS=0",), "GATES_ARE_OPEN_FOR_WHAT_IS_DURABLE", "everything_ends"))
    assert none.wrong == "everything_ends must break, and nothing did"


def test_without_spin_a_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert check.main([]) == 2
    assert "apt-get install spin gcc" in capsys.readouterr().err


def test_invariants_are_named_as_those_of_the_product() -> None:
    assert not OWN & PRODUCT
    for model in MODELS:
        assert names(model) <= PRODUCT | OWN, model.name
    assert {case.breaks for case in RULES} <= PRODUCT | OWN


def test_every_invariant_of_a_model_is_looked_at() -> None:
    for model in MODELS:
        assert set(re.findall(r"\bMUST\((\w+),", model.read_text())) - {"invariant"} == names(model), model.name


def test_every_rule_of_a_model_is_dropped_once() -> None:
    for model in MODELS:
        found = set(re.findall(r"\bDROP_(\w+)", model.read_text()))
        assert found == {case.dropped for case in RULES if case.model == model.stem}, model.name
    assert {model.stem for model in MODELS} == {case.model for case in WHOLE}
    assert len({(case.model, case.dropped) for case in RULES}) == len(RULES)


def test_the_page_tells_of_each_rule_where_it_is() -> None:
    rows = ROW.findall(PAGE)
    assert [row[:2] for row in rows] == [(case.dropped, case.breaks) for case in RULES]
    for _, _, file, place, test in rows:
        assert (ROOT / test).exists(), test
        body = ast.parse((ROOT / file).read_text()).body
        for name in place.split("."):
            found = [node for node in body if getattr(node, "name", None) == name]
            assert found, f"{file} has no {place}"
            body = getattr(found[0], "body", [])
