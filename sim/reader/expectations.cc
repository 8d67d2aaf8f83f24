// What must be found: proto/expect.proto.
#include "absl/strings/str_cat.h"
#include "sim/reader/coefficient.h"
#include "sim/reader/reading.h"

namespace sumonce {
namespace {

// Mechanisms of a run as a whole, which name no parameter.
bool OfTheRun(Mechanism mechanism) {
  return mechanism == Mechanism::kNormMiscount || mechanism == Mechanism::kCollectiveMismatch ||
         mechanism == Mechanism::kDeadlock || mechanism == Mechanism::kRankLost ||
         mechanism == Mechanism::kNondeterministic;
}

// Mechanisms of which a verdict can say where they happened.
bool NamesAnOperation(Mechanism mechanism) {
  return mechanism == Mechanism::kUpstream || mechanism == Mechanism::kLostContribution ||
         mechanism == Mechanism::kStale || mechanism == Mechanism::kWrongShard ||
         mechanism == Mechanism::kWrongGroup || mechanism == Mechanism::kMixedUse ||
         mechanism == Mechanism::kNondeterministic;
}

Mechanism ReadMechanism(const Block& block) {
  const std::string name = block.EnumName("mechanism");
  if (!block.Given("mechanism")) return Mechanism::kNone;
  for (int i = 0; i <= static_cast<int>(Mechanism::kNotFinite); ++i) {
    if (Name(static_cast<Mechanism>(i)) == name && i > 0) return static_cast<Mechanism>(i);
  }
  block.Add("mechanism", "mechanism: " + name + ", expected one of docs/THEORY.md \"Verdicts\"");
  return Mechanism::kNone;
}

std::optional<Axis> ReadAxis(const Block& block) {
  if (!block.Given("axis")) return std::nullopt;
  return block.Choice("axis", Axis::kTp,
                      {{"TP", Axis::kTp},
                       {"CP", Axis::kCp},
                       {"DP", Axis::kDp},
                       {"PP", Axis::kPp},
                       {"EP", Axis::kEp},
                       {"ETP", Axis::kEtp},
                       {"EDP", Axis::kEdp}});
}

std::string ReadCoefficient(const Block& block) {
  const std::string text = block.Text("coefficient");
  if (text.empty() || text == "none: per rank" || text == "none: a mixture") return text;
  const auto mesh = Mesh::Create(MeshSizes());
  const auto scale = ParseCoefficient(text, *mesh);
  if (scale.ok()) return text;
  block.Add("coefficient",
            absl::StrCat("coefficient: \"", text, "\" ", scale.status().message(),
                         ", expected a product such as \"tp\", \"1/tp\", \"2*tp^2/dp\" or \"0\", "
                         "\"none: per rank\" or \"none: a mixture\""));
  return "";
}

void CheckParam(const Block& block, const Expectation& expected, Reading& reading) {
  if (!expected.param.empty() && OfTheRun(expected.mechanism)) {
    block.Add("param", absl::StrCat("param beside mechanism: ", block.EnumName("mechanism"),
                                    ", expected none: that is of the run itself; take it out"));
  } else if (!expected.param.empty()) {
    reading.globs.push_back({.block = block,
                             .field = "param",
                             .index = 0,
                             .glob = expected.param,
                             .kind = GlobUse::Kind::kTrainable});
  } else if (!OfTheRun(expected.mechanism)) {
    block.Missing(
        "expect has no param, expected a glob such as param: \"*.lora_B\"; only "
        "NORM_MISCOUNT, COLLECTIVE_MISMATCH, DEADLOCK, RANK_LOST and NONDETERMINISTIC speak of the "
        "run itself");
  }
}

void CheckMechanism(const Block& block, const Expectation& expected) {
  const bool wrong = expected.outcome == Outcome::kWrong;
  if (wrong && expected.mechanism == Mechanism::kNone) {
    block.Missing("expect has no mechanism, expected one: mechanism: MISSING_SUM");
  }
  if (!wrong && expected.mechanism != Mechanism::kNone) {
    block.Add("mechanism", absl::StrCat("mechanism: ", block.EnumName("mechanism"),
                                        " beside outcome: ", block.EnumName("outcome"),
                                        ", expected none; only WRONG has a mechanism"));
  }
}

void ReadOperation(const Block& block, Expectation& expected, Reading& reading) {
  expected.operation = block.Text("operation");
  if (expected.operation.empty()) return;
  if (!NamesAnOperation(expected.mechanism)) {
    block.Add("operation",
              "operation without mechanism: UPSTREAM, MIXED_USE, LOST_CONTRIBUTION, STALE, "
              "WRONG_SHARD, WRONG_GROUP or NONDETERMINISTIC, expected none; take it out");
  }
  reading.globs.push_back({.block = block,
                           .field = "operation",
                           .index = 0,
                           .glob = expected.operation,
                           .kind = GlobUse::Kind::kOperation});
}

// What follows from a fault and stands beside it.
bool IsConsequence(Mechanism mechanism) {
  return mechanism == Mechanism::kReplicaDrift || mechanism == Mechanism::kExportDiffers;
}

// One parameter cannot be two things at once.
void CheckContradiction(const Block& block, const Expectation& later,
                        const std::vector<Expectation>& earlier) {
  for (const Expectation& other : earlier) {
    const bool same = other.param == later.param && other.step == later.step;
    const bool beside = IsConsequence(other.mechanism) || IsConsequence(later.mechanism) ||
                        OfTheRun(other.mechanism) || OfTheRun(later.mechanism);
    if (!same || beside || (other.outcome == later.outcome && other.mechanism == later.mechanism))
      continue;
    block.Missing(absl::StrCat("expect contradicts that of line ", other.location.line,
                               " on the same param, expected one of them; take one away"));
  }
}

void CheckHarmless(const Block& root, const Scenario& scenario) {
  if (!scenario.harmless) return;
  if (scenario.defects.empty()) {
    root.Add("harmless", "harmless without a defect, expected one that does no harm; take it out");
  }
  if (root.Given("expect")) {
    root.Add("harmless", "harmless beside expect, expected one of them; take one away");
  }
}

}  // namespace

void ReadExpectations(const Block& root, Reading& reading) {
  for (const Block& block : root.Children("expect")) {
    Expectation expected = {.param = block.Text("param"),
                            .outcome = block.Choice("outcome", Outcome::kWrong,
                                                    {{"RIGHT", Outcome::kRight},
                                                     {"WRONG", Outcome::kWrong},
                                                     {"NO_STATEMENT", Outcome::kNoStatement},
                                                     {"NO_EVIDENCE", Outcome::kNoEvidence}}),
                            .mechanism = ReadMechanism(block),
                            .axis = ReadAxis(block),
                            .coefficient = ReadCoefficient(block),
                            .step = std::nullopt,
                            .operation = "",
                            .location = block.at()};
    if (block.Given("step")) {
      expected.step = static_cast<int>(block.Int("step", 1, 1, reading.scenario.steps));
    }
    ReadOperation(block, expected, reading);
    CheckParam(block, expected, reading);
    CheckMechanism(block, expected);
    CheckContradiction(block, expected, reading.scenario.expectations);
    reading.scenario.expectations.push_back(std::move(expected));
  }
  CheckHarmless(root, reading.scenario);
}

}  // namespace sumonce
