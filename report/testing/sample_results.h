// Results as the runner would give them, made by hand: a reporter's golden texts depend on nothing
// else.
#pragma once

#include <string>

#include "verify/verdict.h"

namespace sumonce::testing {

inline const std::string kLoraB = "decoder.layers.3.self_attention.linear_proj.lora_B";
inline const std::string kGamma = "decoder.layers.0.linear_attention.in_proj.layer_norm_weight";

// The founding case lora-replica: a scenario with a defect, its expectation and its cure.
inline Scenario LoraScenario() {
  const std::string file = "scenarios/lora/row_flag_missing.textproto";
  Scenario scenario;
  scenario.name = "lora/row_flag_missing";
  scenario.file = file;
  scenario.mesh.tp = 4;
  scenario.defects = {Edit{MarkEdit{.param = "*.lora_B", .set = false}, Location{file, 14, 3}}};
  scenario.cures = {Edit{MarkEdit{.param = "*.lora_B"}, Location{file, 16, 1}}};
  scenario.expectations = {Expectation{.param = "*.lora_B"}};
  return scenario;
}

inline Finding MissingSum(const std::string& param) {
  Finding finding;
  finding.verdict = {
      .param = param,
      .outcome = Outcome::kWrong,
      .mechanism = Mechanism::kMissingSum,
      .axis = Axis::kTp,
      .coefficient = "none: per rank",
      .grad_class = GradClass::kPartial,
      .action = "none",
      .shape = "[64, 8] float64",
      .per_rank = {"rank 0: exactly zero", "rank 1: 0.31 of the reference's norm",
                   "rank 2: 0.38 of the reference's norm", "rank 3: 0.67 of the reference's norm"},
      .evidence = {"the sum over tp is the reference"}};
  finding.proof = Proof{.param = param,
                        .outcome = Outcome::kWrong,
                        .mechanism = Mechanism::kMissingSum,
                        .axis = Axis::kTp,
                        .coefficient = "none: per rank",
                        .grad_class = GradClass::kPartial,
                        .action = "none",
                        .before = "tp: P",
                        .after = "tp: P"};
  finding.cure = CureTrial{.edits = {Edit{MarkEdit{.param = param}, {}}},
                           .text = "set sequence_parallel=true on " + param,
                           .tried = true,
                           .right_in_numbers = true,
                           .right_in_proof = true,
                           .result = "right, in numbers and for every tp"};
  return finding;
}

// The founding case gdn-gamma: complete, and summed once more.
inline Finding DoubleSum() {
  Finding finding;
  finding.verdict = {.param = kGamma,
                     .outcome = Outcome::kWrong,
                     .mechanism = Mechanism::kDoubleSum,
                     .axis = Axis::kTp,
                     .coefficient = "tp",
                     .grad_class = GradClass::kComplete,
                     .action = "SUM",
                     .rule = "sequence_parallel_sum",
                     .shape = "[16] float64"};
  return finding;
}

inline ScenarioResult LoraResult(const Scenario& scenario, RunOutcome outcome) {
  ScenarioResult result;
  result.name = scenario.name;
  result.file = scenario.file;
  result.outcome = outcome;
  result.findings = {MissingSum(kLoraB)};
  result.params_right = 11;
  result.digest = "00112233445566778899aabbccddeeff";
  result.elapsed_us = 12345;
  result.mesh = scenario.mesh;
  result.reproduce = "sumonce run scenarios/lora/row_flag_missing.textproto --seed 7 --schedule 0";
  result.scenario = &scenario;
  return result;
}

inline RankTable LoraTable() {
  return {
      .title = "norm of the gradient, step 1",
      .columns = {"rank 0", "rank 1", "rank 2", "rank 3"},
      .rows = {{.name = "layers.0.linear_proj.lora_B", .values = {0.25, 1.5e-300, 12345.678, 2}},
               {.name = "layers.1.linear_proj.lora_B", .values = {0.0, -0.0, 0.0, 0.125}}}};
}

}  // namespace sumonce::testing
