// The metadata of one rank's file in a capture (docs/capture-format.md): who the rank is, which
// parameters it holds with which marks, which modules use them, and how the job is set up. Plain
// data. Tensors are read by capture/reader.h; a manifest needs none.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "base/safetensors.h"

namespace sumonce::capture {

// An attribute as a framework wrote it: null, a flag, a number, text. A list or an object is kept
// as its JSON text.
using Scalar = std::variant<std::monostate, bool, int64_t, double, std::string>;
using Attributes = std::map<std::string, Scalar>;

// Whether the attribute is there and true, as Python's `if getattr(p, name, False)` sees it.
bool IsSet(const Attributes& attributes, const std::string& name);
// The attribute's value, if it is there and of this kind (a whole number is also a number).
std::optional<bool> FlagOf(const Attributes& attributes, const std::string& name);
std::optional<int64_t> IntegerOf(const Attributes& attributes, const std::string& name);
std::optional<double> NumberOf(const Attributes& attributes, const std::string& name);
std::optional<std::string> TextOf(const Attributes& attributes, const std::string& name);
// "true", "1", "\"text\"", "null".
std::string ToText(const Scalar& scalar);

struct MeshAxis {
  int size = 1;
  int coordinate = 0;  // of this rank
};

struct ManifestParam {
  std::vector<int64_t> shape;  // on this rank
  std::string dtype;           // "float32", "bfloat16", "float8_e4m3fn", ...
  bool requires_grad = true;
  Attributes marks;  // attributes found on the parameter: sequence_parallel, allreduce, ...
};

struct ManifestModule {
  std::string class_name;  // "megatron.core.transformer.mlp.MLP"
  Attributes attributes;   // that steer communication: sequence_parallel, parallel_mode, ...
};

// How a rank's tensor is cut out of the whole one.
struct ParamLayout {
  bool known = true;              // false: the file has null there, its writer did not know
  int dim = 0;                    // cut along this dimension over tp (experts: etp)
  std::vector<int64_t> sections;  // full extents along dim, each cut apart; empty: one section
  bool operator==(const ParamLayout&) const = default;
};

// A DTensor placement along one mesh dimension.
struct Placement {
  enum class Kind : uint8_t { kReplicate, kShard, kPartial, kOther } kind = Kind::kOther;
  int dim = 0;  // kShard
};
struct ParamPlacements {
  std::vector<Placement> param;  // one per mesh dimension
  std::vector<Placement> grad;   // after backward
};

// Elements [begin, end) of the flattened parameter.
struct OwnedRange {
  int64_t begin = 0;
  int64_t end = 0;
};

struct Tokens {
  std::optional<double> local;   // unmasked tokens of this dp and cp cell
  std::optional<double> global;  // of all, with the per-token loss
  std::vector<double> per_microbatch;
};

struct Manifest {
  std::string path;       // where it was read, for messages
  std::string format;     // "sumonce-capture"
  int version = 1;        // of the format
  std::string case_name;  // free text, may be empty
  std::string run;        // one for all ranks and steps of a run, another for every run; or empty
  int64_t step = 0;
  int rank = 0;
  int world_size = 1;
  std::map<std::string, MeshAxis> mesh;  // "tp", "dp", ...: absent axes have size 1
  std::map<std::string, std::vector<std::vector<int>>> groups;  // name -> lists of world ranks
  std::map<std::string, std::string> framework;                 // package -> version
  std::map<std::string, ManifestParam> params;
  std::map<std::string, ManifestModule> modules;  // usually in the first step's file only
  Attributes config;
  Attributes ddp;  // wrapper, gradient_scaling_factor, use_distributed_optimizer
  Attributes optimizer;
  Attributes loss_weights;
  Tokens tokens;
  std::optional<double> clip_grad;
  std::optional<double> grad_norm;  // as the framework computed it, before clipping
  // Absent: the file does not say. Present: a parameter without an entry is replicated over tp.
  std::optional<std::map<std::string, ParamLayout>> layout;
  std::optional<std::map<std::string, ParamPlacements>> placements;
  std::map<std::string, std::string> tied;  // name -> name in the reference
  // Distributed optimizer: absent, the whole of every parameter is reduced; present, what this rank
  // reduces (no entry: nothing).
  std::optional<std::map<std::string, OwnedRange>> owned;

  int AxisSize(const std::string& axis) const;    // 1 if absent
  int Coordinate(const std::string& axis) const;  // 0 if absent
  // The lists of the group that holds this rank; empty if the group is not named.
  std::vector<int> GroupOfRank(const std::string& group) const;
};

// From the strings of a safetensors file's __metadata__; `path` is for messages. InvalidArgument
// names all mistakes, one a line. Keys that are not known are ignored.
absl::StatusOr<Manifest> ParseManifest(const std::map<std::string, std::string>& metadata,
                                       const std::string& path);

// From a JSON object with the same keys, structured or as the strings of __metadata__.
absl::StatusOr<Manifest> ParseManifestJson(std::string_view text, const std::string& path);

// The manifests of one step, by rank, and what is wrong with the set.
struct ManifestSet {
  std::vector<Manifest> manifests;  // of the files that can be used; never empty
  // Files that cannot be read, or are of another run or rank, and the ranks that have no file: each
  // with its cure.
  std::vector<std::string> faults;
  std::vector<int> without_file;
};

// `path`: a capture folder (its first step), a step's folder, one rank's file (.safetensors), or a
// JSON file with the same keys (or a list of such objects, one a rank). A folder may hold
// rank-NNNNN.json instead of .safetensors. Of one rank's file alone nothing is missing. NotFound:
// nothing there; InvalidArgument: all mistakes of all files, if none can be used.
absl::StatusOr<ManifestSet> LoadManifestSet(const std::string& path);

// As above, but InvalidArgument if any file has a mistake; ranks may be missing.
absl::StatusOr<std::vector<Manifest>> LoadManifests(const std::string& path);

}  // namespace sumonce::capture
