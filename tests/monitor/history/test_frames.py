"""Frames and scales of the history: what is read is what was written, and how much that takes."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.history.files import FRAMES, OPTIONS, framed
from monitor.history.frames import NUMBERS, OPERATOR, WORKER, Frame, pack, unpack
from monitor.history.options_at import pack_options
from monitor.history.scales import COUNT, ENDED, RATE, SHARE, SIZE, UNKNOWN, Scale
from tests.monitor.history.drawn import frames, layout_of, options_at
from timely.errors import ProtocolError


@pytest.mark.parametrize("scale", [COUNT, RATE, SIZE, SHARE])
@given(numbers=st.lists(st.floats(0, 1e9), min_size=1, max_size=50))
def test_a_scale_gives_the_nearest_number_that_it_has(scale: Scale, numbers: list[float]) -> None:
    codes = scale.encode(np.array(numbers))
    back = scale.decode(codes)
    for number, found in zip(numbers, back):
        assert abs(found - number) == min(abs(scale.values - number))
        assert abs(found - number) <= max(scale.unit, 0.05 * number) or number > scale.values[-1]
    assert np.array_equal(scale.encode(back), codes)


def test_scales_rise_and_leave_two_codes() -> None:
    for scale in (COUNT, RATE, SIZE, SHARE):
        assert (np.diff(scale.values) > 0).all()
        assert len(scale.values) == ENDED
        assert np.isnan(scale.decode(np.array([ENDED, UNKNOWN], np.uint8))).all()


@st.composite
def drawn_frames(draw: st.DrawFn) -> list[Frame]:
    operators, workers = draw(st.integers(0, 6)), draw(st.integers(0, 4))
    number = st.integers(-(1 << 62), (1 << 62))
    made = []
    for _ in range(draw(st.integers(1, 8))):
        numbers = tuple(draw(st.lists(number, min_size=len(NUMBERS), max_size=len(NUMBERS))))
        of = [
            np.frombuffer(draw(st.binary(min_size=fields * each, max_size=fields * each)), np.uint8).reshape(
                fields, each
            )
            for fields, each in ((len(OPERATOR), operators), (len(WORKER), workers))
        ]
        made.append(Frame(numbers, *of))
    return made


@given(drawn_frames())
def test_a_pack_has_the_frames_that_were_packed(made: list[Frame]) -> None:
    assert unpack(pack(made)) == made


@given(drawn_frames(), st.data())
def test_a_damaged_pack_is_refused_or_has_frames(made: list[Frame], data: st.DataObject) -> None:
    good = bytearray(pack(made))
    good[data.draw(st.integers(0, len(good) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ProtocolError):
        unpack(bytes(good))
    with pytest.raises(ProtocolError):
        unpack(pack(made)[: data.draw(st.integers(0, len(good) - 1))])


def bytes_a_day(operators: int, workers: int, minutes: int = 1440) -> tuple[float, float]:
    """Megabytes of the frames of a day, and of options where W rises every 2 s, as they are written."""
    layout = layout_of(operators, workers)
    of_frames = of_options = 0
    seconds = frames(operators, workers, 60 * minutes)
    for minute in range(minutes):
        of_frames += len(framed(FRAMES, bytes(20) + pack([next(seconds) for _ in range(60)])))
        if minute % 60 == 0:  # all minutes are alike in that
            risen = [(1000 * s, options_at(layout, 2 * (60 * minute + s))) for s in range(0, 60, 2)]
            of_options += 60 * len(framed(OPTIONS, bytes(20) + pack_options(risen)))
    return of_frames * 1440 / minutes / 1e6, of_options * 1440 / max(minutes, 60) / 1e6


def test_an_hour_of_a_hundred_operators_takes_what_is_promised() -> None:
    of_frames, of_options = bytes_a_day(100, 4, 60)
    assert of_frames < 12.0
    assert of_options < 3.0


@pytest.mark.soak
@pytest.mark.parametrize(("operators", "workers", "most"), [(100, 4, 12.0), (1000, 8, 110.0)])
def test_a_day_takes_what_is_promised(operators: int, workers: int, most: float) -> None:
    began = time.process_time()
    of_frames, of_options = bytes_a_day(operators, workers)
    print(f"{operators} x {workers}: {of_frames:.1f} + {of_options:.1f} MB, {time.process_time() - began:.0f} s")
    assert of_frames + of_options < most
