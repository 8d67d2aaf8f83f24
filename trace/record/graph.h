// A recorded program under construction, and its backward pass: differentiable aten operations on
// tensors that have extents and a place in memory, and no numbers. Each call appends what a rank
// would run; Backward appends the derivatives' operations, by rules that owe nothing to those of
// spmd/ops. For one thread.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trace/program.h"

namespace sumonce::trace::record {

Argument OfTensor(int id);
Argument OfTensors(const std::vector<int>& ids);
Argument OfInteger(int64_t integer);
Argument OfNumber(double number);
Argument OfFlag(bool flag);
Argument OfExtents(const Extents& extents);
Argument OfGroup(const std::vector<int>& ranks);
Argument OfReduction(std::string_view name);

enum class Function : uint8_t { kExp, kLog, kSigmoid, kSilu, kSoftplus, kGelu, kRelu, kRsqrt };

class Graph {
 public:
  explicit Graph(std::string place) { program_.place = std::move(place); }

  // ---- Tensors, by their id.
  const Extents& shape(int id) const { return program_.tensors[id].geometry.shape; }
  int Made(const Extents& shape, std::string_view dtype = "float64");  // contiguous, memory anew
  int Seen(int id, Geometry geometry);                                 // in the memory of `id`
  int Named(TensorKind kind, const std::string& name, const Extents& shape);
  // The same on every rank that has this digest.
  int Outside(const Extents& shape, const std::string& digest);
  std::string_view Keep(const std::string& text);

  // ---- Operations as they are recorded.
  void Append(std::string_view op, std::vector<Argument> args, std::vector<int> outs,
              std::vector<int> writes = {});
  int Call(std::string_view op, std::vector<Argument> args, const Extents& out,
           std::string_view dtype = "float64");
  int Raw(int id, const Extents& shape);  // another shape; a copy first unless it is contiguous
  int RawPermute(int id, const std::vector<int>& order);
  int RawSlice(int id, int dim, int64_t begin, int64_t end);

  // ---- Differentiable ones.
  void Require(int id) { required_.insert_or_assign(id, true); }
  bool required(int id) const { return required_.contains(id); }
  int Alias(int id);  // of its own gradient: none flows to `id` unless it is added
  int View(int id, const Extents& shape);
  int Contiguous(int id);  // a copy unless it is
  int Permute(int id, const std::vector<int>& order);
  int Slice(int id, int dim, int64_t begin, int64_t end);
  int Select(int id, int dim, int64_t index);
  int Stack(const std::vector<int>& ids);  // along a new first dimension
  int Cat(const std::vector<int>& ids, int dim);
  int Expand(int id, const Extents& shape);
  int Add(int a, int b);
  int Subtract(int a, int b);
  int Multiply(int a, int b);
  int Times(int id, double number);
  int Plus(int id, double number);
  int Apply(Function function, int id);
  int Square(int id);
  int Sum(int id, const std::vector<int>& dims, bool keep);
  int Mean(int id, const std::vector<int>& dims);  // dims are kept
  int Maximum(int id);                             // over the last dimension; has no derivative
  int Softmax(int id);                             // over the last dimension
  int MaskedFill(int id, int mask, double number);
  int MatMul(int a, int b);  // of two or three dimensions
  int DepthwiseConvolution(int x, int weight, int64_t padding);

  // ---- Backward.
  void Accumulate(int id, int grad);
  std::optional<int> grad(int id) const;
  int mark() const { return static_cast<int>(steps_.size()); }
  void Backward(int from, int to);  // of the differentiable operations between two marks

  Phase phase = Phase::kForward;
  std::string module;
  std::string failure;  // of the first thing that cannot be recorded

  Program& program() { return program_; }

 private:
  struct Step {
    int out;
    std::vector<int> in;
    std::function<void(int grad)> derivative;
  };
  bool IsContiguous(int id) const;
  int Differentiable(int out, std::vector<int> in, std::function<void(int grad)> derivative);
  int Unbroadcast(int grad, const Extents& shape);
  int Transposed(int id);  // the last two dimensions

  Program program_;
  int storages_ = 0;
  std::map<int, bool> required_;
  std::map<int, int> grads_;
  std::vector<Step> steps_;
};

}  // namespace sumonce::trace::record
