# Sourced by ./podium and ./test, which set `root`: keeps the clone's own virtual environment as
# the lock files say. Needs nothing but Python 3.11 or later; uses uv to install where there is
# one. Python is always run with -P: the directory that it is called in is not the program's.

python="$root/.venv/bin/python"
busy="$root/.venv.lock"

# Not in a lock file: which build of it fits, and what comes with that (gigabytes for graphics
# cards, or nothing), is for the machine's own package index to say.
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

# Only one process at a time sets up. The lock is a link whose target is the number of its holder:
# made in one step, so that it never names nobody. One that a dead process left is taken over.
take_lock() {
    waiting=
    failures=0
    until ln -s "$$" "$busy" 2>/dev/null; do
        holder=$(readlink -- "$busy" || true)
        if [ -z "$holder" ]; then
            failures=$((failures + 1))
            if [ "$failures" -gt 20 ]; then
                say "cannot write to $root, where the virtual environment is to be"
                exit 2
            fi
            continue
        fi
        if ! kill -0 "$holder" 2>/dev/null; then
            # Moved aside in one step, so that of several that find it stale one gets it; and
            # put back where another had been quicker and it was no longer the stale one.
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
    # A clone that was moved takes its environment's paths with it, so that one is made anew.
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

# Always with pip: uv does not look where pip was told to look, and would fetch another build.
install_first() {
    "$python" -P -c 'import pip' 2>/dev/null || uv pip install --quiet --python "$python" pip >&2
    say "installing $1 (once; a minute or more)"
    "$python" -P -m pip install -qq --disable-pip-version-check "$1" >&2
}

# prepare LOCK [FIRST]: have .venv hold what the lock file lists, and FIRST before that; at once
# when nothing has changed. False where FIRST cannot be had.
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
