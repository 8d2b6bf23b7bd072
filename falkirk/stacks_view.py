"""`falkirk stacks`: stacks of a running job's processes."""

from __future__ import annotations

import msgspec

from recovery.store.address import StoreAddress
from runtime.folders.store_folder import StoreFolder
from runtime.page.doors import all_stacks


def stacks_command(address: StoreAddress, place: str | None, as_json: bool) -> int:
    """Print the stacks of all processes, or of one place; the exit code.

    Raises NotRunning.
    """
    with address.open():
        found = all_stacks(StoreFolder(address), place)
    if as_json:
        print(msgspec.json.encode(found).decode())
    else:
        print("\n\n".join(each.text for each in found))
    return 0
