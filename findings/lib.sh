# For the scripts of this folder: `python_with torch==2.14.1` prints a Python that has these packages and no product.
# It makes a virtual environment in a temporary folder, which $FINDINGS_PYTHON spares: a Python that has them already.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python_with() {
    local python=${FINDINGS_PYTHON:-}
    if [ -z "$python" ]; then
        python=$work/venv/bin/python
        python3 -m venv "$work/venv" >&2
        "$python" -m pip install --quiet "$@" >&2
    fi
    local pin
    for pin in "$@"; do
        "$python" - "${pin%%==*}" "${pin##*==}" <<'PYTHON'
import sys
from importlib.metadata import version
name, wanted = sys.argv[1:]
found = version(name).partition("+")[0]
sys.exit(f"{name} is {found}, and this is about {wanted}." if found != wanted else 0)
PYTHON
    done
    echo "$python"
}
