"""Sail server process, a Spark Connect server without Java.

It is started by `python sail_server.py FILE`, by a Python that has `pysail`.

It writes its port into FILE when it listens, on the loopback interface, and ends with its standard input. It imports nothing of
ours: its Python may be another one, as Sail needs a version of PySpark of its own.
"""

from __future__ import annotations

import os
import sys


def main(file: str) -> int:
    """Serve until standard input ends."""
    try:
        import pyspark
        from pysail.spark import SparkConnectServer  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        print(f"Error: Sail cannot start with the Python {sys.executable}: {error}", flush=True)
        return 1
    if tuple(map(int, pyspark.__version__.split(".")[:2])) > (4, 2):
        print(
            f"Error: Sail needs PySpark 4.2 or older, and the Python {sys.executable} has {pyspark.__version__}: "
            "pip install 'pyspark-client<4.3' there, or name another Python by FALKIRK_SAIL",
            flush=True,
        )
        return 1
    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    with open(f"{file}.part", "w") as out:
        out.write(str(server.listening_address[1]))
    os.rename(f"{file}.part", file)
    sys.stdin.buffer.read()
    os._exit(0)  # whatever runs there


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
