// Defects and cures: proto/defect.proto, proto/cure.proto. One vocabulary, and the reader of each
// kind in a table.
#include <algorithm>
#include <cmath>
#include <functional>

#include "absl/strings/str_cat.h"
#include "sim/finalize/finalizer.h"
#include "sim/reader/reading.h"

namespace sumonce {
namespace {

using Kind = GlobUse::Kind;

constexpr double kLeastDefect = 1e-6;  // far above float64's roundings in any step that is run

std::string ReadGlob(const Block& block, const char* field, Kind kind, Reading& reading) {
  const std::string glob = block.Text(field);
  if (glob.empty()) {
    block.Missing(absl::StrCat(block.name(), " has no ", field, ", expected ", field,
                               ": \"...\", a name or a glob such as \"*\""));
    return glob;
  }
  reading.globs.push_back({.block = block, .field = field, .index = 0, .glob = glob, .kind = kind});
  return glob;
}

std::vector<int> ReadRanks(const Block& block, const Reading& reading) {
  std::vector<int> ranks = block.Ints("rank");
  const int world = reading.scenario.mesh.world_size();
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] >= 0 && (ranks[i] < world || !reading.mesh_known)) continue;
    reading.mistakes->Add(
        block.At("rank", static_cast<int>(i)),
        absl::StrCat("rank: ", ranks[i], ", expected 0 to ", world - 1, ": the mesh has ", world,
                     world == 1 ? " rank" : " ranks", " (", Said(Axis::kTp, reading), ", ",
                     Said(Axis::kDp, reading), ")"));
  }
  return ranks;
}

std::string ReadGroup(const Block& block) {
  const std::string group = block.Text("group");
  const std::vector<std::string> groups = {"tp", "dp", "tp_dp", "kv_copies"};
  if (group.empty()) {
    block.Missing(absl::StrCat(block.name(), " has no group, expected ", OneOf(groups)));
  } else if (std::find(groups.begin(), groups.end(), group) == groups.end()) {
    block.Add("group", absl::StrCat("group: unknown \"", group, "\", expected ", OneOf(groups),
                                    DidYouMean(group, groups)));
  }
  return group;
}

std::string ReadRule(const Block& block, const Reading& reading) {
  const std::string rule = block.Text("rule");
  const auto preset = Finalizers().Find(reading.scenario.finalizer);
  if (!preset.ok() || (!rule.empty() && preset->FindRule(rule))) return rule;
  std::vector<std::string> rules;
  for (const FinalizeStep& step : preset->steps) {
    for (const FinalizeRule& known : step.rules) rules.push_back(known.name);
  }
  if (rule.empty()) {
    block.Missing(absl::StrCat(block.name(), " has no rule, expected ", OneOf(rules)));
  } else {
    block.Add("rule", absl::StrCat("rule: unknown \"", rule, "\" of ", preset->name, ", expected ",
                                   OneOf(rules), DidYouMean(rule, rules)));
  }
  return rule;
}

Map ReadMap(const Block& block, std::initializer_list<std::pair<const char*, Map>> maps) {
  if (!block.Given("map")) block.Missing(block.name() + " has no map, expected one: map: SUM");
  return block.Choice("map", Map::kIdentity, maps);
}

EditKind ReadMark(const Block& block, bool set, Reading& reading) {
  if (!block.Given("mark")) {
    block.Missing(block.name() + " has no mark, expected one: mark: SEQUENCE_PARALLEL");
  }
  return MarkEdit{.param = ReadGlob(block, "param", Kind::kTrainable, reading),
                  .mark = block.Choice("mark", Mark::kSequenceParallel,
                                       {{"SEQUENCE_PARALLEL", Mark::kSequenceParallel},
                                        {"AVERAGE_GRADIENTS_ACROSS_TP_DOMAIN",
                                         Mark::kAverageGradientsAcrossTpDomain},
                                        {"TENSOR_MODEL_PARALLEL", Mark::kTensorModelParallel},
                                        {"ALLREDUCE", Mark::kAllreduce}}),
                  .set = set,
                  .when = block.Choice("when", When::kAtBuild,
                                       {{"AT_BUILD", When::kAtBuild},
                                        {"DURING_CALL", When::kDuringCall},
                                        {"AFTER_BACKWARD", When::kAfterBackward}}),
                  .ranks = ReadRanks(block, reading)};
}

EditKind ReadRuleEdit(const Block& block, RuleEdit::How how, Reading& reading) {
  RuleEdit edit = {.how = how, .rule = ReadRule(block, reading)};
  if (block.Given("param")) edit.param = ReadGlob(block, "param", Kind::kTrainable, reading);
  if (how == RuleEdit::How::kOtherGroup) edit.group = ReadGroup(block);
  return edit;
}

EditKind ReadAddRule(const Block& block, Reading& reading) {
  return AddRuleEdit{.param = ReadGlob(block, "param", Kind::kTrainable, reading),
                     .map = ReadMap(block, {{"SUM", Map::kSum}, {"AVG", Map::kAvg}}),
                     .group = ReadGroup(block)};
}

EditKind ReadCollective(const Block& block, Reading& reading) {
  return CollectiveEdit{.operation = ReadGlob(block, "operation", Kind::kCollective, reading),
                        .direction = block.Choice(
                            "direction", Direction::kForward,
                            {{"FORWARD", Direction::kForward}, {"BACKWARD", Direction::kBackward}}),
                        .map = ReadMap(block, {{"IDENTITY", Map::kIdentity},
                                               {"SUM", Map::kSum},
                                               {"AVG", Map::kAvg},
                                               {"REDUCE_SCATTER", Map::kReduceScatter},
                                               {"ALL_GATHER", Map::kAllGather},
                                               {"SPLIT", Map::kSplit},
                                               {"PAD", Map::kPad}}),
                        .ranks = ReadRanks(block, reading)};
}

EditKind ReadMicrobatch(const Block& block, bool repeat, Reading& reading) {
  const int count = reading.scenario.data.microbatches;
  const int index = static_cast<int>(block.Int("index", 0, 0));
  if (index >= count) {
    block.Add("index", absl::StrCat("index: ", index, ", expected 0 to ", count - 1, ": there ",
                                    count == 1 ? "is " : "are ", count,
                                    count == 1 ? " microbatch" : " microbatches",
                                    "; see data.microbatches"));
  }
  return MicrobatchEdit{.param = ReadGlob(block, "param", Kind::kTrainable, reading),
                        .index = index,
                        .repeat = repeat};
}

EditKind ReadStale(const Block& block, Reading& reading) {
  if (reading.scenario.steps < 2) {
    block.Add("param",
              "stale_buffer with steps: 1, expected 2 at least: the first step has no "
              "earlier one to keep");
  }
  return StaleEdit{.param = ReadGlob(block, "param", Kind::kTrainable, reading),
                   .ranks = ReadRanks(block, reading)};
}

EditKind ReadPermute(const Block& block, Reading& reading) {
  return PermuteEdit{.param = ReadGlob(block, "param", Kind::kTrainable, reading),
                     .ranks = ReadRanks(block, reading)};
}

EditKind ReadScale(const Block& block, Reading& reading) {
  if (!block.Given("factor"))
    block.Missing("scale_gradient has no factor, expected one: factor: 2");
  const double factor = block.Number("factor", 2);
  if (std::fabs(factor - 1) < kLeastDefect) {
    block.Add("factor", absl::StrCat("factor: it differs from 1 by ", factor - 1,
                                     ", which roundings hide; expected ", kLeastDefect,
                                     " at least, such as 2 or 0.5"));
  }
  return ScaleEdit{.param = ReadGlob(block, "param", Kind::kTrainable, reading),
                   .factor = factor,
                   .ranks = ReadRanks(block, reading)};
}

EditKind ReadRegionMarks(const Block& block, Reading& reading) {
  return RegionMarksEdit{
      .module = ReadGlob(block, "module", Kind::kGatherRegion, reading),
      .marks = block.Choice("marks", RegionMarks::kKeep,
                            {{"KEEP", RegionMarks::kKeep},
                             {"TOGGLE_AND_RESTORE", RegionMarks::kToggleAndRestore},
                             {"LEAVE_OFF", RegionMarks::kLeaveOff}})};
}

CallFault ReadFault(const Block& block) {
  CallFault fault;
  if (!block.Given("fault"))
    block.Missing("communication has no fault, expected one: fault: DROPPED_CONTRIBUTION");
  fault.kind = block.Choice("fault", FaultKind::kLate,
                            {{"LATE", FaultKind::kLate},
                             {"STALE_BUFFER", FaultKind::kStaleBuffer},
                             {"SWAPPED_BUFFER", FaultKind::kSwappedBuffer},
                             {"DROPPED_CONTRIBUTION", FaultKind::kDroppedContribution},
                             {"DOUBLED_CONTRIBUTION", FaultKind::kDoubledContribution},
                             {"WRONG_GROUP", FaultKind::kWrongGroup},
                             {"FLIPPED_BIT", FaultKind::kFlippedBit},
                             {"REORDERED", FaultKind::kReordered},
                             {"KILLED", FaultKind::kKilled},
                             {"UNORDERED", FaultKind::kUnordered}});
  fault.occurrence = block.Int("occurrence", 1, 1);
  fault.element = block.Int("element", 0, 0);
  fault.bit = static_cast<int>(block.Int("bit", 0, 0, 63));
  fault.other = block.Int("other", 0, 0);
  fault.count = block.Int("count", 1, 1);
  if (fault.kind == FaultKind::kStaleBuffer && fault.occurrence < 2) {
    block.Add("fault",
              "fault: STALE_BUFFER with occurrence: 1, expected 2 at least: the first call has no "
              "earlier one");
  }
  const bool swaps = fault.kind == FaultKind::kSwappedBuffer;
  for (const char* field : {"other", "count"}) {
    if (!swaps && block.Given(field))
      block.Add(field, absl::StrCat(field,
                                    " without fault: SWAPPED_BUFFER, expected none; take it "
                                    "out"));
  }
  if (block.Given("bit") && fault.kind != FaultKind::kFlippedBit)
    block.Add("bit", "bit without fault: FLIPPED_BIT, expected none; take it out");
  if (block.Given("element") && !swaps && fault.kind != FaultKind::kFlippedBit) {
    block.Add("element",
              "element without fault: FLIPPED_BIT or SWAPPED_BUFFER, expected none; take it out");
  }
  return fault;
}

EditKind ReadCommunication(const Block& block, Reading& reading) {
  CallFault fault = ReadFault(block);
  fault.operation = ReadGlob(block, "operation", Kind::kCall, reading);
  return CommunicationEdit{.fault = std::move(fault), .ranks = ReadRanks(block, reading)};
}

struct KindReader {
  const char* name;
  EditKind (*read)(const Block&, Reading&);
};
using How = RuleEdit::How;
constexpr KindReader kKinds[] = {
    {"set_mark", [](const Block& b, Reading& r) { return ReadMark(b, true, r); }},
    {"clear_mark", [](const Block& b, Reading& r) { return ReadMark(b, false, r); }},
    {"drop_rule", [](const Block& b, Reading& r) { return ReadRuleEdit(b, How::kDrop, r); }},
    {"repeat_rule", [](const Block& b, Reading& r) { return ReadRuleEdit(b, How::kRepeat, r); }},
    {"average_rule", [](const Block& b, Reading& r) { return ReadRuleEdit(b, How::kAverage, r); }},
    {"wrong_group",
     [](const Block& b, Reading& r) { return ReadRuleEdit(b, How::kOtherGroup, r); }},
    {"add_rule", ReadAddRule},
    {"collective", ReadCollective},
    {"lose_microbatch", [](const Block& b, Reading& r) { return ReadMicrobatch(b, false, r); }},
    {"repeat_microbatch", [](const Block& b, Reading& r) { return ReadMicrobatch(b, true, r); }},
    {"stale_buffer", ReadStale},
    {"permute_shard", ReadPermute},
    {"scale_gradient", ReadScale},
    {"region_marks", ReadRegionMarks},
    {"communication", ReadCommunication},
};

void ReadOne(const Block& block, std::vector<Edit>& edits, Reading& reading) {
  const std::string kind = block.Which("kind");
  if (kind.empty()) {
    block.Missing(block.name() + " says nothing, expected what to change: " + block.name() +
                  " { set_mark { ... } }");
  }
  for (const KindReader& known : kKinds) {
    if (kind == known.name) {
      edits.push_back({.kind = known.read(block.Child(kind), reading), .location = block.at()});
    }
  }
}

}  // namespace

void ReadEdits(const Block& root, Reading& reading) {
  Scenario& scenario = reading.scenario;
  for (const Block& defect : root.Children("defect")) ReadOne(defect, scenario.defects, reading);
  const std::vector<Block> cures = root.Children("cure");
  for (const Block& cure : cures) {
    ReadOne(cure, scenario.cures, reading);
    if (cure.Which("kind") != "remove_defect") continue;
    if (cures.size() > 1) {
      cure.Add("remove_defect",
               "remove_defect beside another cure, expected it alone; take one away");
    }
    if (scenario.defects.empty() || !cure.Flag("remove_defect")) {
      cure.Add("remove_defect",
               "there is no defect to take away, expected remove_defect: true in a "
               "file with a defect; take it out");
    }
  }
}

}  // namespace sumonce
