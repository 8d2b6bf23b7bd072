"""S3-compatible server on 127.0.0.1 whose conditional writes are atomic, as those of a bucket are."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

_one_at_a_time = threading.Lock()
_application = DomainDispatcherApplication(create_backend_app)


def _serve(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    # Moto looks at a condition, and then writes: two threads could both find that there is no object yet.
    with _one_at_a_time:
        answer: Iterable[bytes] = _application(environ, start_response)
        return answer


if __name__ == "__main__":
    run_simple("127.0.0.1", int(sys.argv[1]), _serve, threaded=True, request_handler=MotoRequestHandler)
