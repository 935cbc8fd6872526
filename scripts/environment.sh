# Sourced by ./podium and ./test: keeps the clone's own virtual environment as the lock files say.
# Needs nothing but Python 3.11 or later; uses uv to install where there is one.

root=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
python="$root/.venv/bin/python"

say() { printf 'podium: %s\n' "$*" >&2; }

find_python() {
    for candidate in ${PODIUM_PYTHON:-} python3 python3.13 python3.12 python3.11 python; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s' "$candidate"
            return
        fi
    done
    say "needs Python 3.11 or later on the PATH, or PODIUM_PYTHON set to one"
    exit 2
}

# prepare LOCK: have .venv hold what the lock file lists; at once when nothing has changed.
prepare() {
    lock="$root/$1"
    stamp="$root/.venv/$1.installed"
    wanted="$root $(cksum <"$lock")"
    if [ -x "$python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
        return
    fi
    # A clone that was moved takes its environment's paths with it, so that one is made anew.
    if [ ! -x "$python" ] || ! grep -qxF "$root/src" "$root"/.venv/lib/python*/site-packages/podium.pth 2>/dev/null; then
        say "making a virtual environment in .venv (once)"
        base=$(find_python)
        if ! "$base" -m venv --clear "$root/.venv" >&2; then
            say "could not make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv"
            exit 2
        fi
        site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
        printf '%s\n' "$root/src" >"$site/podium.pth"
    fi
    say "installing what $1 lists (once; a minute or two)"
    if command -v uv >/dev/null 2>&1; then
        uv pip install --quiet --python "$python" --require-hashes -r "$lock" >&2
    else
        "$python" -m pip install -qq --disable-pip-version-check --require-hashes --no-deps \
            -r "$lock" >&2
    fi || {
        say "could not install the dependencies; is there a network, or a mirror set up for pip?"
        exit 2
    }
    printf '%s' "$wanted" >"$stamp"
}
