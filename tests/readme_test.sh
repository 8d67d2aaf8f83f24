#!/usr/bin/env bash
# The scenario that README.md shows is one: `sumonce run` gives it the verdict that it expects, and changing what it
# expects makes the run fail.
#   readme_test.sh SUMONCE SOURCE_DIR WORK_DIR
set -euo pipefail

sumonce=$1
readme=$2/README.md
scenario=$3/readme.textproto

mkdir -p "$3"
awk '/^```textproto/ { inside = 1; next } /^```/ { inside = 0 } inside' "$readme" >"$scenario"
grep -q '^# proto-message: sumonce.proto.Scenario' "$scenario" || { echo "no scenario in $readme"; exit 1; }
"$sumonce" run "$scenario"

sed 's/MISSING_SUM/DOUBLE_SUM/' "$scenario" >"$3/wrong.textproto"
status=0
"$sumonce" run "$3/wrong.textproto" >"$3/wrong.log" 2>&1 || status=$?
if ((status != 1)); then
  cat "$3/wrong.log"
  echo "with a wrong expectation: status $status, expected 1"
  exit 1
fi
