"""`falkirk upgrade`: plan of a changed program, carried out after a yes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from msgspec import to_builtins
from rich.console import Console

from falkirk.tables import print_table, short_path
from falkirk.upgrading import upgrade
from recovery.store.address import StoreAddress
from runtime.program import Program
from runtime.supervisor.upgrading import Change, Upgrade


def upgrade_command(
    program: Program, store: StoreAddress, renames: Mapping[str, str], dry_run: bool, yes: bool, as_json: bool
) -> int:
    """Print the fate of each operator and change the store; 0, or 1 without a yes.

    Raises FalkirkError.
    """
    agreed = True

    def agree(plan: Upgrade) -> bool:
        nonlocal agreed
        if yes:
            return True
        _print(plan.changes)
        agreed = _asked()
        return agreed

    changes = upgrade(program, store, renames, dry_run, agree)
    if as_json:
        print(json.dumps(to_builtins(changes)))
    elif dry_run or yes or all(change.fate == "same" for change in changes):
        _print(changes)
    if not agreed:
        print("nothing was changed")
        return 1
    if as_json:
        return 0
    if all(change.fate == "same" for change in changes):
        print(f"nothing to change: the store {store} is of this program")
    elif dry_run:
        print("nothing was changed: this is what falkirk upgrade would do without --dry-run")
    else:
        print(f"the store {store} goes on with this program: falkirk run it")
    return 0


def _print(changes: Iterable[Change]) -> None:
    rows = [(each.fate, each.name, each.kind, short_path(each.site), each.detail) for each in changes]
    print_table(Console(), ("what", "operator", "kind", "made at", ""), rows)


def _asked() -> bool:
    try:
        return input("Change the store so? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False
