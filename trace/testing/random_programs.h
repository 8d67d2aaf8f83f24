// For tests: tests/data/traces/random_programs.jsonl.gz and hostile_programs.jsonl.gz, programs
// whose gradients were computed, too.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "trace/prove_traces.h"
#include "trace/trace_set.h"
#include "verify/verdict.h"

namespace sumonce::trace::testing {

// What the numbers say of a parameter's gradient.
struct Truth {
  bool right = false;
  bool zero = false;
  bool right_in_sections = false;  // beside a reference whose rows are cut in two sections
  bool alike = false;  // the parts of a shard are equal: numbers do not tell a mixture of them
  std::optional<double> every_rank_times;    // each rank holds so many times its part
  std::optional<double> sum_of_ranks_times;  // the ranks' arrays add up to so many times the whole
};

struct RandomProgram {
  int number = 0;
  std::string name;                    // "program 3", or its own
  std::map<std::string, Truth> truth;  // by parameter
  TraceSet set;
};

// Calls `visit` with each program of the file, one at a time in memory.
absl::Status ForEachProgram(const std::string& path,
                            const std::function<void(const RandomProgram&)>& visit);

// Why a claim contradicts the truth; empty: it does not. `in_sections`: what was claimed holds
// beside a reference whose rows are cut in sections.
std::string Contradiction(const Proof& proof, const Truth& truth, bool in_sections = false);

struct Tally {
  int programs = 0;
  int claims = 0;
  int not_right = 0;      // claims that are not RIGHT
  int refused_wrong = 0;  // refusals of what is wrong in fact
  int refused_right = 0;  // of what is right: idle
  int no_evidence = 0;    // of what is zero
  std::vector<std::string> unsound;
  std::vector<std::string> idle;
};
void Count(const RandomProgram& program, const TraceProof& proof, Tally& tally);

// One line of counts, and one for each idle refusal and each contradiction.
std::string Describe(const Tally& tally);

}  // namespace sumonce::trace::testing
