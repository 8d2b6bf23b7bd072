"""`falkirk whatif --policy`: a running job under other policies."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from falkirk.tables import print_table
from falkirk.what_if_view import NotRunning, call
from recovery.policy.written import change_of_text
from recovery.store.address import StoreAddress, Where
from recovery.store.interface import NoStore
from runtime.folders.store_folder import StoreFolder
from runtime.page.address import UNIX
from timely.errors import FalkirkError

NOT_RUNNING = (
    "no job runs with {}: what another policy would change is measured while it runs, as nobody else has its program"
)


def compared(target: Where, policies: Sequence[str]) -> dict[str, Any]:
    """Answer of the job at the address of a store or of a page; see docs/page.md.

    Raises FalkirkError for a wrong target, region or policy, for what the program could not have, and if the job does not run.
    """
    changes: dict[str, str] = {}
    for text in policies:
        region, _ = change_of_text(text)
        if region in changes:
            raise FalkirkError(f"the region {region!r} is given two policies: give it one")
        changes[region] = text[len(region) + 1 :]
    if isinstance(target, str) and target.startswith(("http://", UNIX)):
        address = target
    else:
        store = StoreAddress.of(target)
        try:
            address = StoreFolder(store).page.read_text()
        except (FileNotFoundError, NotADirectoryError) as error:
            _check_there(store)
            raise FalkirkError(NOT_RUNNING.format(target)) from error
    try:
        return call(address, "POST", "/api/policies", {"policies": changes})
    except NotRunning as error:
        raise FalkirkError(NOT_RUNNING.format(target)) from error


def _check_there(store: StoreAddress) -> None:
    try:
        store.open().close()
    except NoStore as error:
        raise FalkirkError(f"{error}, and it is no address of a page (http://...)") from error


def show(answer: dict[str, Any], console: Console) -> None:
    """Print the changes: groups, logs, promises, then costs."""
    names = " and ".join(
        f"{each['region'] or 'what is in no region'} were {each['policy']}" for each in answer["policies"]
    )
    console.print(f"If {names}:", markup=False)
    before, after = answer["before"], answer["after"]
    groups = [sum(group["saved"] for group in plan["groups"]) for plan in (before, after)]
    console.print(f"{groups[1]} groups are cut, where it is {groups[0]} now: {_cuts(after)}.", markup=False)
    for text, ours, theirs in (("logged", before, after), ("not logged any more", after, before)):
        new = [pair for pair in theirs["logs"] if pair not in ours["logs"]]
        if new:
            console.print(f"{text}: {', '.join(' to '.join(pair) for pair in new)}", markup=False)
    for each in answer["promises"]:
        was, then = (_promise(each[name]) for name in ("before", "after"))
        console.print(f"{each['output']} would be promised {then}, where it is {was} now", markup=False)
    if answer["workers"] is not None:
        rows = [
            (
                f"if worker {each['worker']} died",
                _exposed(each["now"]),
                *(_both(each[name]) for name in ("before", "after")),
            )
            for each in answer["workers"]
        ]
        rows.append(
            ("to the store", *(f"{answer['bytes'][name] / 1e3:,.1f} kB/s" for name in ("measured", "before", "after")))
        )
        cpu = answer["cpu"]
        rows.append(
            (
                "processor time",
                f"{cpu['measured'] * 1e3:,.0f} ms/s",
                f"{cpu['before'] * 1e3:,.1f} ms/s for persistence",
                f"{cpu['after'] * 1e3:,.0f} ms/s",
            )
        )
        print_table(console, ("", "measured now", "by the same model now", "then"), rows)
    for text in answer["unknown"]:
        console.print(text, markup=False)


def _cuts(plan: dict[str, Any]) -> str:
    found = []
    for group in plan["groups"]:
        if group["saved"]:
            every = [f"{group['seconds']:g} s"] if group["seconds"] is not None else []
            every += [f"{group['epochs']} epochs"] if group["epochs"] is not None else []
            often = "at each epoch" if group["eager"] else f"every {' or '.join(every)}"
            found.append(f"{_few(group['operators'])} {often}")
    return "; ".join(found)


def _few(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} more"


def _promise(of: dict[str, str]) -> str:
    return of["any"] if of["one"] == of["any"] else f"{of['one']} if one process fails, {of['any']} if any number do"


def _exposed(cost: dict[str, Any] | None) -> str:
    """Exposure in words.

    >>> _exposed({"records": 2523, "seconds": 0.0291}), _exposed(None)
    ('2,523 records (29 ms)', 'unknown')
    """
    if cost is None or cost["records"] is None:
        return "unknown"
    return f"{cost['records']:,} records ({cost['seconds'] * 1e3:,.0f} ms)"


def _both(of: dict[str, Any]) -> str:
    return f"{_exposed(of['typical'])}, at worst {_exposed(of['worst'])}"


def other_policies_command(target: str, policies: Sequence[str], as_json: bool) -> int:
    """The whole of `falkirk whatif --policy`; its exit code."""
    answer = compared(target, policies)
    if as_json:
        print(json.dumps(answer))
    else:
        show(answer, Console(width=None if os.isatty(1) else 120))
    return 0
