#!/usr/bin/env bash
# Every shipped scenario of up to 8 ranks, a process per rank, but the one of 100 steps and the one that kills a process:
# as expected, and with the digest of tests/system/digests.txt. Nothing but larger meshes is skipped. The two founding cases
# on as many processes as they have ranks, too.
#   scenarios_test.sh MPIEXEC SUMONCE SOURCE_DIR WORK_DIR
set -uo pipefail

mpiexec=$1
sumonce=$2
source_dir=$3
work_dir=$4
failures=0
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
rm -rf "$work_dir"
mkdir -p "$work_dir"

# report NAME PROCESSES ARGS...: runs, and leaves the report's lines in $work_dir/NAME.json.
report() {
  local name=$1 processes=$2
  "$mpiexec" --oversubscribe -np "$processes" "$sumonce" run "${@:3}" --comm mpi --color never \
    --format console --format "json:$work_dir/$name.json" >"$work_dir/$name.out" 2>&1
  local status=$?
  ((status == 0)) || wrong "$name: status $status"
  grep -qE '^sumonce: [1-9][0-9]* passed, 0 failed' "$work_dir/$name.out" || wrong "$name: not all passed"
  grep -E '"skip_reason": "[^"]' "$work_dir/$name.json" | grep -v -e 'its mesh has' -e 'fault: UNORDERED cannot act' && wrong "$name: skipped, see above"
}

# The digest of one scenario in a report: its line follows the name's.
check_digests() {
  local name digest found checked=0
  while read -r name digest; do
    grep -qF "\"name\": \"$name\"" "$1" || continue
    grep -F -A 40 "\"name\": \"$name\"" "$1" | grep -m 1 outcome | grep -q SKIP && continue
    found=$(grep -F -A 12 "\"name\": \"$name\"" "$1" | sed -n 's/.*"digest": "\([0-9a-f]*\)".*/\1/p' | head -n 1)
    [[ $found == "$digest" ]] || wrong "$name has the digest '$found', expected $digest"
    checked=$((checked + 1))
  done <"$source_dir/tests/system/digests.txt"
  ((checked >= $2)) || wrong "$checked digests were compared, expected $2"
}

wrong() {
  failures=$((failures + 1))
  echo "$1"
}

mapfile -t files < <(find "$source_dir/scenarios" -name '*.textproto' ! -name '*_100_steps.textproto' \
  ! -name killed_rank.textproto | sort)
report all 8 "${files[@]}"
check_digests "$work_dir/all.json" 40
report founding 4 "$source_dir/scenarios/lora/row_flag_missing.textproto" "$source_dir/scenarios/gdn/gamma_flagged.textproto"
check_digests "$work_dir/founding.json" 2

# Every process's calls come to process 0, and are in one trace with the calls of a run in one process.
traced=$source_dir/scenarios/lora/row_flag_missing.textproto
"$mpiexec" --oversubscribe -np 4 "$sumonce" run "$traced" --comm mpi --format "trace:$work_dir/mpi.trace" >"$work_dir/traced.out" 2>&1 ||
  wrong "trace: status $?"
"$sumonce" run "$traced" --format "trace:$work_dir/in_process.trace" >>"$work_dir/traced.out" 2>&1
calls() { grep -o '"ph":"X".*' "$1" | grep -oE '"name":"[^"]*"|"pid":[0-9]+' | sort | uniq -c; }
[[ -n $(calls "$work_dir/mpi.trace") ]] || wrong "trace: no calls"
diff <(calls "$work_dir/in_process.trace") <(calls "$work_dir/mpi.trace") || wrong "trace: other calls than in one process"

# In company it does not run, and the others do.
"$mpiexec" --oversubscribe -np 4 "$sumonce" run "$source_dir/scenarios/transport/"{killed_rank,flipped_bit}.textproto \
  --comm mpi --color never >"$work_dir/company.out" 2>&1 || wrong "killed_rank in company: status $?"
grep -q '^SKIP  transport/killed_rank  it kills a process' "$work_dir/company.out" || wrong "killed_rank in company: runs"
grep -q '^PASS  transport/flipped_bit' "$work_dir/company.out" || wrong "killed_rank in company: the others do not run"

# A rank that gets SIGKILL takes the run with it, by name.
"$mpiexec" --oversubscribe -np 4 "$sumonce" run "$source_dir/scenarios/transport/killed_rank.textproto" --comm mpi \
  --color never >"$work_dir/killed.out" 2>&1
grep -q 'RANK_LOST' "$work_dir/killed.out" || wrong "killed_rank: no RANK_LOST"

((failures == 0)) || cat "$work_dir"/*.out
exit $((failures > 0))
