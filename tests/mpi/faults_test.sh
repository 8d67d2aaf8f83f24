#!/usr/bin/env bash
# Whatever happens to a process, the run ends soon, process 0 says which rank it was, and the exit status is not 0.
#   faults_test.sh MPIEXEC SUMONCE FAULT_PROGRAM SOURCE_DIR WORK_DIR
set -uo pipefail

mpiexec=$1
sumonce=$2
fault_program=$3
source_dir=$4
work_dir=$5
failures=0
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
readonly long_scenario=$work_dir/long.textproto  # its first run lasts longer than any case here
readonly short_scenario=$source_dir/scenarios/lora/row_flag_missing.textproto

main() {
  rm -rf "$work_dir"
  mkdir -p "$work_dir"
  sed 's/^steps: 100$/steps: 5000/' "$source_dir/scenarios/lora/pr_173_100_steps.textproto" >"$long_scenario"
  the_program_starts_without_mpi
  a_killed_rank_is_named
  a_killed_leader_is_named
  a_stopped_rank_is_named
  a_stopped_leader_is_named
  a_spinning_rank_is_named
  a_rank_that_spins_beside_a_native_reduction_is_named
  a_rank_that_vanishes_is_named
  a_rank_that_crashes_is_named
  a_slow_leader_is_waited_for
  another_file_is_named
  another_command_line_is_named
  too_few_processes_are_said
  a_mistake_is_printed_once
  native_sums_stay_within_the_bound
  exit $((failures > 0))
}

the_program_starts_without_mpi() {
  output=$(ldd "$sumonce")
  grep -q libmpi <<<"$output" && wrong "the program itself needs libmpi"
}

a_killed_rank_is_named() {
  signal_during KILL 3
  expect_status 137
  expect_output "^sumonce: error: MPI rank 3 \(host .*, pid $victim\) ended before the others were done"
  expect_output 'RANK_LOST'
  expect_seconds 5
}

a_killed_leader_is_named() {
  signal_during KILL 0
  expect_status 137
  expect_output '^sumonce: error: MPI rank 0 \(host .*\) ended before the others were done'
  expect_seconds 5
}

a_stopped_rank_is_named() {
  signal_during STOP 3 --timeout 3
  expect_status 1
  expect_output "^sumonce: error: MPI rank 3 \(host .*, pid $victim\) has been silent for 3 s"
  expect_output 'sumonce: 0 passed, 1 failed, 1 skipped'
  expect_once '^sumonce: error: '
  expect_seconds 12
}

a_stopped_leader_is_named() {
  signal_during STOP 0 --timeout 3
  expect_status 1
  expect_output '^sumonce: error: MPI rank 0 \(host .*\) has been silent for 3 s'
  expect_seconds 12
}

a_spinning_rank_is_named() {
  launch 3 "$fault_program" spin
  expect_status 1
  expect_output 'UNAVAILABLE: rank 1, MPI rank 1 \(host .*, pid [0-9]+\), has neither come to a call nor ended for 3 s'
  expect_output 'rank 0 waits for AllReduce SUM of 1000 float64 \(gradients\) on world \[0 1 2\]: rank 1 missing'
  expect_seconds 15
}

a_rank_that_spins_beside_a_native_reduction_is_named() {
  launch 3 "$fault_program" spin_in_native
  expect_status 1
  expect_output 'rank 1, MPI rank 1 \(host .*, pid [0-9]+\), has neither come to a call nor ended for 3 s'
  expect_seconds 15
}

a_rank_that_vanishes_is_named() {
  launch 3 "$fault_program" vanish
  expect_output 'sumonce: error: MPI rank 1 \(host .*, pid [0-9]+\) ended before the others were done'
  ((status != 0)) || wrong "status 0"
  expect_seconds 5
}

a_rank_that_crashes_is_named() {
  launch 3 "$fault_program" crash
  expect_output 'sumonce: error: MPI rank 1 \(host .*, pid [0-9]+\) ended before the others were done'
  ((status != 0)) || wrong "status 0"
  expect_seconds 5
}

a_slow_leader_is_waited_for() {
  launch 3 "$fault_program" slow_leader
  expect_status 0
  expect_output '^OK$'
}

another_file_is_named() {
  mkdir -p "$work_dir/a/area" "$work_dir/b/area"
  cp "$short_scenario" "$work_dir/a/area/one.textproto"
  sed 's/^data {.*/data { sequence: 16 micro_batch: 1 microbatches: 1 }/' "$short_scenario" >"$work_dir/b/area/one.textproto"
  cmp -s "$work_dir/a/area/one.textproto" "$work_dir/b/area/one.textproto" && wrong "the files are equal"
  launch 3 "$sumonce" run "$work_dir/a" --comm mpi : -np 1 "$sumonce" run "$work_dir/b" --comm mpi
  expect_status 4
  expect_output '^sumonce: error: MPI rank 3 \(host .*, pid [0-9]+\) reads other contents of .*one or of a file that it names'
}

another_command_line_is_named() {
  launch 2 "$sumonce" run "$short_scenario" --comm mpi : -np 1 "$sumonce" run "$short_scenario" --seed 9 --comm mpi
  expect_status 4
  expect_output '^sumonce: error: MPI rank 2 .* reads other contents'
}

too_few_processes_are_said() {
  launch 2 "$sumonce" run "$short_scenario" --comm mpi
  expect_status 77
  expect_output 'its mesh has 4 ranks, and there are 2 processes; start as many: mpirun -np 4 .* run .*--comm mpi'
}

a_mistake_is_printed_once() {
  launch 3 "$sumonce" run "$work_dir/none" --comm mpi
  expect_status 4
  expect_once "$work_dir/none"
}

native_sums_stay_within_the_bound() {
  launch 4 "$sumonce" run "$source_dir/scenarios/lora" "$source_dir/scenarios/gdn" --filter '*flag*' --native-sums --comm mpi
  expect_status 0
  expect_output '^sumonce: [1-9][0-9]* passed, 0 failed'
}

# signal_during SIGNAL PROCESS [ARGS]: 8 processes of a long run; the signal comes when their first step is under way.
signal_during() {
  local signal=$1 process=$2 launcher
  case_name=${FUNCNAME[1]}
  "$mpiexec" --oversubscribe -np 8 "$sumonce" run "$long_scenario" --comm mpi --color never "${@:3}" \
    >"$work_dir/output" 2>&1 &
  launcher=$!
  victim=$(pid_of_rank "$launcher" "$process")
  sleep 1.5
  SECONDS=0
  kill "-$signal" "$victim"
  wait "$launcher"
  status=$?
  seconds=$SECONDS
  output=$(cat "$work_dir/output")
}

# Open MPI says in its environment which rank a process is.
pid_of_rank() {
  local pid tries
  for ((tries = 0; tries < 100; tries++)); do
    for pid in $(pgrep -P "$1"); do
      if tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx "OMPI_COMM_WORLD_RANK=$2"; then
        echo "$pid"
        return
      fi
    done
    sleep 0.1
  done
}

launch() {
  case_name=${FUNCNAME[1]}
  SECONDS=0
  output=$("$mpiexec" --oversubscribe -np "$@" 2>&1)
  status=$?
  seconds=$SECONDS
}

expect_status() { ((status == $1)) || wrong "status $status, expected $1"; }
expect_output() { grep -qE -- "$1" <<<"$output" || wrong "no '$1' in the output"; }
expect_once() {
  local times
  times=$(grep -cE -- "$1" <<<"$output")
  ((times == 1)) || wrong "$times lines with '$1', expected 1"
}
# Far above what it takes: it says "does not hang".
expect_seconds() { ((seconds <= $1)) || wrong "$seconds s, expected at most $1"; }

wrong() {
  failures=$((failures + 1))
  printf '%s: %s\noutput:\n%s\n' "$case_name" "$1" "$output"
}

main
