"""The job as Prometheus metrics: every number that a page shows, with its worker, operator, group or kind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from monitor.coordination.supervision import TimelineEvent
from monitor.web.hub import Hub
from monitor.web.metrics import metrics, metrics_of_all
from monitor.web.view import WorkerView
from recovery.metadata import NEVER
from recovery.protocol import ROWS
from tests.monitor.web.programs import example_layout
from tests.monitor.web.standing import StandingJob


def scraped(hub: Hub) -> dict[tuple[str, ...], float]:
    """The value of each sample, by its name and the values of its labels."""
    families = text_string_to_metric_families(metrics(hub, 2000.0).decode())
    return {(s.name, *(v for _, v in sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def test_before_a_worker_has_joined_there_are_only_events() -> None:
    hub = Hub()
    hub.happened([TimelineEvent("failure", 1.0, {}), TimelineEvent("cut", 1.0, {}), TimelineEvent("cut", 2.0, {})])
    assert scraped(hub) == {("falkirk_events_total", "cut"): 2, ("falkirk_events_total", "failure"): 1}
    hub.know(example_layout("flights"))
    assert len(scraped(hub)) == 2, "nor before it has said anything"


def test_all_that_is_known_of_a_job_is_told() -> None:
    layout = example_layout("flights")
    job, hub = StandingJob(layout), Hub()
    hub.know(layout)
    for _ in range(4):
        hub.publish(job.step())
    further = tuple((bound[0] + (p % 3) - 1, *bound[1:]) for p, bound in enumerate(job.low[0]))
    seen = replace(job.observe(), low=(job.low[0], further))
    workers = WorkerView("alive", 0, 0), WorkerView("joined", 1, 3)
    groups = len(layout.groups)
    hub.publish(replace(seen, generation=7, workers=workers, completed=((9,) * groups, None)))
    found = scraped(hub)
    assert found["falkirk_generation",] == 7
    assert found["falkirk_phase", "running"] == 1
    assert [found["falkirk_worker_alive", worker] for worker in "01"] == [1, 0]
    assert [found["falkirk_worker_failures", worker] for worker in "01"] == [0, 3]
    for p, info in enumerate(layout.processors):
        assert found["falkirk_low_watermark_epoch", info.name] == min(bounds[p][0] for bounds in seen.low)
    completed = {key[1:]: value for key, value in found.items() if key[0] == "falkirk_completed_epoch"}
    assert completed == {(str(group), "0"): 9 for group in range(groups)}
    tables = [
        np.frombuffer(reported.numbers, dtype=np.int64).reshape(len(ROWS), -1) for _, reported in seen.samples.values()
    ]
    for name, row in (("state", "bytes"), ("log", "logged_bytes"), ("kept", "kept_bytes")):
        assert found[f"falkirk_{name}_bytes",] == sum(int(table[ROWS.index(row)].sum()) for table in tables)
    assert found["falkirk_records_read_total",] == sum(reported.read for _, reported in seen.samples.values())
    assert found["falkirk_records_written_total",] == sum(reported.written for _, reported in seen.samples.values())
    assert 0 <= found["falkirk_kept_share",] <= 1
    assert found["falkirk_epoch_latency_p50_seconds",] in (0.01, 0.02)
    assert found["falkirk_epoch_latency_p99_seconds",] == 0.02


def test_what_is_over_is_infinite_and_what_nobody_said_is_left_out() -> None:
    layout = example_layout("flights")
    job, hub = StandingJob(layout), Hub()
    hub.know(layout)
    low = tuple(tuple((NEVER, *(0,) * (info.depth - 1)) for info in layout.processors) for _ in range(layout.workers))
    completed = ((NEVER,) * len(layout.groups),) * layout.workers
    hub.publish(replace(job.observe(), low=low, completed=completed))
    found = scraped(hub)
    epochs = [value for key, value in found.items() if key[0].endswith("_epoch")]
    assert len(epochs) == len(layout.processors) + layout.workers * len(layout.groups)
    assert set(epochs) == {float("inf")}
    assert not any(key[0].startswith(("falkirk_records", "falkirk_state", "falkirk_epoch_latency")) for key in found)


def test_cuts_are_counted_by_how_long_they_took_and_by_group() -> None:
    hub = Hub()
    for group, interval, seconds in ((0, 0.1, 0.3), (0, 0.2, 0.3), (1, 70.0, 0.05)):
        hub.happened([TimelineEvent("safe", 1.0, {"group": group, "interval": interval, "seconds": seconds})])
    hub.happened([TimelineEvent("safe", 1.0, {"group": 1, "interval": None, "seconds": 0.2})])
    hub.happened([TimelineEvent("cut", 1.0, {"group": 0, "interval": 9.0, "seconds": 9.0})])
    found = scraped(hub)
    name = "falkirk_cut_interval_seconds"
    bounds = [key[2] for key in found if key[:2] == (f"{name}_bucket", "0")]
    assert [found[f"{name}_bucket", "0", bound] for bound in bounds] == [1, *[2] * (len(bounds) - 1)]
    assert bounds[0] == "0.1"
    assert bounds[-1] == "+Inf"
    assert [found[f"{name}_bucket", "1", bound] for bound in bounds] == [*[0] * (len(bounds) - 1), 1]
    assert [found[f"{name}_sum", group] for group in "01"] == [pytest.approx(0.3), 70.0]
    reached = "falkirk_cut_to_low_watermark_seconds"
    assert [found[f"{reached}_count", group] for group in "01"] == [2, 2]
    assert [found[f"{reached}_sum", group] for group in "01"] == [pytest.approx(0.6), pytest.approx(0.25)]


def test_several_jobs_are_told_apart_by_a_label() -> None:
    hubs = {}
    for key in ("one", "other"):
        job, hubs[key] = StandingJob(example_layout("flights")), Hub()
        hubs[key].know(job.layout)
        hubs[key].publish(job.step())
    text = metrics_of_all(hubs, 2000.0).decode()
    assert text.count("# TYPE falkirk_alarm ") == 1
    families = list(text_string_to_metric_families(text))
    for key, hub in hubs.items():
        own = text_string_to_metric_families(metrics(hub, 2000.0).decode())
        alone = {(s.name, tuple(sorted(s.labels.items()))): s.value for family in own for s in family.samples}
        together = {
            (s.name, tuple(sorted((name, value) for name, value in s.labels.items() if name != "job"))): s.value
            for family in families
            for s in family.samples
            if s.labels["job"] == key
        }
        assert together == alone
        assert len(alone) > 50
