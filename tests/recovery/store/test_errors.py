"""The errors of a store name the blob, and say what to do."""

from __future__ import annotations

import pytest

from recovery.store.interface import AlreadyThere, NotThere, StoreBusy, StoreCorrupt, StoreVersion, whose


def test_errors_say_which_blob_and_what_is_wrong() -> None:
    assert "already has worker-000/segment-3: another process" in str(AlreadyThere("worker-000/segment-3"))
    assert str(NotThere("monitor/a")) == "the store has no monitor/a"
    assert str(NotThere("a", "/tmp/store")) == "/tmp/store has no a"
    busy = StoreBusy("it is busy", 17)
    assert (str(busy), busy.pid) == ("it is busy", 17)


@pytest.mark.parametrize(("found", "says"), [(5, "use the newer version"), (3, "use the version")])
def test_a_store_of_another_format_says_which_version_reads_it(found: int, says: str) -> None:
    error = str(StoreVersion("store", found, 4))
    assert f"store is in format {found}, and this version reads format 4; {says} of falkirk that wrote it" in error


@pytest.mark.parametrize(("advice", "says"), [("", "restore it from a copy of the store"), ("ask again", "ask again")])
def test_damage_names_the_place_the_owner_and_what_to_do(advice: str, says: str) -> None:
    error = StoreCorrupt("worker-007/segment-3", 12, "no such tag", advice)
    assert f"{error}".startswith(
        "worker-007/segment-3 is damaged at byte 12: no such tag. It is part of the journal of worker 7"
    )
    assert says in str(error)
    assert (error.name, error.offset, error.what, error.torn) == ("worker-007/segment-3", 12, "no such tag", False)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("store.json", "what says which store this is"),
        ("monitor/segment-1", "part of the monitor's journal"),
        ("worker-012/segment-1", "part of the journal of worker 12"),
        ("worker-x/segment-1", "part of the journal of worker-x"),
        ("other-012/segment-1", "part of the journal of other-012"),
    ],
)
def test_whose_a_blob_is(name: str, says: str) -> None:
    assert whose(name).startswith(says)
