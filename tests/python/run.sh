#!/bin/sh
# run.sh <folder of the package> ..: test_python.py with the first Python that has numpy, else with any,
# which then skips what needs it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
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
PYTHONPATH=$1 PYTHONDONTWRITEBYTECODE=1 exec "$found" "$here/test_python.py" "$@"
