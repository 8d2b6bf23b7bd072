#!/bin/sh
# Resolve the requirements again: newest versions that pyproject.toml allows, with the hashes of every published file,
# valid on each supported Python and platform, and without any address. For maintainers; needs `uv` on the PATH.
set -eu
cd "$(dirname "$0")/.."

if ! command -v uv >/dev/null 2>&1; then
    echo "lock: uv is needed to resolve for all platforms at once. Install it with: python3 -m pip install uv" >&2
    exit 1
fi
# Nothing configured on this machine (extra indexes, folders of wheels) may find its way into the lock.
unset UV_INDEX UV_DEFAULT_INDEX UV_EXTRA_INDEX_URL UV_INDEX_URL UV_FIND_LINKS 2>/dev/null || true

resolve() {
    output=$1
    shift
    uv pip compile --quiet --no-config --upgrade --universal --python-version 3.11 --fork-strategy fewest \
        --generate-hashes --no-emit-index-url --no-annotate --no-header --output-file "$output" "$@"
}

resolve requirements/build.txt requirements/build.in
resolve requirements/dev.txt pyproject.toml --extra demo --extra connect --extra delta --extra iceberg --extra object-store --extra sql --extra dev --extra docs
# The same versions with fewer packages: what a user of the demo needs.
resolve requirements/run.txt pyproject.toml --extra demo --constraint requirements/dev.txt
