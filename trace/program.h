// One rank's step as the tracer recorded it: a straight-line program of aten and c10d operations on
// tensors that are named by their memory (docs/TRACE.md "Format"). Plain data; whoever holds it may
// read it from several threads. The views into `text` live as long as the program, also when it is
// moved.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"

namespace sumonce::trace {

using Extents = absl::InlinedVector<int64_t, 5>;

// Where a tensor lies in its storage; offset and strides in elements.
struct Geometry {
  int64_t offset = 0;
  Extents shape;
  Extents strides;
  bool operator==(const Geometry&) const = default;
};
int64_t Count(const Geometry& geometry);  // elements

// kGradBefore: a gradient as the finalizer found it, where the step leaves another tensor.
enum class TensorKind : uint8_t { kPlain, kParam, kGrad, kInput, kBuffer, kGradBefore };

struct TensorInfo {
  bool defined = false;
  int storage = -1;
  Geometry geometry;
  std::string_view dtype;  // "float32"
  TensorKind kind = TensorKind::kPlain;
  std::string_view name;    // of parameters, gradients, inputs, buffers
  bool outside = false;     // came from outside the recorded operations
  std::string_view digest;  // of its content; empty: not known
};

struct Argument {
  enum class Kind : uint8_t {
    kNone,
    kBool,
    kInteger,
    kFloat,
    kText,
    kTensor,  // `integer` is its id
    kList,
    kGroup,  // `items` are its ranks
    kReduce  // `text`: "SUM", "MAX", ...
  };
  Kind kind = Kind::kNone;
  int64_t integer = 0;  // kBool, kInteger, kTensor
  double number = 0;    // kInteger, kFloat
  std::string_view text;
  std::vector<Argument> items;

  bool is_number() const { return kind == Kind::kInteger || kind == Kind::kFloat; }
  bool operator==(const Argument&) const = default;
};

enum class Phase : uint8_t { kForward, kBackward, kFinalizer };
std::string_view Name(Phase phase);  // "forward", ...

struct Operation {
  std::string_view name;    // "aten.mul.Tensor"
  std::string_view module;  // whose forward called it, or made the backward node that did
  Phase phase = Phase::kForward;
  std::vector<Argument> args;
  std::vector<std::pair<std::string_view, Argument>> kwargs;
  absl::InlinedVector<int, 2> outs;
  absl::InlinedVector<int, 1> writes;
};

struct ParamInfo {
  std::string_view name;
  Extents shape;
  bool trainable = false;
  std::map<std::string_view, std::string_view> marks;  // "sequence_parallel": "true"
};

struct Program {
  std::string place;  // the file, for messages
  std::string_view axis;
  int size = 0;                // of the axis
  int rank = 0;                // in it
  std::vector<int64_t> group;  // world ranks of the axis
  std::vector<ParamInfo> params;
  std::vector<TensorInfo> tensors;  // by id
  std::vector<Operation> ops;
  // What the views point into.
  std::unique_ptr<std::deque<std::string>> text = std::make_unique<std::deque<std::string>>();

  const TensorInfo& tensor(int id) const { return tensors[id]; }
};

// "@17 aten.cat [decoder.layers.1.self_attention]": how messages name an operation.
std::string OperationName(const Program& program, int op);
// "[16, 2, 64]".
std::string ShapeText(const Extents& shape);

}  // namespace sumonce::trace
