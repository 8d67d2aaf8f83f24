// The proof of a traced program: one abstract run over its operations, forward, backward and
// finalizer alike, along the axis that it was traced for (docs/TRACE.md). Holds for every size of
// the axis, under the printed conditions. No differentiation rule takes part: the backward pass is
// just more operations.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trace/align.h"
#include "trace/declaration.h"
#include "trace/memory.h"

namespace sumonce::trace {

// Where a state was lost first: what follows from it is not told again.
struct Refusal {
  int op = -1;
  std::string name;      // "@556 aten.cat [decoder.layers.1.self_attention]"
  std::string reason;    // "a complete and a partial part are joined (E, P)"
  std::string operands;  // their states
  bool mixed_use = false;
};

// What became of a parameter's gradient.
struct TracedGradient {
  std::string param;
  TensorRef ref;
  std::optional<TensorRef> ref_before = {};  // what it was for the finalizer, if another tensor
  Value target;                              // what is right: the parameter's own layout, times 1
  Value before;                              // the finalizer
  Value after;
};

class Prover {
 public:
  // `traces` and `table` outlive this.
  Prover(const Alignment& traces, const DeclarationTable& table);

  void Run();

  // For the proof obligations of declarations: the traces' only operation, whose tensors 0, 1, ...
  // hold `operands`. The values of its first `results` results.
  std::vector<Value> RunOne(std::span<const Value> operands, int results);

  const Alignment& traces() const { return traces_; }
  const std::vector<TracedGradient>& gradients() const { return gradients_; }
  const std::map<int, Refusal>& refusals() const { return refusals_; }  // by operation
  Sections& sections() { return sections_; }
  // The layouts of all parameters, trainable or not, by name.
  const std::map<std::string, Value, std::less<>>& targets() const { return targets_; }

  // What each operation gave, for explanations: value of every tensor that it made or wrote.
  struct Made {
    TensorRef ref;
    Value value;
  };
  // Called after each operation, if set.
  std::function<void(int op, const std::vector<Made>& made)> observer;

  // For trying a cure, before Run: where a complete and a partial part are joined, the partial one
  // is all-reduced first, as if the program did.
  void SumMixedParts() { sums_mixed_ = true; }
  const std::vector<int>& summed_at() const { return summed_at_; }  // the operations

  // The greatest number that divides every dimension, in entries of the whole, that some value is a
  // shard of; 0: there is none.
  int64_t common_extent() const { return common_extent_; }

  // "E", "S(0)", ...
  std::string Describe(const Value& value) const { return trace::Describe(value, mesh_); }
  const Mesh& mesh() const { return mesh_; }
  // What a tensor holds now: for an observer.
  Value Read(const TensorRef& ref) { return memory_.Read(ref); }

 private:
  void Begin();
  void Step(int op);
  void SnapshotBefore();
  bool KeywordsKnown(const Call& call, const Declared& declared) const;
  const char* NumberFault(const Call& call, const Declared& declared) const;
  std::vector<Value> ResultsOf(const Call& call, const Declared* declared);
  std::vector<Value> Faulty(const Call& call, const char* reason, bool collective);
  std::vector<TensorRef> TargetsOf(const Call& call) const;
  Value LayoutOf(const Alignment::Named& named);
  void ReadNumber(const Call& call);
  void Note(const Value& value);
  std::vector<Made> Take(const Call& call, const Declared* declared, bool& mixed);
  void SumTerms(const Call& call);

  const Alignment& traces_;
  const DeclarationTable& table_;
  Mesh mesh_;
  Sections sections_;
  Memory memory_;
  std::set<int> whole_numbers_;  // operations with a number that the unsharded program lacks
  std::vector<TracedGradient> gradients_;
  std::map<int, Refusal> refusals_;
  std::map<std::string, Value, std::less<>> targets_;
  bool before_taken_ = false;
  bool sums_mixed_ = false;
  std::vector<int> summed_at_;
  int64_t common_extent_ = 0;
  const char* poisoned_ = nullptr;  // a number left the program: nothing after it is known
  int poisoned_at_ = -1;
};

}  // namespace sumonce::trace
