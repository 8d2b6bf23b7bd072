"""Policies as texts: what a program could write is read, all else is a sentence, and nothing is run."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.policy import POLICIES, Batch, Eager, Lazy, LogHistory, PassiveStandby, Policy, Snapshot
from recovery.policy.written import MOST_CHARACTERS, change_of_text, policy_of_text
from timely.errors import GraphError

EVERY = st.one_of(st.integers(1, 10**6), st.floats(1e-3, 1e6), st.sampled_from(["500ms", "2 s", "5m"]))
WRITTEN: st.SearchStrategy[Policy] = st.one_of(
    st.sampled_from([policy() for policy in POLICIES]),
    st.builds(Batch, st.booleans()),
    st.builds(Lazy, EVERY, st.booleans()),
    st.builds(LogHistory, EVERY, st.booleans()),
    st.builds(Snapshot, EVERY),
    st.builds(PassiveStandby, st.sampled_from([0.05, "50ms"]), st.sampled_from([10.0, "10s", "5m"]), st.booleans()),
)


@given(WRITTEN, st.text(max_size=20))
def test_a_policy_is_read_as_python_writes_it(policy: Policy, region: str) -> None:
    assert policy_of_text(f" {policy!r} ") == policy
    if "=" not in region:
        assert change_of_text(f"{region}={policy!r}") == (region, policy)


@given(st.text(max_size=300))
def test_any_characters_are_a_policy_or_a_sentence(text: str) -> None:
    for read in (policy_of_text, change_of_text):
        with suppress(GraphError):
            read(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Nothing()", "there are Ephemeral, Batch, Lazy"),
        ("Lazy(every=0)", "give a positive number of epochs"),
        ("Lazy(every=1e999)", "give a positive number of epochs"),
        ("Lazy(every=True)", "give a positive number of epochs"),
        ("Lazy(every=" + "9" * 60 + ")", "give at most"),
        ("PassiveStandby(durable=None)", "give the time between durable checkpoints"),
        ("PassiveStandby(durable=True)", "give a positive number of epochs"),
        ("Lazy(1)", "is not written as a policy is"),
        ("Lazy(every=open('x'))", "is not written as a policy is"),
        ("__import__('os').system('true')", "is not written as a policy is"),
        ("Lazy(**{'every': 1})", "is not written as a policy is"),
        ("Batch(log_outputs='yes')", "it is True or False"),
        ("Batch(log_outputs=1)", "it is True or False"),
        ("Eager(log_outputs=True)", "no argument 'log_outputs': it has none"),
        ("Batch(every=1)", "it has log_outputs"),
        ("Lazy(every=1, every=2)", "is not written as a policy is"),
        ("Batch\0", "is not written as a policy is"),
        ("((" * 90, "is not written as a policy is"),
        ("Lazy(every='" + "x" * MOST_CHARACTERS + "')", "at most 200 characters"),
        ("", "is not written as a policy is"),
    ],
)
def test_what_is_wrong_is_said(text: str, words: str) -> None:
    with pytest.raises(GraphError, match=words.replace("(", r"\(")):
        policy_of_text(text)


def test_a_region_may_have_any_name() -> None:
    assert change_of_text("a=b=Eager()") == ("a=b", Eager())
    assert change_of_text("=Batch()") == ("", Batch())
    assert change_of_text("x=Lazy(every='=Eager()')=Batch") == ("x=Lazy(every='=Eager()')", Batch())
    with pytest.raises(GraphError, match="write REGION=POLICY"):
        change_of_text("circles")
    with pytest.raises(GraphError, match="'Foo' is no policy"):
        change_of_text("circles=Foo()")
