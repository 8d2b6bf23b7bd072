"""Alerting rules in docs/page.md: they are YAML, and name metrics that there are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from monitor.explain.exposure import Danger
from monitor.web.hub import Hub
from monitor.web.metrics import metrics
from tests.monitor.web.programs import example_layout
from tests.monitor.web.standing import StandingJob

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "page.md").read_text()


def rules() -> list[dict[str, Any]]:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    return [rule for group in yaml.safe_load(block)["groups"] for rule in group["rules"]]


def names() -> set[str]:
    layout = example_layout("flights")
    job, hub = StandingJob(layout), Hub()
    hub.know(layout)
    job.exposure = (Danger(0, 5, 0.1, 0.2, 3),)
    hub.publish(job.step())
    return {each.name for each in text_string_to_metric_families(metrics(hub, 2000.0).decode())}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_a_rule_is_whole_and_names_metrics_that_there_are(rule: dict[str, Any]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    used = set(re.findall(r"falkirk_\w+", rule["expr"]))
    assert used
    assert used <= names()
    assert rule["expr"].count("(") == rule["expr"].count(")")
    assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))
