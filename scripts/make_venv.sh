#!/bin/sh
# make_venv.sh FOLDER: a virtual environment with axiomrm (editable) and what the demo and the tests use.
set -eu
venv=$1

if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    # Version managers leave stubs of Pythons that are not installed: ask each what it is.
    for python in python3.11 python3.12 python3.13 python3 none; do
        "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break
    done
    if [ "$python" = none ]; then
        echo "axiomrm needs Python 3.11 or newer; none was found on PATH" >&2
        exit 2
    fi
    echo "setup: $venv with $("$python" --version)"
    "$python" -m venv "$venv"
fi

pip="$venv/bin/python -m pip --disable-pip-version-check"
# torch first and on its own: a looser range in the same command takes a CUDA build of several GB.
echo "setup: torch"
$pip install --quiet "$(grep '^torch==' constraints.txt)"
echo "setup: axiomrm with the extras train, cache, trackers, notebooks, dev, smt"
$pip install --quiet -c constraints.txt -e '.[train,cache,trackers,notebooks,dev,smt]'
echo "setup: packages whose formats we read and write, without their dependencies, beside our own"
$pip install --quiet --no-deps --upgrade --target "$venv/peers" \
    autorubric==1.6.1 verifiers==0.4.0 deepeval==4.3.1 prometheus-eval==0.1.20 ||
    echo "setup: not all of them could be installed; their tests will say so and skip"
echo "setup: done"
