// A scenario as the simulator sees it: plain data, checked by the reader (sim/scenario_reader.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "comm/fault.h"
#include "comm/mesh.h"
#include "layers/decoder/decoder.h"
#include "sim/precision.h"
#include "spmd/map.h"

namespace sumonce {

// A position in the scenario file, for messages: 1-based, 0 if unknown.
struct Location {
  std::string file;
  int line = 0;
  int column = 0;
};

enum class Mark : uint8_t {
  kSequenceParallel,
  kAverageGradientsAcrossTpDomain,
  kTensorModelParallel,
  kAllreduce,  // set by default
};
std::string_view Name(Mark mark);  // "sequence_parallel", ...
enum class When : uint8_t { kAtBuild, kDuringCall, kAfterBackward };
enum class Direction : uint8_t { kForward, kBackward };

// Edits of a run: defects break it, cures mend it; the same vocabulary (proto/defect.proto,
// proto/cure.proto). Globs; empty `ranks`: all.
struct MarkEdit {
  std::string param;
  Mark mark = Mark::kSequenceParallel;
  bool set = true;
  When when = When::kAtBuild;
  std::vector<int> ranks;
};
struct RuleEdit {
  enum class How : uint8_t { kDrop, kRepeat, kAverage, kOtherGroup } how = How::kDrop;
  std::string rule;
  std::string param = "*";
  std::string group;  // kOtherGroup: "tp", "dp", "tp_dp"
};
struct AddRuleEdit {
  std::string param;
  Map map = Map::kSum;
  std::string group = "tp";
};
struct CollectiveEdit {
  std::string operation;
  Direction direction = Direction::kForward;
  Map map = Map::kIdentity;
  std::vector<int> ranks;
};
struct MicrobatchEdit {
  std::string param;
  int index = 0;
  bool repeat = false;  // else: lost
};
struct StaleEdit {
  std::string param;
  std::vector<int> ranks;
};
struct PermuteEdit {
  std::string param;
  std::vector<int> ranks;
};
struct ScaleEdit {
  std::string param;
  double factor = 2.0;
  std::vector<int> ranks;
};
struct RegionMarksEdit {
  std::string module;
  RegionMarks marks = RegionMarks::kKeep;
};
struct CommunicationEdit {
  CallFault fault;
  std::vector<int> ranks;
};
using EditKind =
    std::variant<MarkEdit, RuleEdit, AddRuleEdit, CollectiveEdit, MicrobatchEdit, StaleEdit,
                 PermuteEdit, ScaleEdit, RegionMarksEdit, CommunicationEdit>;
struct Edit {
  EditKind kind;
  Location location;
};
// "set sequence_parallel=true on *.lora_B", "drop the rule sequence_parallel_sum": one line for a
// person.
std::string Describe(const Edit& edit);

enum class Outcome : uint8_t { kRight, kWrong, kNoStatement, kNoEvidence };
enum class Mechanism : uint8_t {
  kNone,
  kMissingSum,
  kDoubleSum,
  kAveraged,
  kUnsummedShare,
  kMixedShards,
  kWrongScale,
  kMixedUse,
  kWrongGroup,
  kLostContribution,
  kStale,
  kUpstream,
  kLocalGradient,
  kWrongShard,
  kReplicaDrift,
  kNormMiscount,
  kExportDiffers,
  kCollectiveMismatch,
  kDeadlock,
  kRankLost,
  kNondeterministic,
  kNotFinite,
};
std::string_view Name(Outcome outcome);      // "RIGHT", ...
std::string_view Name(Mechanism mechanism);  // "MISSING_SUM", ...

struct Expectation {
  std::string param;  // glob; empty: the run itself
  Outcome outcome = Outcome::kWrong;
  Mechanism mechanism = Mechanism::kNone;
  std::optional<Axis> axis;
  std::string coefficient;
  std::optional<int> step;
  std::string operation;
  Location location;
};

enum class LossMode : uint8_t { kPerToken, kMeanOfCells };
enum class Fill : uint8_t { kNormal, kExact };

struct DataConfig {
  int64_t sequence = 8;
  int64_t micro_batch = 1;
  int microbatches = 1;
  struct Span {
    double from = 0, to = 1;
  };
  std::vector<int64_t> packed;  // lengths of the sequences that are packed into one; empty: one
  std::vector<Span> loss_on;    // fractions of the sequence that count; empty: all
  Fill fill = Fill::kNormal;
  std::string from_file;
};

enum class NormType : uint8_t { kL2, kInf };

struct OptimizerConfig {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.0;
  double clip_grad = 0;  // the greatest norm; 0: neither norm nor clipping
  NormType norm_type = NormType::kL2;
};

struct Scenario {
  std::string name;  // "lora/row_flag_missing"
  std::string file;
  MeshSizes mesh;
  bool sequence_parallel = false;  // as written; ineffective at tp 1
  ModelConfig model;               // common.sequence_parallel is set from the mesh by the runner
  std::string weights_file;
  DataConfig data;
  LossMode loss = LossMode::kPerToken;
  OptimizerConfig optimizer;
  PrecisionConfig precision;
  int steps = 1;
  int record_every = 1;
  std::string finalizer = "megatron_core_0_16";
  bool qk_layernorm = false;  // the finalizer's switch
  bool export_adapter = false;
  uint64_t seed = 7;
  std::vector<Edit> defects;
  std::vector<Edit> cures;  // empty: the cure is to take the defects away
  std::vector<Expectation> expectations;
  bool harmless = false;  // the defects must do no harm: everything right all the same
};

}  // namespace sumonce
