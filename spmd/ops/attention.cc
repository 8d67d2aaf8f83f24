#include "spmd/ops/attention.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/math.h"
#include "base/status.h"

namespace sumonce {
namespace {

// One head in memory: the offset of its row at position t, and the entries of a row.
struct HeadRows {
  int64_t first, stride, width;
  int64_t at(int64_t t) const { return first + t * stride; }
};

// One query head of one sequence, with the key and value head that it uses.
struct AttentionHead {
  int64_t positions;
  HeadRows query, key, value, result;
};

template <typename Each>
void ForEachAttentionHead(const Dims& q, int64_t value_width, Each each) {
  const int64_t positions = q[0].extent(), groups = q[1].extent() * q[2].extent();
  const int64_t heads = q[3].extent(), width = q[4].extent();
  const auto rows = [](int64_t index, int64_t count, int64_t entries) {
    return HeadRows{index * entries, count * entries, entries};
  };
  for (int64_t group = 0; group < groups; ++group) {
    for (int64_t head = group * heads; head < (group + 1) * heads; ++head) {
      each(AttentionHead{positions, rows(head, groups * heads, width), rows(group, groups, width),
                         rows(group, groups, value_width),
                         rows(head, groups * heads, value_width)});
    }
  }
}

double Dot(const double* a, const double* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

void AddScaled(double factor, const double* from, int64_t count, double* to) {
  for (int64_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

// The attention of position t to positions begin..t.
std::vector<double> Probabilities(const AttentionHead& head, const double* q, const double* k,
                                  int64_t begin, int64_t t) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(head.query.width));
  std::vector<double> p(t + 1 - begin);
  for (int64_t j = begin; j <= t; ++j) {
    p[j - begin] = scale * Dot(q + head.query.at(t), k + head.key.at(j), head.query.width);
  }
  const double greatest = *std::max_element(p.begin(), p.end());
  double sum = 0;
  for (double& score : p) sum += score = Exp(score - greatest);
  for (double& weight : p) weight /= sum;
  return p;
}

// The same dimensions, but for the extent of the last.
bool SameButLast(const Dims& a, const Dims& b) {
  return a.size() == b.size() && a.back().dim == b.back().dim &&
         std::equal(a.begin(), a.end() - 1, b.begin());
}

}  // namespace

absl::StatusOr<Declaration> AttentionOperation::Declare(std::span<const Dims> operands) const {
  SUMONCE_CHECK(operands.size() == 3);
  constexpr Dim kQuery[] = {Dim::kSequence, Dim::kBatch, Dim::kGroup, Dim::kHeadInGroup,
                            Dim::kHeadDim};
  const Dims& q = operands[0];
  const bool named = std::equal(q.begin(), q.end(), std::begin(kQuery), std::end(kQuery),
                                [](const DimExtent& extent, Dim dim) { return extent.dim == dim; });
  Dims key = q;
  if (named) key.erase(key.begin() + 3);
  if (!named || operands[1] != key || !SameButLast(operands[2], key)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "Attention: q ", Describe(q), ", k ", Describe(operands[1]), ", v ", Describe(operands[2]),
        " must be [s, b, g, q, d], [s, b, g, d], [s, b, g, d], v's d of any extent"));
  }
  SUMONCE_RETURN_IF_ERROR(CheckStarts(name(), starts_, q.front().extent()));
  Declaration declaration;
  declaration.result = q;
  declaration.result.back() = operands[2].back();
  declaration.linear = Linear(2);
  declaration.mixes = SetOf(Dim::kSequence, Dim::kHeadDim);
  return declaration;
}

void AttentionOperation::Forward(std::span<const Tensor> in, Tensor& out) const {
  const int64_t width = out.dims().back().extent();
  const std::vector<int64_t> begins = BeginOfEach(starts_, out.dims().front().extent());
  ForEachAttentionHead(in[0].dims(), width, [&](const AttentionHead& head) {
    for (int64_t t = 0; t < head.positions; ++t) {
      const std::vector<double> p = Probabilities(head, in[0].data(), in[1].data(), begins[t], t);
      double* row = out.data() + head.result.at(t);
      for (int64_t j = begins[t]; j <= t; ++j) {
        AddScaled(p[j - begins[t]], in[2].data() + head.value.at(j), width, row);
      }
    }
  });
}

// p̄_j = c̄ · v_j; s̄ = p * (p̄ - Σ p p̄); q̄ = s̄ k / sqrt(d); k̄ = s̄^T q / sqrt(d); v̄ = p^T c̄.
void AttentionOperation::Backward(std::span<const Tensor> in, const Tensor& out,
                                  const Tensor& grad_out, std::span<Tensor> grad_in) const {
  const int64_t values = out.dims().back().extent(), width = in[0].dims().back().extent();
  const std::vector<int64_t> begins = BeginOfEach(starts_, out.dims().front().extent());
  ForEachAttentionHead(in[0].dims(), values, [&](const AttentionHead& head) {
    const double scale = 1.0 / std::sqrt(static_cast<double>(width));
    for (int64_t t = 0; t < head.positions; ++t) {
      const int64_t begin = begins[t];
      const std::vector<double> p = Probabilities(head, in[0].data(), in[1].data(), begin, t);
      const int64_t query = head.query.at(t);
      const double* row_grad = grad_out.data() + head.result.at(t);
      const double mean = Dot(row_grad, out.data() + head.result.at(t), values);  // Σ p p̄
      for (int64_t j = begin; j <= t; ++j) {
        const int64_t key = head.key.at(j), value = head.value.at(j);
        const double score_grad =
            scale * p[j - begin] * (Dot(row_grad, in[2].data() + value, values) - mean);
        if (!grad_in[0].empty())
          AddScaled(score_grad, in[1].data() + key, width, grad_in[0].data() + query);
        if (!grad_in[1].empty())
          AddScaled(score_grad, in[0].data() + query, width, grad_in[1].data() + key);
        if (!grad_in[2].empty())
          AddScaled(p[j - begin], row_grad, values, grad_in[2].data() + value);
      }
    }
  });
}

Value CoreAttention(Tape& tape, Value q, Value k, Value v, SequenceStarts starts) {
  return tape.Run(std::make_shared<AttentionOperation>(std::move(starts)), {q, k, v});
}

void RegisterAttention(OperationRegistry& registry) {
  const DimExtent s = Plain(Dim::kSequence, 6), b = Plain(Dim::kBatch, 6),
                  g = Plain(Dim::kGroup, 6);
  const DimExtent q = Plain(Dim::kHeadInGroup, 6), d = Plain(Dim::kHeadDim, 6);
  const DimExtent one = Plain(Dim::kBatch, 1);
  const auto attention = std::make_shared<AttentionOperation>();
  registry.Add("Attention", {{attention,
                              {{s, b, g, Plain(Dim::kHeadInGroup, 1), Plain(Dim::kHeadDim, 2)},
                               {s, b, g, Plain(Dim::kHeadDim, 2)},
                               {s, b, g, Plain(Dim::kHeadDim, 2)}}},
                             {attention, {{s, one, g, q, d}, {s, one, g, d}, {s, one, g, d}}},
                             {std::make_shared<AttentionOperation>(SequenceStarts{0, 2}),
                              {{s, one, g, q, d}, {s, one, g, d}, {s, one, g, d}}},
                             // Values of another width than keys.
                             {attention,
                              {{s, one, g, Plain(Dim::kHeadInGroup, 1), d},
                               {s, one, g, d},
                               {s, one, g, Plain(Dim::kHeadDim, 2)}}}});
}

}  // namespace sumonce
