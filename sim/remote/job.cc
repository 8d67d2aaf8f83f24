#include "sim/remote/job.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "proto/job.pb.h"

namespace sumonce {
namespace {

// Pairs of our enumerators and the messages', read in both directions.
template <typename Ours, typename Theirs>
struct Same {
  Ours ours;
  Theirs theirs;
};
constexpr Same<Mark, proto::Mark> kMarks[] = {
    {Mark::kSequenceParallel, proto::SEQUENCE_PARALLEL},
    {Mark::kAverageGradientsAcrossTpDomain, proto::AVERAGE_GRADIENTS_ACROSS_TP_DOMAIN},
    {Mark::kTensorModelParallel, proto::TENSOR_MODEL_PARALLEL},
    {Mark::kAllreduce, proto::ALLREDUCE}};
constexpr Same<When, proto::When> kWhens[] = {{When::kAtBuild, proto::AT_BUILD},
                                              {When::kDuringCall, proto::DURING_CALL},
                                              {When::kAfterBackward, proto::AFTER_BACKWARD}};
constexpr Same<Map, proto::Map> kMaps[] = {{Map::kIdentity, proto::IDENTITY},
                                           {Map::kSum, proto::SUM},
                                           {Map::kAvg, proto::AVG},
                                           {Map::kReduceScatter, proto::REDUCE_SCATTER},
                                           {Map::kAllGather, proto::ALL_GATHER},
                                           {Map::kSplit, proto::SPLIT},
                                           {Map::kPad, proto::PAD}};
constexpr Same<Direction, proto::CollectiveChange::Direction> kDirections[] = {
    {Direction::kForward, proto::CollectiveChange::FORWARD},
    {Direction::kBackward, proto::CollectiveChange::BACKWARD}};
constexpr Same<RegionMarks, proto::RegionMarkChange::Marks> kRegionMarks[] = {
    {RegionMarks::kKeep, proto::RegionMarkChange::KEEP},
    {RegionMarks::kToggleAndRestore, proto::RegionMarkChange::TOGGLE_AND_RESTORE},
    {RegionMarks::kLeaveOff, proto::RegionMarkChange::LEAVE_OFF}};

using Faults = proto::CommunicationFault;
constexpr Same<FaultKind, Faults::Fault> kFaults[] = {
    {FaultKind::kLate, Faults::LATE},
    {FaultKind::kStaleBuffer, Faults::STALE_BUFFER},
    {FaultKind::kSwappedBuffer, Faults::SWAPPED_BUFFER},
    {FaultKind::kDroppedContribution, Faults::DROPPED_CONTRIBUTION},
    {FaultKind::kDoubledContribution, Faults::DOUBLED_CONTRIBUTION},
    {FaultKind::kWrongGroup, Faults::WRONG_GROUP},
    {FaultKind::kFlippedBit, Faults::FLIPPED_BIT},
    {FaultKind::kReordered, Faults::REORDERED},
    {FaultKind::kKilled, Faults::KILLED},
    {FaultKind::kUnordered, Faults::UNORDERED}};

absl::Status NoWordFor(const char* what) {
  return absl::InternalError(absl::StrCat("an edit between processes: no word for ", what));
}

template <typename Table, typename Theirs>
bool ToTheirs(const Table& table, auto ours, Theirs& theirs) {
  for (const auto& same : table) {
    if (same.ours != ours) continue;
    theirs = same.theirs;
    return true;
  }
  return false;
}

template <typename Table, typename Ours>
bool ToOurs(const Table& table, auto theirs, Ours& ours) {
  for (const auto& same : table) {
    if (same.theirs != theirs) continue;
    ours = same.ours;
    return true;
  }
  return false;
}

template <typename Message>
void SetRanks(const std::vector<int>& ranks, Message& message) {
  message.mutable_rank()->Add(ranks.begin(), ranks.end());
}

template <typename Message>
std::vector<int> RanksOf(const Message& message) {
  return {message.rank().begin(), message.rank().end()};
}

// One overload per kind of edit.
class Writer {
 public:
  explicit Writer(proto::JobEdit& message) : message_(message) {}

  absl::Status operator()(const MarkEdit& edit) const {
    proto::MarkChange& change =
        edit.set ? *defect().mutable_set_mark() : *defect().mutable_clear_mark();
    change.set_param(edit.param);
    proto::Mark mark;
    proto::When when;
    if (!ToTheirs(kMarks, edit.mark, mark) || !ToTheirs(kWhens, edit.when, when))
      return NoWordFor("a mark");
    change.set_mark(mark);
    change.set_when(when);
    SetRanks(edit.ranks, change);
    return absl::OkStatus();
  }
  absl::Status operator()(const RuleEdit& edit) const {
    if (edit.how == RuleEdit::How::kOtherGroup) {
      proto::WrongGroup& change = *defect().mutable_wrong_group();
      change.set_rule(edit.rule);
      change.set_param(edit.param);
      change.set_group(edit.group);
      return absl::OkStatus();
    }
    proto::RuleChange& change = edit.how == RuleEdit::How::kDrop ? *defect().mutable_drop_rule()
                                : edit.how == RuleEdit::How::kRepeat
                                    ? *defect().mutable_repeat_rule()
                                    : *defect().mutable_average_rule();
    change.set_rule(edit.rule);
    change.set_param(edit.param);
    return absl::OkStatus();
  }
  absl::Status operator()(const AddRuleEdit& edit) const {
    proto::AddRule& change = *message_.mutable_cure()->mutable_add_rule();
    change.set_param(edit.param);
    change.set_group(edit.group);
    proto::Map map;
    if (!ToTheirs(kMaps, edit.map, map)) return NoWordFor("a rule's map");
    change.set_map(map);
    return absl::OkStatus();
  }
  absl::Status operator()(const CollectiveEdit& edit) const {
    proto::CollectiveChange& change = *defect().mutable_collective();
    change.set_operation(edit.operation);
    proto::Map map;
    proto::CollectiveChange::Direction direction;
    if (!ToTheirs(kMaps, edit.map, map) || !ToTheirs(kDirections, edit.direction, direction))
      return NoWordFor("a collective's map");
    change.set_map(map);
    change.set_direction(direction);
    SetRanks(edit.ranks, change);
    return absl::OkStatus();
  }
  absl::Status operator()(const MicrobatchEdit& edit) const {
    proto::MicrobatchChange& change =
        edit.repeat ? *defect().mutable_repeat_microbatch() : *defect().mutable_lose_microbatch();
    change.set_param(edit.param);
    change.set_index(edit.index);
    return absl::OkStatus();
  }
  absl::Status operator()(const StaleEdit& edit) const {
    defect().mutable_stale_buffer()->set_param(edit.param);
    SetRanks(edit.ranks, *defect().mutable_stale_buffer());
    return absl::OkStatus();
  }
  absl::Status operator()(const PermuteEdit& edit) const {
    defect().mutable_permute_shard()->set_param(edit.param);
    SetRanks(edit.ranks, *defect().mutable_permute_shard());
    return absl::OkStatus();
  }
  absl::Status operator()(const ScaleEdit& edit) const {
    proto::ScaleGradient& change = *defect().mutable_scale_gradient();
    change.set_param(edit.param);
    change.set_factor(edit.factor);
    SetRanks(edit.ranks, change);
    return absl::OkStatus();
  }
  absl::Status operator()(const RegionMarksEdit& edit) const {
    proto::RegionMarkChange& change = *defect().mutable_region_marks();
    change.set_module(edit.module);
    proto::RegionMarkChange::Marks marks;
    if (!ToTheirs(kRegionMarks, edit.marks, marks)) return NoWordFor("a region's marks");
    change.set_marks(marks);
    return absl::OkStatus();
  }
  absl::Status operator()(const CommunicationEdit& edit) const {
    const CallFault& fault = edit.fault;
    proto::CommunicationFault& message = *defect().mutable_communication();
    message.set_operation(fault.operation);
    if (fault.occurrence != 1) message.set_occurrence(static_cast<int32_t>(fault.occurrence));
    Faults::Fault kind;
    if (!ToTheirs(kFaults, fault.kind, kind)) return NoWordFor("a fault");
    message.set_fault(kind);
    message.set_element(static_cast<int32_t>(fault.element));
    message.set_bit(fault.bit);
    message.set_other(static_cast<int32_t>(fault.other));
    if (fault.kind == FaultKind::kSwappedBuffer)
      message.set_count(static_cast<int32_t>(fault.count));
    SetRanks(edit.ranks, message);
    return absl::OkStatus();
  }

 private:
  proto::Defect& defect() const { return *message_.mutable_defect(); }
  proto::JobEdit& message_;
};

absl::StatusOr<EditKind> MarkOf(const proto::MarkChange& change, bool set) {
  MarkEdit edit{.param = change.param(), .set = set, .ranks = RanksOf(change)};
  if (!ToOurs(kMarks, change.mark(), edit.mark) || !ToOurs(kWhens, change.when(), edit.when))
    return NoWordFor("a mark");
  return edit;
}

EditKind RuleOf(const proto::RuleChange& change, RuleEdit::How how) {
  return RuleEdit{.how = how, .rule = change.rule(), .param = change.param(), .group = ""};
}

EditKind MicrobatchOf(const proto::MicrobatchChange& change, bool repeat) {
  return MicrobatchEdit{.param = change.param(), .index = change.index(), .repeat = repeat};
}

absl::StatusOr<EditKind> CollectiveOf(const proto::CollectiveChange& change) {
  CollectiveEdit edit{.operation = change.operation(), .ranks = RanksOf(change)};
  if (!ToOurs(kMaps, change.map(), edit.map) ||
      !ToOurs(kDirections, change.direction(), edit.direction))
    return NoWordFor("a collective's map");
  return edit;
}

absl::StatusOr<EditKind> RegionMarksOf(const proto::RegionMarkChange& change) {
  RegionMarksEdit edit{.module = change.module()};
  if (!ToOurs(kRegionMarks, change.marks(), edit.marks)) return NoWordFor("a region's marks");
  return edit;
}

absl::StatusOr<EditKind> CommunicationOf(const proto::CommunicationFault& message) {
  CallFault fault{.operation = message.operation()};
  if (!ToOurs(kFaults, message.fault(), fault.kind)) return NoWordFor("a fault");
  if (message.has_occurrence()) fault.occurrence = message.occurrence();
  fault.element = message.element();
  fault.bit = message.bit();
  fault.other = message.other();
  if (fault.kind == FaultKind::kSwappedBuffer) fault.count = message.count();
  return CommunicationEdit{.fault = std::move(fault), .ranks = RanksOf(message)};
}

absl::StatusOr<EditKind> DefectOf(const proto::Defect& defect) {
  using How = RuleEdit::How;
  switch (defect.kind_case()) {
    case proto::Defect::kSetMark:
      return MarkOf(defect.set_mark(), true);
    case proto::Defect::kClearMark:
      return MarkOf(defect.clear_mark(), false);
    case proto::Defect::kDropRule:
      return RuleOf(defect.drop_rule(), How::kDrop);
    case proto::Defect::kRepeatRule:
      return RuleOf(defect.repeat_rule(), How::kRepeat);
    case proto::Defect::kAverageRule:
      return RuleOf(defect.average_rule(), How::kAverage);
    case proto::Defect::kWrongGroup:
      return RuleEdit{.how = How::kOtherGroup,
                      .rule = defect.wrong_group().rule(),
                      .param = defect.wrong_group().param(),
                      .group = defect.wrong_group().group()};
    case proto::Defect::kCollective:
      return CollectiveOf(defect.collective());
    case proto::Defect::kLoseMicrobatch:
      return MicrobatchOf(defect.lose_microbatch(), false);
    case proto::Defect::kRepeatMicrobatch:
      return MicrobatchOf(defect.repeat_microbatch(), true);
    case proto::Defect::kStaleBuffer:
      return StaleEdit{.param = defect.stale_buffer().param(),
                       .ranks = RanksOf(defect.stale_buffer())};
    case proto::Defect::kPermuteShard:
      return PermuteEdit{.param = defect.permute_shard().param(),
                         .ranks = RanksOf(defect.permute_shard())};
    case proto::Defect::kScaleGradient:
      return ScaleEdit{.param = defect.scale_gradient().param(),
                       .factor = defect.scale_gradient().factor(),
                       .ranks = RanksOf(defect.scale_gradient())};
    case proto::Defect::kRegionMarks:
      return RegionMarksOf(defect.region_marks());
    case proto::Defect::kCommunication:
      return CommunicationOf(defect.communication());
    case proto::Defect::KIND_NOT_SET:
      break;
  }
  return NoWordFor("nothing");
}

absl::StatusOr<EditKind> KindOf(const proto::JobEdit& edit) {
  if (edit.has_defect()) return DefectOf(edit.defect());
  if (!edit.cure().has_add_rule()) return NoWordFor("this cure");
  const proto::AddRule& change = edit.cure().add_rule();
  AddRuleEdit rule{.param = change.param(), .group = change.group()};
  if (!ToOurs(kMaps, change.map(), rule.map)) return NoWordFor("a rule's map");
  return rule;
}

}  // namespace

absl::StatusOr<std::string> EncodeJob(const SimulationJob& job) {
  proto::SimulationJob message;
  message.set_scenario(job.scenario);
  message.set_world_size(job.world_size);
  message.set_native_sums(job.native_sums);
  message.set_record_calls(job.record_calls);
  message.set_start_digest(job.start_digest);
  if (job.exit_status) message.set_exit_status(*job.exit_status);
  for (const Edit& edit : job.edits) {
    SUMONCE_RETURN_IF_ERROR(std::visit(Writer(*message.add_edit()), edit.kind));
  }
  return message.SerializeAsString();
}

absl::StatusOr<SimulationJob> DecodeJob(const std::string& bytes) {
  proto::SimulationJob message;
  if (!message.ParseFromString(bytes))
    return absl::InternalError("a job between processes that cannot be read");
  SimulationJob job{.scenario = message.scenario(),
                    .world_size = message.world_size(),
                    .edits = {},
                    .native_sums = message.native_sums(),
                    .record_calls = message.record_calls(),
                    .start_digest = message.start_digest(),
                    .exit_status = {}};
  if (message.has_exit_status()) job.exit_status = message.exit_status();
  for (const proto::JobEdit& edit : message.edit()) {
    SUMONCE_ASSIGN_OR_RETURN(EditKind kind, KindOf(edit));
    job.edits.push_back({.kind = std::move(kind), .location = {}});
  }
  return job;
}

}  // namespace sumonce
