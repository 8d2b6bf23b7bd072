"""`falkirk page`: page of jobs, running or not, as a process of its own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing

from falkirk.run_program import say
from recovery.store.address import StoreAddress
from recovery.store.identity import store_id
from runtime.page.address import open_page
from runtime.page.process import run_page


def serve_page(stores: Sequence[StoreAddress], port: int | None, host: str) -> None:
    """Serve until interrupted.

    Raises StoreError where something else than a store is, FalkirkError if nobody can listen.
    """
    for address in stores:
        with address.open() as store:
            store_id(store)
    title = ", ".join(os.path.basename(str(address)) or str(address) for address in stores)
    with closing(open_page(title, host, port)) as page:
        what = f"the job of {stores[0]}" if len(stores) == 1 else f"{len(stores)} jobs"
        say(f"{what}, running or not: {page.url}; Ctrl-C ends this page, and nothing else", "page")
        run_page(stores, page)
