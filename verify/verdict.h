// What was found about one parameter (or about the run itself), as plain data: the reporters' only
// input besides the scenario's own result.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/recording.h"
#include "sim/scenario.h"

namespace sumonce {

// The class of a gradient before the finalizer: what it needs.
enum class GradClass : uint8_t {
  kUnknown,
  kPartial,     // terms: needs a sum
  kComplete,    // the gradient, on every rank: needs nothing
  kEqualShare,  // an n-th of it, on every rank: needs a sum
  kShard,       // the own slice: needs nothing
};
std::string_view Name(GradClass grad_class);  // "partial", ...

struct Verdict {
  std::string param;  // empty: the run itself
  int step = 1;
  Outcome outcome = Outcome::kRight;
  Mechanism mechanism = Mechanism::kNone;
  std::optional<Axis> axis;
  std::string coefficient;  // "tp", "1/tp", "none: a mixture", "none: per rank"; empty when right
  std::optional<double> factor;                // its value on this mesh, where it is one number
  GradClass grad_class = GradClass::kUnknown;  // along `axis`
  std::string action;     // what was done along it: "none", "SUM", "AVG", "SUM twice"
  std::string rule;       // the finalizer rule that claimed it, "" for none
  std::string operation;  // UPSTREAM, NO_STATEMENT, a call of the finalizer that went wrong: the
                          // operation named
  std::string shape;      // "[64, 8] float64", the rank's own
  std::vector<std::string> per_rank;    // "rank 0: exactly zero", ...
  std::vector<std::string> evidence;    // sentences
  std::vector<std::string> affected;    // UPSTREAM: the parameters listed under it
  std::vector<Mechanism> consequences;  // REPLICA_DRIFT, EXPORT_DIFFERS: what follows from it
  // Where the evidence leaves several: "RIGHT" and mechanisms, and the one more thing that would
  // decide.
  std::vector<std::string> possible;
  std::string decides;
  std::string ranks;  // "ranks 0 1": only there, since the ranks' marks differ; empty: everywhere
};

// What the proof says of one parameter.
struct Proof {
  std::string param;
  Outcome outcome = Outcome::kRight;
  Mechanism mechanism = Mechanism::kNone;
  std::optional<Axis> axis;
  std::string coefficient;
  std::optional<double> factor;
  GradClass grad_class = GradClass::kUnknown;  // along `axis` (tp if none)
  std::string action;
  std::string operation;  // where the state was lost
  std::string reason;     // why it was
  std::string before;     // states, for people: "tp: P(s), dp: P(b)"
  std::string after;
  std::string ranks;  // as Verdict's
};

// What the proof says, as the verdict's.
void TakeOver(const Proof& proof, Verdict& verdict);

// What a cure adds to each step of a rank; negative: it saves.
struct CureCost {
  int64_t calls = 0;
  int64_t bytes = 0;          // as float32, the dtype of Megatron's main_grad
  double seconds = 0;         // predicted by a fitted model
  double error = 0;           // the prediction is good to so many seconds
  bool extrapolated = false;  // to ranks or sizes that were not measured
  std::string basis;          // "in_process threads, 4 ranks"
};

// A cure that a diagnosis proposes, and how its trial went.
struct CureTrial {
  std::vector<Edit> edits;
  std::string text;  // "set sequence_parallel=true on this parameter"
  bool tried = false;
  bool right_in_numbers = false;
  bool right_in_proof = false;
  std::string result;            // "right, in numbers and for every tp"
  std::optional<CureCost> cost;  // if asked for
};

// A verdict with what belongs to it.
struct Finding {
  Verdict verdict;
  std::optional<Proof> proof;
  std::optional<CureTrial> cure;
  const Expectation* expectation = nullptr;  // the one that it meets
};

struct RankTable {
  std::string title;
  std::vector<std::string> columns;
  struct Row {
    std::string name;
    std::vector<double> values;
  };
  std::vector<Row> rows;
};

// A table of words.
struct TextTable {
  std::string title;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
};

enum class RunOutcome : uint8_t { kPass, kFail, kSkip };

// One scenario, judged: the run and, for a broken one, its cured twin is another result
// ("name@cured").
struct ScenarioResult {
  std::string name;
  std::string file;
  RunOutcome outcome = RunOutcome::kPass;
  std::string skip_reason;
  std::vector<Finding> findings;        // all that is not RIGHT
  std::vector<std::string> failures;    // why it failed: one sentence each
  std::vector<std::string> notes;       // defects declared, conditions
  std::vector<std::string> conditions;  // under which the proof holds
  std::vector<RankTable> tables;
  std::vector<TextTable> text_tables;
  int params_right = 0;
  int params_wrong = 0;            // of an audit
  std::vector<Verdict> undecided;  // NO_STATEMENT that counts neither way: see Verdict::possible
  int params_without_evidence = 0;
  bool internal_error = false;  // numbers and proof disagree, a broken invariant
  std::string digest;
  double elapsed_us = 0;
  MeshSizes mesh;
  std::string about;  // what has no mesh says this in its place: "16 modules in 4 layers, r 8"
  std::vector<std::string> statements;  // what can and cannot be concluded: always printed
  std::string reproduce;
  // RunnerOptions::record_calls: what the ranks called, by world rank. Null: not recorded.
  std::shared_ptr<const std::vector<RankCalls>> calls;
  const Scenario* scenario = nullptr;
};

}  // namespace sumonce
