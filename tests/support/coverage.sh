# Line coverage of the core, against a floor. Sourced by tests/run; run as `coverage.sh report` it judges.
#
# The compiler counts, LLVM's own tools read. Only this workspace is instrumented, not what it depends on.

TENURE_COVERAGE=${TENURE_COVERAGE:-$PWD/${CARGO_TARGET_DIR:-target}/coverage}
case ${CARGO_TARGET_DIR:-} in /*) TENURE_COVERAGE=$CARGO_TARGET_DIR/coverage ;; esac
export TENURE_COVERAGE

start_measuring() {
  rm -rf "$TENURE_COVERAGE" && mkdir -p "$TENURE_COVERAGE/profiles" || exit 2
  printf '#!/bin/sh\nrustc=$1; shift; exec "$rustc" "$@" -C instrument-coverage\n' >"$TENURE_COVERAGE/rustc"
  chmod 755 "$TENURE_COVERAGE/rustc"
  # Some tests have children that run as another user.
  chmod 1777 "$TENURE_COVERAGE/profiles"
  export RUSTC_WORKSPACE_WRAPPER=$TENURE_COVERAGE/rustc
  export LLVM_PROFILE_FILE=$TENURE_COVERAGE/profiles/%p-%m.profraw
}

# note_programs <LOG: remembers which test programs ran.
note_programs() { sed -n 's/^ *Running .*(\(.*\))$/\1/p' >>"$TENURE_COVERAGE/programs"; }

# The share of lines, in per cent, that must be covered; the reason where it is less than the rule. What is missing
# there is named, so that nothing else hides behind it.
floors() {
  cat <<'TABLE'
src/time.rs 98
src/term.rs 98
src/config.rs 98
src/election/ 98
src/elector/ 98
src/guard.rs 98
src/store/memory 98
src/store/postgres/ 98
TABLE
}

report() {
  local programs=() program objects=()
  mapfile -t programs < <(sort -u "$TENURE_COVERAGE/programs")
  for program in "${programs[@]}"; do [ -x "$program" ] && objects+=(--object "$program"); done
  llvm-profdata-19 merge --sparse -o "$TENURE_COVERAGE/all.profdata" "$TENURE_COVERAGE"/profiles/*.profraw || return
  llvm-cov-19 report --instr-profile "$TENURE_COVERAGE/all.profdata" "${objects[@]:1}" src |
    awk '$1 ~ /\.rs$/ && $1 !~ /tests?(_|\/|\.rs)|_tests/ { print $1, $8, $9 }' >"$TENURE_COVERAGE/lines"
  floors | awk -v lines="$TENURE_COVERAGE/lines" '
    { room[NR] = $1; floor[NR] = $2; rooms = NR }
    END {
      while ((getline line < lines) > 0) {
        split(line, part, " ")
        for (r = 1; r <= rooms; r++) {
          if (index(part[1], substr(room[r], 5)) == 1 || index(part[1], room[r]) == 1) {
            all = part[2]; missed = part[3]; files++
            share = all ? 100 * (all - missed) / all : 100
            bad = share < floor[r]
            printf "%s%-40s %4d of %4d lines, %6.2f %%\n", bad ? "BELOW " floor[r] " % " : "", part[1], all - missed, all, share
            failed += bad; passed += !bad
            break
          }
        }
      }
      if (!files) { print "no file was measured"; failed++ }
      printf "test result: %s. %d passed; %d failed;\n", failed ? "FAILED" : "ok", passed, failed
      exit failed > 0
    }'
}

[ "${1:-}" != report ] || report
