#!/usr/bin/env bash
# ./dev installs exactly what is missing, shows each command first, and says what to do where it cannot.
# A folder of stand-in programs is all that ./dev finds on its PATH; they write their arguments to a log.
#   dev_test.sh SOURCE_DIR WORK_DIR
# shellcheck disable=SC2016  # the stand-ins' scripts expand when they run
set -uo pipefail

source_dir=$1
work_dir=$2
failures=0

main() {
  missing_packages_are_installed
  nothing_missing_installs_nothing
  mpi_is_installed_when_asked_for
  a_failing_apt_get_is_reported
  another_system_gets_the_list
  an_old_cmake_is_named
  a_failing_build_is_no_verdict
  wrong_usage_is_status_4
  exit $((failures > 0))
}

missing_packages_are_installed() {
  sandbox
  stand_in dpkg-query 'case $* in *libsleef-dev | *libxxhash-dev) exit 1 ;; esac; printf installed'
  run_dev --yes run --version
  expect_status 0
  expect_log 'apt-get install --yes --no-install-recommends libsleef-dev libxxhash-dev$'
  expect_output '^\+ (sudo )?env DEBIAN_FRONTEND=noninteractive apt-get install'
  expect_log 'cmake --build .*--target sumonce$'
  expect_output '^ran: run --version$'
}

nothing_missing_installs_nothing() {
  sandbox
  run_dev run
  expect_status 0
  expect_no_log apt-get
  expect_output '^ran: run scenarios$'
}

mpi_is_installed_when_asked_for() {
  sandbox
  stand_in dpkg-query 'case $* in *libopenmpi-dev | *openmpi-bin) exit 1 ;; esac; printf installed'
  run_dev --yes run
  expect_no_log apt-get
  run_dev --yes --with mpi run
  expect_status 0
  expect_log 'apt-get install --yes --no-install-recommends libopenmpi-dev openmpi-bin$'
  expect_log 'cmake .*--preset release -DSUMONCE_WITH_MPI=ON$'
  run_dev --yes --with mpi packages
  expect_status 0
  expect_log 'apt-get install .*openmpi-bin$'
  expect_no_log 'cmake --build'
  run_dev --with pigeon run
  expect_status 4
  expect_output "--with 'pigeon': expected mpi"
}

a_failing_apt_get_is_reported() {
  sandbox
  stand_in dpkg-query 'exit 1'
  stand_in apt-get 'exit 100'
  run_dev --yes run
  expect_status 4
  expect_output 'apt-get update failed'
  expect_no_log 'cmake --build'
}

another_system_gets_the_list() {
  sandbox
  rm "$bin/dpkg-query"
  run_dev run
  expect_status 4
  expect_output 'neither Debian nor Ubuntu.*libabsl-dev.*nlohmann-json3-dev'
  run_dev --no-install run
  expect_status 0
}

an_old_cmake_is_named() {
  sandbox
  stand_in cmake 'echo "cmake version 3.22.1"'
  run_dev run
  expect_status 4
  expect_output 'cmake 3.22.1 is too old: 3.25'
}

a_failing_build_is_no_verdict() {
  sandbox
  stand_in cmake 'case $1 in --version) echo "cmake version 3.25.1" ;; --build) exit 1 ;; esac'
  run_dev run
  expect_status 3
  expect_output "building 'release' failed"
}

wrong_usage_is_status_4() {
  sandbox
  run_dev rum
  expect_status 4
  expect_output "unknown verb 'rum'"
  run_dev sanitize msan
  expect_status 4
  expect_output "sanitize 'msan': expected asan or tsan"
}

# A copy of ./dev, stand-ins for what changes the system or takes long, and links to the small tools it uses.
sandbox() {
  case_name=${FUNCNAME[1]}
  case_dir=$work_dir/$case_name
  bin=$case_dir/bin
  rm -rf "$case_dir"
  mkdir -p "$bin" "$case_dir/build/release"
  cp "$source_dir/dev" "$source_dir/CMakePresets.json" "$case_dir"
  local tool
  for tool in bash env dirname nproc sed sort head cat; do ln -s "$(command -v "$tool")" "$bin/$tool"; done
  for tool in ninja g++ ccache apt-get; do stand_in "$tool" ''; done
  stand_in sudo '"$@"'
  stand_in dpkg-query 'printf installed'
  stand_in cmake '[[ $1 != --version ]] || echo "cmake version 3.25.1"'
  printf '#!/bin/bash\necho "ran: $*"\n' >"$case_dir/build/release/sumonce"
  chmod +x "$case_dir/build/release/sumonce"
}

# stand_in NAME SCRIPT
stand_in() {
  printf '#!/bin/bash\necho "%s $*" >>"%s/log"\n%s\n' "$1" "$case_dir" "$2" >"$bin/$1"
  chmod +x "$bin/$1"
}

run_dev() {
  : >"$case_dir/log"
  output=$(PATH=$bin "$case_dir/dev" "$@" 2>&1 </dev/null)
  status=$?
}

expect_status() { ((status == $1)) || wrong "status $status, expected $1"; }
expect_output() { grep -qE -- "$1" <<<"$output" || wrong "no '$1' in the output"; }
expect_log() { grep -qE -- "$1" "$case_dir/log" || wrong "no call '$1'"; }
expect_no_log() { ! grep -qE -- "$1" "$case_dir/log" || wrong "a call '$1'"; }

wrong() {
  failures=$((failures + 1))
  printf '%s: %s\noutput:\n%s\ncalls:\n%s\n' "$case_name" "$1" "$output" "$(cat "$case_dir/log")"
}

main
