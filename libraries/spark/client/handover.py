"""Micro-batch handover from a Spark Connect server to the client, by files.

The server writes rows; the client, which knows what has been read and makes batches durable, publishes them. Between them are
empty files in a folder of the job's: the function asks whether a micro-batch may come, then says that its rows are
written, and returns when they are published. When that folder is gone, the client is, too, or nobody
wants more: then the function raises.

    FOLDER/.handover-<unique>/<number>.asks  .goes  .wrote  .done        and the rows, in <number>.rows/
"""

from __future__ import annotations

import shutil
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from libraries.spark.client.publisher import Publisher

_LOOK_SECONDS = 0.02


class Handover:
    """Handover folder for one attempt at a query; removes those of earlier attempts."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        for left in publisher.folder.glob(".handover-*"):
            shutil.rmtree(left, ignore_errors=True)
        self._folder = publisher.folder / f".handover-{uuid.uuid4().hex}"
        self._folder.mkdir()
        self._served: set[str] = set()

    @property
    def function(self) -> Callable[[DataFrame, int], None]:
        """Function for the server to call with each micro-batch."""
        return on_the_server(str(self._folder), self._publisher.options, self._publisher.rows)

    def __enter__(self) -> Handover:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _serve(self) -> None:
        try:
            while self._folder.is_dir() and not self._publisher.stopped:
                for path in self._folder.glob("*.[aw]*"):
                    if path.name not in self._served:
                        self._served.add(path.name)
                        self._answer(int(path.stem), path.suffix)
                time.sleep(_LOOK_SECONDS)
        except Exception as error:
            self._publisher.error = error
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answer(self, number: int, request: str) -> None:
        answer = ".done"
        if request == ".wrote":
            self._publisher.publish(self._folder / f"{number}.rows", number)
        elif self._publisher.turn(number):
            answer = ".goes"
        with suppress(FileNotFoundError):  # the folder was removed meanwhile
            (self._folder / f"{number}{answer}").touch()


def on_the_server(folder: str, options: dict[str, str], rows: int) -> Callable[[Any, int], None]:
    """Self-contained function for the server, called by Spark with each micro-batch.

    falkirk need not be there.
    """

    def hand_over(frame: Any, number: int) -> None:
        import os
        import time

        def say(what: str) -> None:
            open(f"{folder}/{number}.{what}", "w").close()

        def wait(*answers: str) -> str:
            while True:
                for each in answers:
                    if os.path.exists(f"{folder}/{number}.{each}"):
                        return each
                if not os.path.isdir(folder):
                    raise RuntimeError("nobody waits for this batch any more")
                time.sleep(0.02)

        say("asks")
        if wait("goes", "done") == "goes":
            frame.write.options(**options).option("maxRecordsPerFile", rows).parquet(f"{folder}/{number}.rows")
            say("wrote")
            wait("done")

    return hand_over
