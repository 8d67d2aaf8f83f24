// The closed table of factors (tests/data/closed_table/table.txt): every row that needs only tp and
// dp, under three marks and five meshes, in numbers and by proof.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "base/testing/search_stride.h"
#include "sim/scenario_reader.h"
#include "verify/run_once.h"

namespace sumonce {
namespace {

constexpr char kFolder[] = SUMONCE_TEST_DATA "/closed_table/";
constexpr int kRowsOfTheory = 89;  // docs/THEORY.md "The closed table"
constexpr int kFurtherRows = 9;    // 4: the qk_layernorm switch on; 5: the experts' group (5.4)

struct Row {
  std::string section, what, model, edits, parameter, waits_for;
  bool qk_switch = true;
  std::map<std::string, std::string> outcome;  // by mark: "none", "SUM", "AVG"
};

std::vector<Row> Table() {
  std::ifstream file(std::string(kFolder) + "table.txt");
  std::vector<Row> rows;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::vector<std::string> cells = absl::StrSplit(line, '|');
    for (std::string& cell : cells) absl::StripAsciiWhitespace(&cell);
    if (cells.size() < 8) {
      ADD_FAILURE() << "a row of " << cells.size() << " columns: " << line;
      continue;
    }
    const std::vector<std::string> model = absl::StrSplit(cells[2], absl::MaxSplits(':', 1));
    rows.push_back({.section = cells[0],
                    .what = cells[1],
                    .model = model[0],
                    .edits = model.size() > 1 ? model[1] : "",
                    .parameter = cells[4],
                    .waits_for = cells.size() > 8 ? cells[8] : "",
                    .qk_switch = cells[3] == "on",
                    .outcome = {{"none", cells[5]}, {"SUM", cells[6]}, {"AVG", cells[7]}}});
    for (auto& [mark, outcome] : rows.back().outcome) {
      if (outcome == "as none") outcome = cells[5];
    }
  }
  return rows;
}

Scenario ScenarioOf(const Row& row, int tp, int dp) {
  ReadResult read = ReadScenario(kFolder + row.model + ".textproto", "closed_table/" + row.model,
                                 {.axes = {{Axis::kTp, tp}, {Axis::kDp, dp}}, .seed = {}});
  for (const Mistake& mistake : read.mistakes) ADD_FAILURE() << Format(mistake);
  read.scenario.qk_layernorm = row.qk_switch;
  if (row.edits == "0_12") read.scenario.finalizer = "megatron_core_0_12";
  if (absl::StrContains(row.edits, "etp1")) read.scenario.mesh.etp = 1;
  return read.scenario;
}

// Rows that differ only in their parameter: marks act on a parameter alone, so one run serves all.
using Rows = std::vector<Row>;

std::vector<Rows> RunnableByModel() {
  std::map<std::tuple<std::string, std::string, bool>, Rows> by_model;
  for (const Row& row : Table()) {
    if (row.waits_for.empty()) by_model[{row.model, row.edits, row.qk_switch}].push_back(row);
  }
  std::vector<Rows> groups;
  for (auto& [model, rows] : by_model) groups.push_back(std::move(rows));
  return groups;
}

constexpr char kInDenseGroup[] = "none, reduced with the dense parameters";

// Marks are set as the finalizer finds them, whatever a gather region did to them before.
std::vector<Edit> EditsOf(const Rows& rows, const std::string& mark) {
  std::vector<Edit> edits;
  if (absl::StrContains(rows[0].edits, "gather_rs")) {
    edits.push_back({.kind = CollectiveEdit{.operation = "*.0.self_attention/AllGather#0",
                                            .direction = Direction::kBackward,
                                            .map = Map::kReduceScatter},
                     .location = {}});
  }
  if (absl::StrContains(rows[0].edits, "no_dgrad_sum")) {
    edits.push_back({.kind = CollectiveEdit{.operation = "*.0.self_attention.in_proj*/Copy#0",
                                            .direction = Direction::kBackward,
                                            .map = Map::kIdentity},
                     .location = {}});
  }
  for (const Row& row : rows) {
    if (absl::StrContains(row.edits, "expert") && mark != kInDenseGroup) {
      edits.push_back(
          {.kind = MarkEdit{.param = row.parameter, .mark = Mark::kAllreduce, .set = false},
           .location = {}});
    }
    for (const Mark which : {Mark::kSequenceParallel, Mark::kAverageGradientsAcrossTpDomain}) {
      const bool set = mark == (which == Mark::kSequenceParallel ? "SUM" : "AVG");
      edits.push_back(
          {.kind =
               MarkEdit{
                   .param = row.parameter, .mark = which, .set = set, .when = When::kAfterBackward},
           .location = {}});
    }
  }
  return edits;
}

// The word of the table for a verdict.
std::string WordOf(Outcome outcome, Mechanism mechanism, const std::string& coefficient) {
  if (outcome == Outcome::kRight) return "OK";
  if (outcome != Outcome::kWrong) return std::string(Name(outcome));
  switch (mechanism) {
    case Mechanism::kMissingSum:
      return "OWN";
    case Mechanism::kDoubleSum:
      return coefficient == "tp" ? "xt" : coefficient == "tp^2" ? "xt^2" : "times " + coefficient;
    case Mechanism::kAveraged:
    case Mechanism::kUnsummedShare:
      return "/t";
    case Mechanism::kWrongScale:
      return coefficient == "1/tp" ? "/t" : "times " + coefficient;
    case Mechanism::kMixedShards:
      return "MIX";
    default:
      return std::string(Name(mechanism));
  }
}

// A mixture's factor is looked at apart (ExpectMixture).
bool Same(const std::string& expected, const std::string& word) {
  return expected == word || (expected.starts_with("MIX") && word == "MIX");
}

// What is left of a sum of slices: MIX all of it, MIX/t a tp-th, MIX/t^2 a tp-th of that, MIXxt tp
// times as much.
int TimesDivided(const std::string& outcome) {
  static const std::map<std::string, int> times = {
      {"MIX", 0}, {"MIX/t", 1}, {"MIX/t^2", 2}, {"MIXxt", -1}};
  return times.at(outcome);
}

struct MeshCase {
  int tp, dp;
};

class ClosedTable : public ::testing::TestWithParam<MeshCase> {};

const Tensor& Finalized(const RunOnce& run, int rank, const std::string& parameter) {
  return run.record.ranks[rank].back().params.at(parameter).finalized();
}

// Each rank holds the same sum of its tp group's right slices, divided as the row says. `unmarked`:
// the run in which each rank keeps its slice, itself divided where the row says so.
void ExpectMixture(const Row& row, const std::string& outcome, const RunOnce& run,
                   const RunOnce& unmarked) {
  const Mesh& mesh = *run.proof.mesh;
  const Group tp = mesh.GroupOf(Axis::kTp);
  EXPECT_EQ(run.proof.after.at(row.parameter).scale,
            Scale::SizeOfGroup(tp, -TimesDivided(outcome)));
  const double slice = row.outcome.at("none") == "/t" ? mesh.size(tp) : 1.0;
  const double factor = slice / std::pow(mesh.size(tp), TimesDivided(outcome));
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    const Tensor& mixed = Finalized(run, rank, row.parameter);
    const double allowed = 1e-12 * (MaxAbs(mixed) + 1e-300);
    for (int64_t i = 0; i < mixed.count(); ++i) {
      double sum = 0;
      for (const int peer : mesh.Ranks(tp, rank))
        sum += Finalized(unmarked, peer, row.parameter).data()[i];
      ASSERT_NEAR(mixed.data()[i], factor * sum, allowed) << "rank " << rank << ", element " << i;
    }
  }
}

void ExpectRow(const Row& row, const std::string& mark, const RunOnce& run,
               const RunOnce& unmarked) {
  SCOPED_TRACE(::testing::Message()
               << row.section << " " << row.what << ", " << row.parameter << ", mark " << mark);
  ASSERT_TRUE(run.numbers.contains(row.parameter));
  const Verdict& verdict = run.numbers.at(row.parameter);
  const Proof& proof = run.proof.proofs.at(row.parameter);
  const std::string& outcome = row.outcome.at(mark);
  EXPECT_TRUE(Same(outcome, WordOf(verdict.outcome, verdict.mechanism, verdict.coefficient)))
      << "the table says " << outcome << ", the numbers "
      << WordOf(verdict.outcome, verdict.mechanism, verdict.coefficient);
  EXPECT_TRUE(Same(outcome, WordOf(proof.outcome, proof.mechanism, proof.coefficient)))
      << "the table says " << outcome << ", the proof "
      << WordOf(proof.outcome, proof.mechanism, proof.coefficient);
  if (outcome.starts_with("MIX")) ExpectMixture(row, outcome, run, unmarked);
}

TEST_P(ClosedTable, ProofAndNumbersSayWhatTheTableSays) {
  int cells = 0;
  const std::vector<Rows> models = RunnableByModel();
  for (size_t i = 0; i < models.size(); i += kSearchStride) {
    const Rows& rows = models[i];
    const Scenario scenario = ScenarioOf(rows[0], GetParam().tp, GetParam().dp);
    const RunOnce unmarked = RunScenarioOnce(scenario, EditsOf(rows, kInDenseGroup), SimOptions());
    ASSERT_TRUE(unmarked.run_status.ok()) << unmarked.run_status;
    for (const std::string mark : {"none", "SUM", "AVG"}) {
      const RunOnce run = RunScenarioOnce(scenario, EditsOf(rows, mark), SimOptions());
      ASSERT_TRUE(run.run_status.ok()) << run.run_status;
      EXPECT_THAT(run.disagreements, ::testing::IsEmpty());
      for (const Row& row : rows) ExpectRow(row, mark, run, unmarked);
      cells += static_cast<int>(rows.size());
    }
  }
  std::cout << "cells: " << cells << "\n";
}

INSTANTIATE_TEST_SUITE_P(Meshes, ClosedTable,
                         ::testing::Values(MeshCase{2, 1}, MeshCase{3, 1}, MeshCase{4, 1},
                                           MeshCase{2, 2}, MeshCase{8, 1}),
                         [](const auto& info) {
                           return "tp" + std::to_string(info.param.tp) + "dp" +
                                  std::to_string(info.param.dp);
                         });

// 8.3: without a peer over tp every row is right, whatever the marks and however many share dp.
class ClosedTableOfOne : public ::testing::TestWithParam<MeshCase> {};

TEST_P(ClosedTableOfOne, EveryRowIsRightUnderEveryMark) {
  const std::vector<Rows> models = RunnableByModel();
  for (size_t i = 0; i < models.size(); i += kSearchStride) {
    const Rows& rows = models[i];
    const Scenario scenario = ScenarioOf(rows[0], GetParam().tp, GetParam().dp);
    for (const std::string mark : {"none", "SUM", "AVG"}) {
      const RunOnce run = RunScenarioOnce(scenario, EditsOf(rows, mark), SimOptions());
      ASSERT_TRUE(run.run_status.ok()) << run.run_status;
      EXPECT_THAT(run.disagreements, ::testing::IsEmpty());
      for (const Row& row : rows) {
        EXPECT_EQ(run.numbers.at(row.parameter).outcome, Outcome::kRight)
            << row.what << ", " << row.parameter << ", mark " << mark;
        EXPECT_EQ(run.proof.proofs.at(row.parameter).outcome, Outcome::kRight)
            << row.what << ", " << row.parameter << ", mark " << mark;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, ClosedTableOfOne,
                         ::testing::Values(MeshCase{1, 1}, MeshCase{1, 2}), [](const auto& info) {
                           return "tp" + std::to_string(info.param.tp) + "dp" +
                                  std::to_string(info.param.dp);
                         });

// What is not run is named, with what it waits for.
TEST(ClosedTableRows, RunAndWaitingRowsAreThoseOfTheTheory) {
  std::map<std::string, int> waiting;
  int runs = 0;
  for (const Row& row : Table()) {
    if (row.waits_for.empty()) {
      ++runs;
    } else {
      ++waiting[row.waits_for];
    }
  }
  int total = runs;
  for (const auto& [what, count] : waiting) {
    std::cout << count << " rows wait for " << what << "\n";
    total += count;
  }
  std::cout << runs << " rows run\n";
  EXPECT_EQ(total, kRowsOfTheory + kFurtherRows);
  EXPECT_EQ(waiting["experts (ep)"], 3);
  EXPECT_EQ(waiting.size(), 1u);
}

}  // namespace
}  // namespace sumonce
