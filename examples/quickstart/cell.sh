#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# For examples/NAME/run, which source it with $root and $name set: a folder for one cell on this machine, the processes in it, and
# their end. RUN_DIR: the folder (a new one below /tmp, which goes with the script).
# shellcheck disable=SC2034,SC2154,SC2317 # $bin is theirs, $root and $name come from them, finish is called through a trap
bin=${CELLGATE_BIN:-$root/build/bin}
dir=${RUN_DIR:-$(mktemp -d "/tmp/cellgate-$name-XXXXXX")}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
started=()

die() { echo "$name: $*" >&2; exit 1; }

finish() {
    trap - EXIT
    trap '' INT TERM HUP
    for _ in 1 2; do # a second time, as nobody waits here until the relay has ended what it carries in good order
        [ ${#started[@]} -eq 0 ] || kill "${started[@]}" 2>/dev/null || true
        sleep 0.2
    done
    wait || true
    [ -n "${RUN_DIR:-}" ] || rm -rf "$dir"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

start() { # start LOG COMMAND...: ends with this script however that ends
    local log=$1
    shift
    setsid setpriv --pdeathsig TERM -- "$@" >"$log" 2>&1 &
    started+=($!)
}

await() { # await PATTERN LOG WHAT
    until grep -qs "$1" "$2"; do
        kill -0 "${started[-1]}" 2>/dev/null || die "$3 does not start: $(tail -n 3 "$2")"
        sleep 0.05
    done
}

start_cell() { # start_cell [OPTION OF UP]...: of $dir/cellgate.json; its process is in $up
    start "$dir/up.log" "$root/examples/quickstart/up" --config "$dir/cellgate.json" --run-dir "$dir" \
        --http-port "${HTTP_PORT:-8080}" --https-port "${HTTPS_PORT:-8443}" "$@"
    up=${started[-1]}
    await '^ready$' "$dir/up.log" 'the cell'
}
