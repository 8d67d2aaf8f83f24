#!/usr/bin/env bash
# The program end to end, as a process: what it prints about the founding cases, its exit statuses, its replay line, and
# what it says of bad input.
#   cli_test.sh SUMONCE SOURCE_DIR WORK_DIR
set -uo pipefail

sumonce=$1
source=$2
work=$3
mistakes=0

main() {
  rm -rf "$work"
  mkdir -p "$work"
  cd "$source" || exit 1
  founding_cases
  costs
  configs
  chain
  machine_readable
  replay
  sizes
  own_jobs
  adapters_and_files
  bad_input
  bad_output
  if ((mistakes > 0)); then
    echo "$mistakes mistakes"
    exit 1
  fi
}

# expect STATUS WHAT COMMAND...: runs it; stdout and stderr are $work/out and $work/err.
expect() {
  local status=$1 what=$2 actual=0
  shift 2
  "$@" >"$work/out" 2>"$work/err" || actual=$?
  ((actual == status)) || complain "$what: status $actual, expected $status"
}

# says FILE WHAT TEXT: the last command wrote it.
says() {
  grep -qF -- "$3" "$work/$1" || complain "$2: std$1 lacks '$3'"
}

complain() {
  echo "MISTAKE $1"
  sed 's/^/  out: /' "$work/out" | head -n 40
  sed 's/^/  err: /' "$work/err" | head -n 20
  mistakes=$((mistakes + 1))
}

# What a collective costs, in a table whose every row is verified, and what a cure does.
costs() {
  expect 0 bench "$sumonce" bench --ranks 2 --max 64K --repeats 3 --predict 1024 --model-out "$work/model.json"
  says out bench "AllReduce on in_process threads, 2 ranks; median of 3"
  says out bench "#wrong"
  says out bench "predicted for 1024 ranks"
  expect 4 "model there" "$sumonce" bench --ranks 2 --max 4K --repeats 3 --model-out "$work/model.json"
  says err "model there" "--force"
  expect 0 cost "$sumonce" run lora/row_flag_missing --cost-model "$work/model.json" --cost-ranks 1024
  says out cost "cost: 1 call and 256 B a step more"
  echo '{}' >"$work/no_model.json"
  expect 4 "no model" "$sumonce" run lora/row_flag_missing --cost-model "$work/no_model.json"
  says err "no model" "no_model.json: \"sumonce_cost_model\" is missing; expected a cost model of sumonce bench"
  echo 'text' >"$work/no_model.json"
  expect 4 "no model" "$sumonce" run lora/row_flag_missing --cost-model "$work/no_model.json"
  says err "no model" "no_model.json: byte 2: no JSON; expected a cost model"
  sed 's/"residual": [^,]*/"residual": "x"/' "$work/model.json" >"$work/no_model.json"
  expect 4 "no model" "$sumonce" run lora/row_flag_missing --cost-model "$work/no_model.json"
  says err "no model" "\"residual\": string is of another kind"
  expect 0 "cost asked for by its ranks" "$sumonce" run lora/row_flag_missing --cost-ranks 1024
  says out "cost asked for by its ranks" "cost: 1 call and 256 B a step more"
  expect 4 "nodes" "$sumonce" run lora/row_flag_missing --cost-ranks 8 --node-ranks 3
  says err "nodes" "--node-ranks 3: 8 ranks do not fill nodes of 3"
  expect 4 "nodes" "$sumonce" bench --max 4K --repeats 3 --predict 12,13 --node-ranks 4
  says err "nodes" "--node-ranks 4: 13 ranks do not fill nodes of 4"
  expect 4 "ranks of a bench" "$sumonce" bench --max 4K --comm fake_nccl_tcp --ranks 16
  says err "ranks of a bench" "fake_nccl_tcp can run 8 ranks here, and 16 are asked for"
  expect 4 "no size" "$sumonce" bench --max 4X
  says err "no size" "'4X': expected 1 byte to 64G"
}

chain() {
  local gamma=decoder.layers.0.self_attention.in_proj.layer_norm_weight
  expect 0 chain "$sumonce" prove gdn/gamma_flagged --explain $gamma
  says out chain "decoder.layers.0.self_attention.in_proj/Linear#0 backward: tp: P(k)"
  says out chain "decoder.layers.0.self_attention.in_proj/Copy#0 backward: tp: E"
  says out chain "finalizer tensor_parallel: tp: E, times tp"
  expect 4 "chain of nothing" "$sumonce" prove gdn/gamma_flagged --explain ${gamma}s
  says err "chain of nothing" "did you mean '$gamma'?"
}

configs() {
  mkdir -p "$work/model"
  cat >"$work/model/config.json" <<'EOF'
{"model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 2, "num_attention_heads": 16, "num_key_value_heads": 8,
 "head_dim": 128, "intermediate_size": 3072, "vocab_size": 151936, "hidden_act": "silu"}
EOF
  echo '{"r": 8, "target_modules": ["q_proj", "o_proj"]}' >"$work/model/adapter_config.json"
  expect 0 config "$sumonce" prove "$work/model" --adapter "$work/model" --tp 2,4 --scenario-out "$work/model.textproto"
  says out config "PASS  model[tp=4]  tp=4 dp=2"
  says out config "8 parameters RIGHT, for every size of the axes"
  says err config "note: the vocabulary of 151936 is padded to 152064"
  expect 0 "config as a scenario" "$sumonce" prove "$work/model.textproto" --at tp=8
  says out "config as a scenario" "8 parameters RIGHT"
  echo '{"model_type": "qwen3", "num_experts": 4}' >"$work/model/config.json"
  expect 4 "no config" "$sumonce" prove "$work/model"
  says err "no config" "config.json: error: num_experts: 4: experts are not modelled yet"
}

founding_cases() {
  local what="founding cases"
  expect 0 "$what" "$sumonce" run scenarios/lora/row_flag_missing.textproto scenarios/gdn/gamma_flagged.textproto
  says out "$what" "PASS  lora/row_flag_missing  tp=4"
  says out "$what" "PASS  lora/row_flag_missing@cured"
  says out "$what" "MISSING_SUM over tp"
  says out "$what" "PASS  gdn/gamma_flagged  tp=4"
  says out "$what" "DOUBLE_SUM over tp, coefficient tp"
  says out "$what" "(cure tried: right, in numbers and for every tp)"
  [[ $(tail -n 1 "$work/out") == "sumonce: 4 passed, 0 failed, 0 skipped" ]] || complain "$what: last line"
  expect 0 prove "$sumonce" prove scenarios/gdn/gamma_flagged.textproto
  says out prove "DOUBLE_SUM"
  expect 0 "by name" "$sumonce" prove gdn/gamma_flagged
  expect 0 "area by name" "$sumonce" list gdn
  expect 0 list "$sumonce" list scenarios/lora
  says out list "lora/row_flag_missing"
  expect 0 validate "$sumonce" validate scenarios
}

machine_readable() {
  expect 0 json "$sumonce" run scenarios/gdn/gamma_flagged.textproto --format json
  says out json '"coefficient": "tp"'
  says out json '"cure_tried": "right, in numbers and for every tp"'
  says err json "sumonce: 2 passed, 0 failed, 0 skipped"
  expect 0 "json file" "$sumonce" run scenarios/gdn/gamma_flagged.textproto --format "json:$work/report.json"
  expect 4 "json file again" "$sumonce" run scenarios/gdn/gamma_flagged.textproto --format "json:$work/report.json"
  expect 0 "json file, forced" "$sumonce" run scenarios/gdn/gamma_flagged.textproto --force \
    --format "json:$work/report.json"
}

# A wrong expectation fails, and the line that it prints shows the same, to the last digit, when pasted into a shell.
replay() {
  local wrong="$work/scenarios/lora/it is wrong.textproto" line again
  mkdir -p "$work/scenarios/lora"
  sed 's/mechanism: MISSING_SUM/mechanism: DOUBLE_SUM/' scenarios/lora/row_flag_missing.textproto >"$wrong"
  expect 1 "wrong expectation" "$sumonce" run "$wrong" --tp 2 --seed 11 --schedule 3
  says out "wrong expectation" "FAIL  lora/it is wrong[tp=2]"
  says out "wrong expectation" "note: defect declared here"
  line=$(sed -n 's/^  reproduce: //p' "$work/out" | head -n 1)
  sed 's/  [0-9.]* [mu]*s$//' "$work/out" >"$work/first"
  expect 1 "replay" bash -c "$line"
  sed 's/  [0-9.]* [mu]*s$//' "$work/out" >"$work/again"
  again=$(diff "$work/first" "$work/again") || complain "replay differs: $again"
  [[ $line == *" --tp 2 --seed 11 --schedule 3" ]] || complain "replay line: $line"
}

# The coefficient is the size, whatever it is; so is the proof.
sizes() {
  expect 0 "tp 2,3,6" "$sumonce" run scenarios/gdn/gamma_flagged.textproto --tp 2,3,6 --executor threads
  says out "tp 2,3,6" "PASS  gdn/gamma_flagged[tp=3]  tp=3"
  says out "tp 2,3,6" "sumonce: 6 passed, 0 failed, 0 skipped"
  expect 4 "tp 5" "$sumonce" run scenarios/gdn/gamma_flagged.textproto --tp 5
  says err "tp 5" ": error: "
  expect 5 "filter" "$sumonce" run scenarios --filter 'nothing/*'
}

# Both founding cases from the manifests of real runs, before a step was made.
own_jobs() {
  local captures=tests/data/captures case
  expect 1 "lint lora" "$sumonce" lint $captures/lora-replica-bug
  says out "lint lora" "MISSING_SUM over tp, coefficient none: per rank"
  says out "lint lora" "lora_B.default.weight  4      partial  SUM     none    MISSING_SUM"
  says out "lint lora" "set sequence_parallel = True on the parameter decoder.layers.0.self_attention.linear_proj.lora_B"
  says out "lint lora" "(cure tried: right, in the proof, for every tp)"
  expect 1 "lint gamma" "$sumonce" lint $captures/gdn-gamma-tp2-bug
  says out "lint gamma" "DOUBLE_SUM over tp, coefficient tp"
  for case in lora-replica-fixed gdn-gamma-tp2-flag-off moe-tp2-ep2-etp1-right; do
    expect 0 "lint $case" "$sumonce" lint $captures/$case
  done
  says out "lint experts" "NO_STATEMENT of 16 parameters: megatron.core.transformer.moe.moe_layer.MoELayer"
  expect 1 "lint strict" "$sumonce" lint $captures/moe-tp2-ep2-etp1-right --strict
  expect 77 "lint ddp" "$sumonce" lint $captures/ddp-accumulation-right
  expect 1 "lint json" "$sumonce" lint $captures/gdn-gamma-tp2-bug --format json
  says out "lint json" '"mechanism": "DOUBLE_SUM"'
  expect 0 "lint trace" "$sumonce" lint $captures/gdn-gamma-tp2-flag-off --trace tests/data/traces/gdn-gamma-tp2-flag-off
  expect 0 "to scenario" "$sumonce" lint $captures/gdn-gamma-tp2-bug --to-scenario "$work/gamma.textproto"
  says out "to scenario" "sumonce: 2 passed, 0 failed, 0 skipped"
  expect 4 "to scenario again" "$sumonce" lint $captures/gdn-gamma-tp2-bug --to-scenario "$work/gamma.textproto"
  expect 4 "nothing to show" "$sumonce" lint $captures/lora-replica-fixed --to-scenario "$work/none.textproto"
  says err "nothing to show" "there is no fault to show"
  printf 'module { class: "mine.*" acts_as: "MPL" }\n' >"$work/map.textproto"
  expect 4 "module map" "$sumonce" lint $captures/lora-replica-fixed --module-map "$work/map.textproto"
  says err "module map" "map.textproto:1:1: error: acts_as: 'MPL'"
  says err "module map" "did you mean MLP?"
  expect 4 "no manifest" "$sumonce" lint "$work/gone"
}

adapters_and_files() {
  local adapters=tests/data/adapters a=tests/data/adapters/peft-healthy/adapter_model.safetensors
  expect 0 inspect "$sumonce" inspect $adapters/peft-healthy $adapters/untrained $adapters/lora-replica-fixed
  says out inspect "16 factors of 8 modules in 2 layers, r 4, scaling 2 (lora_alpha / r)"
  says out inspect "every lora_B is zero: the adapter was not trained"
  says out inspect "not to be seen here: whether the copies of a factor were equal"
  expect 1 "inspect bug" "$sumonce" inspect $adapters/lora-replica-bug
  says out "inspect bug" "LORA_REPLICA_SIGNATURE: model.layers.3.self_attn.o_proj.lora_B is exactly zero"
  expect 1 "inspect nan" "$sumonce" inspect $adapters/nan --format json
  says out "inspect nan" "NOT_FINITE: model.layers.1.self_attn.q_proj.lora_A holds NaN at [2, 5]"
  expect 0 "explain adapter" "$sumonce" explain LORA_REPLICA_SIGNATURE
  expect 4 "no adapter" "$sumonce" inspect scenarios
  says err "no adapter" "adapter_config.json: no such file"
  expect 0 "diff same" "$sumonce" diff $a $a
  says out "diff same" "16 tensors: 16 identical, 0 close, 0 differ"
  expect 1 "diff" "$sumonce" diff $a $adapters/last-o-proj-zeroed/adapter_model.safetensors
  says out "diff" "15 identical"
  says out "diff" "B is zero, A is not"
  expect 4 "diff kinds" "$sumonce" diff $a $adapters
  says err "diff kinds" "one is a folder, the other a file"
}

# Never a crash, always the file's name and the status of wrong input.
bad_input() {
  local file
  : >"$work/empty.textproto"
  head -c 4096 "$sumonce" >"$work/garbage.textproto"
  printf 'mesh { tp: 2 } mdoel { }\nfinalizer: "megatron_core_0_61"\n' >"$work/typos.textproto"
  printf 'mesh { tp: 100000000 }\n' >"$work/huge.textproto"
  printf 'mesh { tp: 2 }\0\n' >"$work/nul.textproto"
  for file in empty garbage typos huge nul; do
    expect 4 "$file" "$sumonce" run "$work/$file.textproto"
    says err "$file" "$work/$file.textproto:"
    says err "$file" ": error: "
    expect 4 "validate $file" "$sumonce" validate "$work/$file.textproto"
  done
  expect 4 typos "$sumonce" run "$work/typos.textproto"
  says err typos "typos.textproto:1:"
  says err typos "did you mean"
  expect 4 "missing file" "$sumonce" run "$work/gone.textproto"
  expect 4 "empty name" "$sumonce" run ''
  says err "empty name" "'' names no scenario"
  expect 4 "less than an element" "$sumonce" bench --min 3
  says err "less than an element" "--min 3 is less than one float32; take 4"
  expect 4 "unknown verb" "$sumonce" provee
  says err "unknown verb" "did you mean 'prove'?"
}

bad_output() {
  mkdir -p "$work/adapters/lora_pr_173"
  expect 4 "adapter in the way" "$sumonce" run lora/pr_173 --export-dir "$work/adapters"
  says err "adapter in the way" "lora_pr_173: is there already; give another --export-dir"
  expect 0 "traces" "$sumonce" run lora/row_flag_missing --save-trace "$work/traces"
  expect 4 "traces in the way" "$sumonce" run lora/row_flag_missing --save-trace "$work/traces"
  says err "traces in the way" "is there already; give another folder, or --force"
  expect 0 "traces in the way, forced" "$sumonce" run lora/row_flag_missing --save-trace "$work/traces" --force
  expect 4 "folder in a file" "$sumonce" run lora/pr_173 --export-dir "$sumonce/adapters"
  says err "folder in a file" "cannot be made"
  [[ -c /dev/full ]] || return 0
  expect 4 "full disk" bash -c '"$1" list scenarios >/dev/full' bash "$sumonce"
  says err "full disk" "cannot write to standard output"
}

main
