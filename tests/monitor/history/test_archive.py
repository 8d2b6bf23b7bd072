"""Files of the history: damage at every byte costs what it touches, a ring is bounded, and moments are found again."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.coordination.options import Options, OptionsRecord
from monitor.coordination.records import KeptDecision, KeptEvent
from monitor.explain.why import why_rollback
from monitor.history.archive import FACTS, NOW, Archive, Gone, spanned
from monitor.history.facts import Counters, Decided, Happening, OfWorker, Plan, encode
from monitor.history.files import COUNTERS, FACT, FRAMES, OPTIONS, Ring, framed, records, segments
from monitor.history.frames import Frame, pack
from monitor.history.options_at import pack_options, unpack_options
from tests.monitor.history.drawn import START, frames, layout_of, options_at
from tests.monitor.web.programs import example_layout

OPERATORS, WORKERS = 12, 2
LAYOUT = layout_of(OPERATORS, WORKERS)


def minute(made: list[Frame], options: list[tuple[int, OptionsRecord]], plan: int = 0) -> bytes:
    data = framed(FRAMES, spanned(plan, made[0].at, made[-1].at, pack(made)))
    if options:
        data += framed(OPTIONS, spanned(plan, options[0][0], options[-1][0], pack_options(options)))
    return data


def facts() -> bytes:
    events = [KeptEvent("began", START / 1000, {"workers": WORKERS}), KeptEvent("restored", START / 1000 + 0.5)]
    failure = KeptEvent("failure", START / 1000 + 70.2, {"worker": 1, "incarnation": 3, "reason": "killed by SIGKILL"})
    decided = Decided(START / 1000 + 70.5, 0, KeptDecision(2, 1, ((None,) * OPERATORS, ((3,),) * OPERATORS), (1,)))
    reported = [Plan(0, START / 1000, LAYOUT), *(Happening(event) for event in (*events, failure)), decided]
    return b"".join(framed(FACT, encode(each)) for each in reported)


def made(seconds: int = 130) -> tuple[dict[str, bytes], list[Frame], list[tuple[int, OptionsRecord]]]:
    all_frames = list(frames(len(LAYOUT.processors), WORKERS, seconds))
    all_options = [(frame.at, options_at(LAYOUT, 2 * n)) for n, frame in enumerate(all_frames)][::2]

    def between(first: int, last: int) -> bytes:
        part = all_frames[first:last]
        return minute(part, [each for each in all_options if part[0].at <= each[0] <= part[-1].at])

    now = [minute([frame], [each for each in all_options if each[0] == frame.at]) for frame in all_frames[120:]]
    counters = framed(COUNTERS, encode(Counters((OfWorker(1, 5, 6, 5, 6),), {"cut": 3})))
    files = {
        FACTS: facts(),
        "past-00000000": between(0, 60),
        "past-00000001": between(60, 120),
        NOW: counters + between(118, 120) + b"".join(now),  # a monitor was killed before it began this file anew
    }
    return files, all_frames, all_options


FILES, ALL, RISES = made()


def archive(files: dict[str, bytes]) -> Archive:
    found = Archive()
    for name, data in files.items():
        found.take(name, data)
    return found


def test_moments_have_their_frame_their_options_and_their_events() -> None:
    found = archive(FILES)
    assert not found.problems
    assert found.span == (ALL[0].at, ALL[-1].at)
    assert found.frames(0, 1 << 60) == ALL
    assert (found.counters.read, found.counters.events) == (5, {"cut": 3})
    for frame in ALL:
        moment = found.at(frame.at + 10)
        assert moment.frame == frame
        newest = [record for at, record in RISES if at <= frame.at + 10][-1]
        assert moment.options is not None
        assert moment.options.record() == newest
    states = [found.at(START + 1000 * s).verdict().state for s in (1, 70, 71)]
    assert states == ["running", "running", "rolling back"]
    assert why_rollback(moment.options, 0).low == moment.options.low(0)
    assert len(found.decisions) == 1
    with pytest.raises(Gone):
        found.at(START - 1)
    assert found.at(1 << 60).verdict().state == "killed"


@given(most=st.integers(1, 200), since=st.integers(0, 130), until=st.integers(0, 130))
def test_frames_of_a_time_are_even(most: int, since: int, until: int) -> None:
    shown = archive(FILES).frames(START + 1000 * since, START + 1000 * until, most)
    assert len(shown) <= most + 2
    assert all(START + 1000 * since <= frame.at <= START + 1000 * until for frame in shown)
    assert [frame.at for frame in shown] == sorted({frame.at for frame in shown})


@settings(deadline=None, max_examples=200)
@given(name=st.sampled_from(sorted(FILES)), data=st.data())
def test_damage_costs_what_it_touches(name: str, data: st.DataObject) -> None:
    """One byte anywhere: all records but that one are read, and a sentence says so."""
    good = FILES[name]
    at = data.draw(st.integers(0, len(good) - 1))
    bad = bytearray(good)
    bad[at] ^= data.draw(st.integers(1, 255))
    before, after = records(good)[0], records(bytes(bad))[0]
    assert len(after) == len(before) - 1
    found = archive(FILES | {name: bytes(bad)})
    assert name in found.problems
    if name != FACTS:
        assert len(found.frames(0, 1 << 60)) >= len(ALL) - 60
    cut = archive(FILES | {name: good[:at]})
    whole = [each.offset + 13 + len(each.data) for each in before]
    assert bool(cut.problems) == (at not in (0, *whole))
    assert len(records(good[:at])[0]) == sum(end <= at for end in whole)


def test_every_byte_of_a_file_may_be_damaged() -> None:
    good = FILES[FACTS]
    count = len(records(good)[0])
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= 0x41
        assert len(records(bytes(bad))[0]) == count - 1


@given(sizes=st.lists(st.integers(1, 300), max_size=200), bound=st.integers(16, 5000), again=st.integers(1, 50))
def test_a_ring_is_bounded_and_keeps_the_newest(sizes: list[int], bound: int, again: int) -> None:
    kept: dict[str, int] = {}
    ring = Ring({}, bound)
    for number, size in enumerate(sizes):
        if number % again == 0:
            ring = Ring(kept, bound)  # a monitor was replaced
        name, gone = ring.add(size)
        kept[name] = kept.get(name, 0) + size
        for each in gone:
            del kept[each]
        assert ring.size == sum(kept.values())
        assert ring.size <= max(bound, kept[name])
        assert name == segments(kept)[-1]
        if sum(sizes[: number + 1]) <= bound * 15 // 16:
            assert not gone


@given(epochs=st.lists(st.integers(0, 1 << 40), min_size=1, max_size=5, unique=True))
def test_options_are_what_they_were(epochs: list[int]) -> None:
    layout = example_layout("mixed_policies")
    samples = [(at, options_at(layout, epoch)) for at, epoch in enumerate(epochs)]
    samples.append((99, Options(layout).record()))
    assert unpack_options(pack_options(samples)) == samples
    assert Options.of_record(layout, samples[0][1]).record() == samples[0][1]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 100), st.integers(0, 100)), max_size=30))
def test_counters_never_go_back(reported: list[tuple[int, int, int]]) -> None:
    counted = OfWorker()
    for incarnation, read, written in reported:
        after = counted.after(incarnation, read, written)
        assert (after.read, after.written) >= (counted.read, counted.written)
        assert after.read >= read
        counted = after
