"""The timeline under many commits: failures stay, and counters count all."""

from __future__ import annotations

from monitor.coordination.supervision import TimelineEvent
from monitor.web.hub import Hub
from monitor.web.metrics import metrics
from monitor.web.recent_events import MOST_EVENTS, ROUTINE


def test_a_failure_is_to_be_seen_behind_thousands_of_commits_and_all_are_counted() -> None:
    hub = Hub()
    hub.happened([TimelineEvent("failure", 1.0, {"worker": 1})])
    for at in range(MOST_EVENTS):
        hub.happened(TimelineEvent(kind, 2.0 + at, {}) for kind in sorted(ROUTINE))
    shown = hub.events_after(0)
    assert [event["kind"] for event in shown if not event["routine"]] == ["failure"]
    assert len(shown) == MOST_EVENTS + 1
    assert [event.kind for event in hub.events][:1] == ["failure"], "who begins later hears of it, too"
    assert [event["n"] for event in shown] == sorted(event["n"] for event in shown)
    assert len(hub.events_after(shown[-3]["n"])) == 2
    assert f'falkirk_events_total{{kind="cut"}} {float(MOST_EVENTS)}' in metrics(hub, 0.0).decode()
