#include "spmd/ops/join_head.h"

#include <vector>

#include "spmd/ops/shape.h"

namespace sumonce {
namespace {

// For each head of a (its dimensions but the last, row-major), the head of b that it goes with.
std::vector<int64_t> HeadsOfB(const Dims& a, const Dims& b) {
  std::vector<int64_t> heads = {0};
  int64_t stride_before = 1;
  for (size_t i = 0; i + 1 < b.size(); ++i) stride_before *= b[i].extent();
  for (size_t i = 0; i + 1 < a.size(); ++i) {
    const bool shared = Find(b, a[i].dim) < 0;
    const int64_t stride = shared ? 0 : (stride_before /= a[i].extent());
    std::vector<int64_t> next;
    next.reserve(heads.size() * a[i].extent());
    for (const int64_t head : heads) {
      for (int64_t j = 0; j < a[i].extent(); ++j) next.push_back(head + j * stride);
    }
    heads = std::move(next);
  }
  return heads;
}

bool IsHead(const Dims& dims) {
  return !dims.empty() && dims.back().dim == Dim::kHeadDim && dims.back().width() == 1;
}

// Every dimension of b but the last is one of a's, in a's order.
bool Within(const Dims& b, const Dims& a) {
  size_t at = 0;
  for (size_t i = 0; i + 1 < b.size(); ++i) {
    while (at + 1 < a.size() && !(a[at] == b[i])) ++at;
    if (at + 1 >= a.size()) return false;
    ++at;
  }
  return true;
}

}  // namespace

absl::StatusOr<Declaration> JoinHeadOperation::Declare(std::span<const Dims> operands) const {
  SUMONCE_CHECK(operands.size() == 2);
  const Dims& a = operands[0];
  const Dims& b = operands[1];
  if (!IsHead(a) || !IsHead(b) || !Within(b, a)) {
    return absl::InvalidArgumentError(
        absl::StrCat("JoinHead: a ", Describe(a), " and b ", Describe(b),
                     " must end with d, b's other dimensions being some of a's"));
  }
  Declaration declaration{.result = a, .mixes = SetOf(Dim::kHeadDim)};
  declaration.result.back().units += b.back().units;
  return declaration;
}

void JoinHeadOperation::Forward(std::span<const Tensor> in, Tensor& out) const {
  const int64_t d = in[0].dims().back().extent(), e = in[1].dims().back().extent();
  const std::vector<int64_t> heads = HeadsOfB(in[0].dims(), in[1].dims());
  for (size_t i = 0; i < heads.size(); ++i) {
    double* head = out.data() + i * (d + e);
    std::copy_n(in[0].data() + i * d, d, head);
    std::copy_n(in[1].data() + heads[i] * e, e, head + d);
  }
}

void JoinHeadOperation::Backward(std::span<const Tensor> in, const Tensor&, const Tensor& grad_out,
                                 std::span<Tensor> grad_in) const {
  const int64_t d = in[0].dims().back().extent(), e = in[1].dims().back().extent();
  const std::vector<int64_t> heads = HeadsOfB(in[0].dims(), in[1].dims());
  for (size_t i = 0; i < heads.size(); ++i) {
    const double* head = grad_out.data() + i * (d + e);
    if (!grad_in[0].empty()) std::copy_n(head, d, grad_in[0].data() + i * d);
    if (grad_in[1].empty()) continue;
    for (int64_t j = 0; j < e; ++j) grad_in[1].data()[heads[i] * e + j] += head[d + j];
  }
}

Value JoinHead(Tape& tape, Value a, Value b) {
  return tape.Run(std::make_shared<JoinHeadOperation>(), {a, b});
}

void RegisterJoinHead(OperationRegistry& registry) {
  const DimExtent s = Plain(Dim::kSequence, 6), g = Plain(Dim::kGroup, 6);
  const DimExtent d = Plain(Dim::kHeadDim, 6), e = Plain(Dim::kHeadDim, 6);
  const auto join = std::make_shared<JoinHeadOperation>();
  registry.Add("JoinHead",
               {{join, {{s, g, d}, {s, g, e}}, {}, true}, {join, {{s, g, d}, {s, e}}, {}, true}});
}

}  // namespace sumonce
