#!/usr/bin/env bash
# Every tensor of every golden file is read by some test, or waits for what tests/data/golden/waiting.txt says.
# Arguments: golden_walk, the folder of the files, a folder to work in, the test programs.
set -euo pipefail

walk=$1 golden=$2 work=$3
shift 3
rm -rf "$work"
mkdir -p "$work"
export SUMONCE_GOLDEN_LOG=$work/read.txt
for program in "$@"; do
  "$program" --gtest_brief=1 '--gtest_filter=*Golden*' >"$work/$(basename "$program").log" 2>&1 ||
    { cat "$work/$(basename "$program").log" && exit 1; }
done
exec "$walk" "$golden" "$golden/waiting.txt" "$work/read.txt"
