# Sourced by ./podium and ./test, which set `root`: installs the lock files into .venv of the clone.
# Needs only Python 3.11 or later; installs with uv if it is present. Python always runs with -P, so
# that it imports nothing from the current directory.

python="$root/.venv/bin/python"
busy="$root/.venv.lock"

# Not in a lock file: the machine's package index decides which build fits (CPU or CUDA).
torch="torch==2.13.0"

say() { printf 'podium: %s\n' "$*" >&2; }

is_recent() { "$1" -P -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    if [ -n "${PODIUM_PYTHON:-}" ]; then
        if ! is_recent "$PODIUM_PYTHON"; then
            say "PODIUM_PYTHON is '$PODIUM_PYTHON', which does not run as Python 3.11 or later"
            return 1
        fi
        printf '%s' "$PODIUM_PYTHON"
        return
    fi
    for candidate in python3 python3.14 python3.13 python3.12 python3.11 python; do
        if is_recent "$candidate"; then
            printf '%s' "$candidate"
            return
        fi
    done
    say "needs Python 3.11 or later on the PATH, or PODIUM_PYTHON set to one"
    return 1
}

# Only one process at a time sets up. The lock is a symbolic link to the holder's process id, so it
# is created atomically with its owner. A lock of a dead process is taken over.
take_lock() {
    waiting=
    failures=0
    until ln -s "$$" "$busy" 2>/dev/null; do
        holder=$(readlink -- "$busy" || true)
        if [ -z "$holder" ]; then
            failures=$((failures + 1))
            if [ "$failures" -gt 20 ]; then
                say "cannot write to $root, where the virtual environment belongs"
                exit 2
            fi
            continue
        fi
        if ! kill -0 "$holder" 2>/dev/null; then
            # Rename the stale lock atomically, so that only one waiter gets it; put it back if
            # another process had already replaced it.
            mv -- "$busy" "$busy.$$" 2>/dev/null || continue
            moved=$(readlink -- "$busy.$$")
            rm -f -- "$busy.$$"
            [ "$moved" = "$holder" ] || ln -s "$moved" "$busy"
            continue
        fi
        [ -n "$waiting" ] || say "waiting for process $holder, which is setting up (its lock is $busy)"
        waiting=yes
        sleep 1
    done
    trap 'rm -f -- "$busy"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
}

release_lock() {
    rm -f -- "$busy"
    trap - EXIT INT TERM HUP
}

make_environment() {
    say "making a virtual environment in .venv (once)"
    base=$(find_python) || exit 2
    if "$base" -P -c 'import ensurepip, venv' 2>/dev/null; then
        "$base" -P -m venv --clear "$root/.venv" >&2
    elif command -v uv >/dev/null 2>&1; then
        rm -rf -- "$root/.venv"
        uv venv --quiet --no-project --python "$base" "$root/.venv" >&2
    else
        false
    fi || {
        say "could not make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv"
        exit 2
    }
    site=$("$python" -P -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    printf '%s\n' "$root/src" "$root/lab" "$root" >"$site/podium.pth"
}

install_lock_file() {
    # The environment of a clone that was moved has wrong paths: make a new one.
    if [ ! -x "$python" ] || ! grep -qxF "$root/lab" "$root"/.venv/lib/python*/site-packages/podium.pth 2>/dev/null; then
        make_environment
    fi
    say "installing what $1 lists (once; a minute or two)"
    if command -v uv >/dev/null 2>&1; then
        uv pip install --quiet --python "$python" --require-hashes --no-deps -r "$root/$1" >&2
    else
        "$python" -P -m pip install -qq --disable-pip-version-check --require-hashes --no-deps \
            -r "$root/$1" >&2
    fi || {
        say "could not install the dependencies; is there a network, or a mirror set up for pip?"
        exit 2
    }
}

is_installed() { [ -x "$python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; }

# Always with pip: uv ignores pip's configured index, and would fetch another build.
install_first() {
    "$python" -P -c 'import pip' 2>/dev/null || uv pip install --quiet --python "$python" pip >&2
    say "installing $1 (once; a minute or more)"
    "$python" -P -m pip install -qq --disable-pip-version-check "$1" >&2
}

# prepare LOCK [FIRST]: install FIRST and then the lock file into .venv; do nothing if unchanged.
# Fails if FIRST cannot be installed.
prepare() {
    stamp="$root/.venv/$1.installed"
    wanted="$root ${2:+$2 }$(cksum <"$root/$1")"
    if is_installed; then
        return
    fi
    take_lock
    if ! is_installed; then
        if [ -n "${2:-}" ] && ! install_first "$2"; then
            release_lock
            return 1
        fi
        install_lock_file "$1"
        printf '%s' "$wanted" >"$stamp"
    fi
    release_lock
}
