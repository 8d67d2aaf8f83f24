// The tape: layer code is written once against it and runs in two ways. A NumericTape per rank
// carries arrays and no states; the AbstractTape carries states and no arrays, once for all ranks
// and sizes. Backward() replays in reverse on either. Operations of both are matched by name:
// "<module path>/<operation>#<ordinal in that module>".
//
// An operation that fails puts its status on the tape and returns an invalid Value; later
// operations do nothing. The step asks status() once: layer code stays free of error plumbing. One
// tape belongs to one rank (or to the prover).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "comm/mesh.h"
#include "spmd/map.h"
#include "spmd/operation.h"
#include "spmd/param.h"
#include "spmd/sequences.h"

namespace sumonce {

struct Value {
  int id = -1;
  bool valid() const { return id >= 0; }
};

// A communication: a pair of maps along one axis. Dual pairs have named constructors in
// spmd/collectives.h; any other pair is still run: that is how wrong code gets a factor.
struct Collective {
  std::string name = "Collective";  // "ReduceScatter", ...
  Group group;
  MapArgs forward;
  MapArgs backward;
  // Why nothing is known of what a direction gives, whatever its map says; null: its map holds.
  const char* forward_unknown = nullptr;
  const char* backward_unknown = nullptr;
  // What reads the value does not depend on it (the maximum that softmax subtracts): its gradient,
  // added up over the group, is zero.
  bool vanishes = false;
};

// A constant input: tokens, masks. Never has a gradient. Sliced by its declared cuts, never by a
// state.
struct Input {
  std::string name;
  ShardMap shards;
  const Tensor* whole = nullptr;  // read by numeric tapes only
  // Instead of `whole`: the element of a global index, for what is drawn by it.
  std::function<double(int64_t)> element = {};
};

// What the layers of one forward pass share besides values.
struct Pass {
  SequenceStarts sequence_starts;  // of packed sequences; empty: each batch entry is one
  Dims tokens;                     // the whole [s, b], for what is drawn by a token's global index
  // Whether dropout of a module keeps the element of its whole input; null: it keeps all.
  std::function<bool(const std::string& module, int64_t index)> keeps;
};

class Tape {
 public:
  enum class Kind : uint8_t { kInput, kUse, kLocal, kCollective, kScale };

  struct Node {
    Kind kind = Kind::kLocal;
    std::string name;           // unique on the tape
    std::vector<int> operands;  // nodes
    Dims dims;                  // of the value: a rank's own (numeric) or the whole's (abstract)
    bool needs_grad = false;
    std::shared_ptr<const Operation> operation;  // kLocal
    Declaration declaration;                     // kLocal
    Collective collective;                       // kCollective
    Scale scale;                                 // kScale
    Param* param = nullptr;                      // kUse
  };

  explicit Tape(const Mesh& mesh) : mesh_(&mesh) {}
  virtual ~Tape() = default;
  Tape(const Tape&) = delete;

  // Enters a module for the life of the object: names of operations inside begin with its path.
  class Scope {
   public:
    Scope(Tape& tape, std::string_view module);
    ~Scope();

   private:
    Tape& tape_;
    size_t outer_length_;
  };

  Value Run(std::shared_ptr<const Operation> operation, const std::vector<Value>& operands);
  Value Communicate(Collective collective, Value x);
  Value Multiply(Value x, const Scale& factor);  // times a monomial of group sizes, also backward
  Value Use(Param& param);                       // once per use: gradients are kept per use
  Value Constant(const Input& input);
  Value Detach(Value x);  // no gradient flows

  // Replays in reverse from `loss` (any dims) with the cotangent 1 on every rank.
  void Backward(Value loss);

  Pass pass;  // set before the first module

  absl::Status status() const { return status_; }
  void Fail(absl::Status status);  // keeps the first
  const Mesh& mesh() const { return *mesh_; }
  Group GroupOf(Axis axis) const { return mesh_->GroupOf(axis); }
  const Dims& dims(Value x) const;
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::string& path() const { return path_; }  // of the current module

  // Called for every collective before it runs; may change its maps or its group (defects, cures).
  std::function<void(const std::string& name, Collective&)> edit_collective;
  // Called for every use of a parameter, in the forward pass of the module that owns it (marks that
  // change then).
  std::function<void(Param&)> on_use;

 protected:
  // The two ways of running a node that has been appended; sets its dims where the map changes
  // them.
  virtual absl::Status ForwardNode(int id, const Input* input) = 0;
  virtual absl::Status SeedNode(int id) = 0;
  virtual absl::Status BackwardNode(int id) = 0;  // only nodes that need a gradient, in reverse
  absl::Status status_;
  std::vector<Node> nodes_;

 private:
  Value Append(Node node, std::string_view operation, const Input* input = nullptr);
  std::string NextName(std::string_view operation);
  bool Usable(const std::vector<Value>& operands) const;

  const Mesh* mesh_;
  std::string path_;
  std::map<std::string, int> ordinals_;
};

}  // namespace sumonce
