"""The effort of the property tests, chosen by FALKIRK_TEST_PROFILE.

`ci`    the same few examples on every run, so that a red build always means a changed program (`make test`)
`check` the same on every run, too, and more of them (`make check`)
`dev`   new examples on every run; failures are remembered and replayed (the default outside CI)
`soak`  fifty times as many, for hours rather than minutes
`mutation`  as `ci`, and without a search for the smallest example: it only matters that there is one
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, Phase, settings

# No deadlines and no complaints about slow generation: machines shared with others are slow at times.
settings.register_profile("base", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
_base = settings.get_profile("base")
settings.register_profile("ci", _base, derandomize=True, max_examples=16)
settings.register_profile("check", _base, derandomize=True, max_examples=40)
settings.register_profile("dev", _base, max_examples=100)
settings.register_profile("soak", _base, max_examples=5_000)
_found = (Phase.explicit, Phase.generate)
settings.register_profile("mutation", _base, derandomize=True, max_examples=20, phases=_found, database=None)

# A Spark of a test lives for a minute: Java's second compiler, and a collector with threads, cost more than they give there.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

settings.load_profile(os.environ.get("FALKIRK_TEST_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))


# Whoever starts the tests in the background has this signal ignored, in all that they start: tests of Ctrl-C need the usual.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group tests that share something expensive, and leave cases of sampled ones to `make check`.

    A group runs in one process, so that what it shares is made once (`--dist loadgroup`).
    """
    cases: Counter[tuple[object, str]] = Counter()
    for item in items:
        if isinstance(item, pytest.Function):
            shared = [each[-1] for each in item._fixtureinfo.name2fixturedefs.values()]
            if any(each.scope == "module" and each.baseid == item.nodeid.split("::")[0] for each in shared):
                item.add_marker(pytest.mark.xdist_group(item.module.__name__))
            if (sampled := item.get_closest_marker("sampled")) is not None:
                function = item.parent, item.originalname
                if cases[function] % sampled.args[0]:
                    item.add_marker(pytest.mark.check)
                cases[function] += 1


_WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGALRM)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """A test that leaves a handler of a signal behind fails: a later one that is interrupted would end the whole process."""
    before = {number: signal.getsignal(number) for number in _WATCHED}
    yield
    left = {number.name: now for number, was in before.items() if (now := signal.getsignal(number)) != was}
    for number, was in before.items():
        signal.signal(number, was)
    assert not left, f"left behind: {left}"
