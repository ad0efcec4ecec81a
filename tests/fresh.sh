#!/usr/bin/env bash
# Try both commands of the README in a new minimal Debian, with git, make, python3-venv and nothing else: `make
# fresh`. A user without rights is first (tests of missing programs are skipped), then root (who installs
# them), then that user again: ACCOUNTS names others, as "root". Each has a clone of HEAD; ARGS are those of `make test`.
# Proxies, package indexes and certificate authorities are this machine's: variables, pip.conf, npmrc, apt's sources
# and options.
set -euo pipefail
cd "$(dirname "$0")/.."

suite=bookworm
home=/home/newcomer

if [ $# -eq 0 ]; then
    command -v mmdebstrap >/dev/null || { echo "this needs mmdebstrap: apt-get install mmdebstrap" >&2; exit 1; }
    options=$(mktemp)
    trap 'rm -f "$options"' EXIT
    apt-config dump | grep -E '^Acquire::(https?|Retries|Check-)' >"$options" || true
    sources=$(grep -ls "$suite" /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list | head -n 1 || true)
    # Anybody may be root in a namespace of their own, where newuidmap lends them accounts.
    namespace=$([ "$(id -u)" -eq 0 ] || echo unshare --map-auto --map-root-user --mount)
    $namespace mmdebstrap --mode=root --variant=minbase --include=git,make,python3-venv,ca-certificates \
        --aptopt="$options" --customize-hook='tests/fresh.sh "$1"' "$suite" /dev/null ${sources:+"$sources"}
    exit
fi

root=$1
mapfile -t environment < <(env | grep -iE '^(pip_|npm_config_|ssl_cert|node_extra_ca|(https?|no|all)_proxy=)' || true)

run() { # ACCOUNT HOME COMMAND: in the new Debian
    chroot --userspec="$1" "$root" env --ignore-environment HOME="$2" USER="$1" LANG=C.UTF-8 ARGS="${ARGS:-}" \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${environment[@]}" bash -euc "cd; $3"
}

copy() { # FILE [PLACE]: if this machine has it
    [ ! -e "$1" ] || install -D --mode=644 "$1" "$root${2:-$1}"
}

try() { # ACCOUNT HOME
    echo "== make up, as $1"
    # Job control gives it a process group, to which a terminal's Ctrl-C is sent.
    run "$1" "$2" 'set -m; cd tbhub; make up ARGS="--demo --port 0" >../up.log 2>&1 & cd
        until grep -q "^the demo is at" up.log; do kill -0 $! || { cat up.log; exit 1; }; sleep 0.2; done
        kill -INT -- -$!; wait $! || [ $? -eq 130 ] || { cat up.log; exit 1; }
        cat up.log'
    echo "== make test, as $1"
    run "$1" "$2" 'cd tbhub; make test ARGS="$ARGS"'
}

copy /etc/ssl/certs/ca-certificates.crt
copy /etc/pip.conf
copy ~/.config/pip/pip.conf /etc/xdg/pip/pip.conf
chroot "$root" useradd --create-home newcomer
for place in /root "$home"; do
    copy ~/.npmrc "$place/.npmrc"
    git clone --quiet . "$root$place/tbhub"
done
chroot "$root" chown --recursive newcomer: "$home"

begin=$SECONDS
for account in ${ACCOUNTS:-newcomer root newcomer}; do
    try "$account" "$(chroot "$root" bash -c "echo ~$account")"
done
echo "== fresh: both commands worked for all, in $((SECONDS - begin)) s"
