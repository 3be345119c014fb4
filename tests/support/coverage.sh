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
  # How they bear a lack of threads only root can show, by becoming a user who has none; others get the rest.
  [ "$(id -u)" -eq 0 ] || printf '%s\n' 'src/elector/run.rs 88' 'src/store/postgres/pool.rs 88' \
    'src/store/worker.rs 88'
  cat <<'TABLE'
src/time.rs 98
src/term.rs 98
src/config 98
src/election/ 98
src/elector/ 98
src/guard.rs 98
src/gate.rs 98
src/commit.rs 98
src/store/memory 98
src/store/postgres/ 98
src/store/sqlite 98
src/store/worker.rs 98
TABLE
}

report() {
  local programs=() program objects=()
  mapfile -t programs < <(sort -u "$TENURE_COVERAGE/programs")
  for program in "${programs[@]}"; do [ -x "$program" ] && objects+=(--object "$program"); done
  # A process that was killed while it wrote leaves a profile that is none; what it covered counts as missed.
  llvm-profdata-19 merge --sparse --failure-mode=all -o "$TENURE_COVERAGE/all.profdata" "$TENURE_COVERAGE"/profiles/*.profraw || return
  # Line by line, over all instances of what is generic: the sums of `llvm-cov report` take the best one only.
  llvm-cov-19 export --format=lcov --skip-functions --instr-profile "$TENURE_COVERAGE/all.profdata" "${objects[@]:1}" src |
    awk -F'[:,]' -v root="$(pwd -P)/" '
      /^SF:/ { file = substr($0, 4); if (index(file, root) == 1) file = substr(file, length(root) + 1) }
      /^DA:/ && file !~ /tests\.rs$|\/tests\// { print file, $2, $3 }' >"$TENURE_COVERAGE/lines"
  floors | awk -v lines="$TENURE_COVERAGE/lines" '
    { room[NR] = $1; floor[NR] = $2; rooms = NR }
    END {
      while ((getline line < lines) > 0) {
        split(line, part, " "); file = part[1]
        if (!(file in all)) order[++files] = file
        all[file]++
        if (part[3] == 0) { missed[file]++; where[file] = where[file] " " part[2] }
      }
      for (i = 1; i <= files; i++) {
        file = order[i]
        for (r = 1; r <= rooms; r++) {
          if (index(file, room[r]) != 1) continue
          share = 100 * (all[file] - missed[file]) / all[file]
          bad = share < floor[r]
          printf "%s%-36s %4d of %4d lines, %6.2f %%%s\n", bad ? "BELOW " floor[r] " % " : "", file,
            all[file] - missed[file], all[file], share, where[file] ? "; not" where[file] : ""
          failed += bad; passed += !bad
          break
        }
      }
      if (!(passed + failed)) { print "no file was measured"; failed++ }
      printf "test result: %s. %d passed; %d failed;\n", failed ? "FAILED" : "ok", passed, failed
      exit failed > 0
    }'
}

[ "${1:-}" != report ] || report
