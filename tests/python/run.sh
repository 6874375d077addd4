#!/bin/sh
# run.sh SCRIPT PACKAGE ..: a script that uses the Python package, with the first Python that has numpy,
# else with any. The package lies in the folder PACKAGE; the script gets the words from there on.
set -eu
script=$1
shift
found=
for python in "${SINTER_PYTHON:-python3}" python3 /usr/bin/python3; do
    command -v "$python" >/dev/null 2>&1 || continue
    : "${found:=$python}"
    if "$python" -c 'import numpy' 2>/dev/null; then
        found=$python
        break
    fi
done
[ -n "$found" ] || { echo '1..0 # SKIP there is no Python'; exit 0; }
PYTHONPATH=$1 PYTHONDONTWRITEBYTECODE=1 exec "$found" "$script" "$@"
