// What comparing the traces of one job says: the same program on every rank and at both sizes, and
// of every tensor and number of it how it differs between them (docs/TRACE.md "Four traces").
#pragma once

#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "trace/trace_set.h"

namespace sumonce::trace {

// The tensor that all ranks and both sizes have in one place of the program.
struct TensorRef {
  int id = -1;                           // rank 0 at n
  int twin = -1;                         // rank 0 at 2n; -1: has none
  absl::InlinedVector<int, 2> of_ranks;  // empty: `id` on every rank

  bool operator==(const TensorRef&) const = default;
};

// A number that all have in one place.
struct NumberRef {
  double value = 0;              // rank 0 at n
  double twice = 0;              // rank 0 at 2n
  std::vector<double> of_ranks;  // empty: the same on every rank
};

class Alignment {
 public:
  // FailedPrecondition names the first difference: operation count, order, arguments, shapes, which
  // tensors share memory; between ranks or sizes. `set`, which must have `twice`, outlives this.
  static absl::StatusOr<Alignment> Of(const TraceSet& set);

  const TraceSet& set() const { return *set_; }
  const Program& base() const { return set_->ranks[0]; }
  const Program& twice() const { return *set_->twice; }
  int size() const { return set_->size(); }

  TensorRef Argument(int op, int position) const;  // a tensor
  std::vector<TensorRef> List(int op, int position) const;
  TensorRef Keyword(int op, int position) const;
  TensorRef Out(int op, int k) const;
  TensorRef Write(int op, int k) const;
  NumberRef Number(int op, int position) const;
  NumberRef NumberIn(int op, int position, int k) const;  // of a list
  NumberRef KeywordNumber(int op, int position) const;

  const Geometry& GeometryOf(const TensorRef& ref) const { return base().tensor(ref.id).geometry; }
  const Geometry& TwiceOf(const TensorRef& ref) const { return twice().tensor(ref.twin).geometry; }
  const Geometry& OfRank(const TensorRef& ref, int rank) const;
  int StorageOf(const TensorRef& ref) const { return base().tensor(ref.id).storage; }

  // Parameters, gradients, inputs and buffers, by the kind and name that all have in common.
  struct Named {
    TensorRef ref;
    TensorKind kind;
    std::string_view name;
  };
  const std::vector<Named>& named() const { return named_; }

 private:
  explicit Alignment(const TraceSet& set) : set_(&set) {}
  absl::Status AlignNamed();
  template <typename Pick>
  TensorRef RefOf(const Pick& pick) const;

  const TraceSet* set_;
  std::vector<Named> named_;
};

}  // namespace sumonce::trace
