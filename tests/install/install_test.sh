#!/usr/bin/env bash
# The package as installed, moved elsewhere, serves a project of somebody else's; the program finds its scenarios.
#   install_test.sh BUILD_DIR SOURCE_DIR WORK_DIR
set -euo pipefail

build_dir=$1
source_dir=$2
work_dir=$3

rm -rf "$work_dir"
mkdir -p "$work_dir"
cmake --install "$build_dir" --prefix "$work_dir/first" >"$work_dir/install.log"
mv "$work_dir/first" "$work_dir/prefix"

"$work_dir/prefix/bin/sumonce" run gdn/gamma_flagged | tee "$work_dir/run.out"
grep -q DOUBLE_SUM "$work_dir/run.out"

cmake -S "$source_dir/tests/install/consumer" -B "$work_dir/consumer" -G Ninja -DCMAKE_PREFIX_PATH="$work_dir/prefix"
cmake --build "$work_dir/consumer"
"$work_dir/consumer/consumer" "$work_dir/prefix/share/sumonce/scenarios/gdn/gamma_flagged.textproto" |
  tee "$work_dir/consumer.out"
# The scenario as written has findings, its cured twin has none.
grep -q 'consumer/scenario.*: [1-9][0-9]* findings' "$work_dir/consumer.out"
grep -q 'consumer/scenario.*: 0 findings' "$work_dir/consumer.out"
