#include "spmd/ops/delta_rule.h"

#include <algorithm>
#include <cmath>

#include "spmd/ops/l2_norm.h"
#include "tests/golden.h"
#include "tests/run_operation.h"

namespace sumonce {
namespace {

using testing::Golden;
using testing::kSequenceFirst;

// A stored case's extents, and its dimensions here.
struct Case {
  explicit Case(const Golden& golden) {
    const std::vector<int64_t>& q = golden.Shape("in.q");
    const std::vector<int64_t>& v = golden.Shape("in.v");
    batch = q[0], tokens = q[1], key_heads = q[2], ratio = v[2] / q[2], dk = q[3], dv = v[3];
    l2_norm = golden.Meta("qk_l2norm").starts_with("inside");
  }
  Dims Key(int64_t s) const {
    return {Plain(Dim::kSequence, s), Plain(Dim::kBatch, batch), Plain(Dim::kKeyHead, key_heads),
            Plain(Dim::kHeadDim, dk)};
  }
  Dims Gate(int64_t s) const {
    return {Plain(Dim::kSequence, s), Plain(Dim::kBatch, batch), Plain(Dim::kKeyHead, key_heads),
            Plain(Dim::kValueInKey, ratio)};
  }
  Dims Value(int64_t s) const {
    Dims dims = Gate(s);
    dims.push_back(Plain(Dim::kHeadDim, dv));
    return dims;
  }

  int64_t batch, tokens, key_heads, ratio, dk, dv;
  bool l2_norm;
};

// A stored state [batch, value heads, dk, dv] as dk tokens of values: row i is token i.
const testing::Axes kStateAsTokens = {3, 0, 1, 2, 4};

Tensor Filled(const Dims& dims, double value) {
  return Tensor(dims, std::vector<double>(Count(dims), value));
}

// Token i is the i-th unit vector, for every head.
Tensor UnitKeys(const Case& c) {
  Tensor keys(c.Key(c.dk));
  const int64_t row = c.batch * c.key_heads * c.dk;
  for (int64_t t = 0; t < c.dk; ++t) {
    for (int64_t i = t; i < row; i += c.dk) keys.data()[t * row + i] = 1.0;
  }
  return keys;
}

Tensor Scaled(const Tensor& x, double factor) {
  Tensor scaled = x.Clone();
  ScaleInto(scaled, factor);
  return scaled;
}

// Tokens [first, first + count): the sequence is the outermost dimension.
Tensor Tokens(const Tensor& x, int64_t first, int64_t count) {
  Dims dims = x.dims();
  const int64_t row = x.count() / dims[0].extent();
  dims[0] = Plain(Dim::kSequence, count);
  return Tensor(dims,
                std::vector<double>(x.data() + first * row, x.data() + (first + count) * row));
}

Tensor Concatenated(const std::vector<Tensor>& parts) {
  Dims dims = parts[0].dims();
  dims[0].units = 0;
  std::vector<double> values;
  for (const Tensor& part : parts) {
    dims[0].units += part.dims()[0].extent();
    values.insert(values.end(), part.data(), part.data() + part.count());
  }
  return Tensor(dims, std::move(values));
}

// The rule has no state operands. An initial state S is the same as dk tokens before the first, of
// unit keys, S's rows as values, beta 1 and no decay; a final state is what dk tokens of unit
// queries after the last read, which write nothing. So every stored case with states is a case
// without.
struct Extended {
  std::vector<Tensor> in;
  Tensor grad_o;
};

Extended WithStatesAsTokens(const Golden& golden, const Case& c, const std::vector<Tensor>& in) {
  const Tensor no_key(c.Key(c.dk)), no_value(c.Value(c.dk)), no_gate(c.Gate(c.dk));
  Tensor initial = no_value;
  if (golden.Has("in.s0")) initial = golden.Get("in.s0", c.Value(c.dk), kStateAsTokens);
  Tensor grad_final = no_value;
  if (golden.Has("up.out.state")) {
    grad_final = Scaled(golden.Get("up.out.state", c.Value(c.dk), kStateAsTokens), std::sqrt(c.dk));
  }
  const Tensor grad_o = golden.Get("up.out.o", c.Value(c.tokens), kSequenceFirst);
  return {
      .in = {Concatenated({no_key, in[0], UnitKeys(c)}), Concatenated({UnitKeys(c), in[1], no_key}),
             Concatenated({initial, in[2], no_value}), Concatenated({no_gate, in[3], no_gate}),
             Concatenated({Filled(c.Gate(c.dk), 1.0), in[4], no_gate})},
      .grad_o = Concatenated({no_value, grad_o, grad_final})};
}

class DeltaRuleGolden : public ::testing::TestWithParam<std::string> {};

// Recurrent and chunk cases alike: in exact arithmetic the forms are one.
TEST_P(DeltaRuleGolden, Matches) {
  const Golden golden(GetParam());
  const Case c(golden);
  const L2NormOperation l2_norm{L2NormOptions()};
  const DeltaRuleOperation rule;
  const Tensor q = golden.Get("in.q", c.Key(c.tokens), kSequenceFirst);
  const Tensor k = golden.Get("in.k", c.Key(c.tokens), kSequenceFirst);
  const Extended extended =
      WithStatesAsTokens(golden, c,
                         {c.l2_norm ? testing::RunForward(l2_norm, {q}) : q,
                          c.l2_norm ? testing::RunForward(l2_norm, {k}) : k,
                          golden.Get("in.v", c.Value(c.tokens), kSequenceFirst),
                          golden.Get("in.g", c.Gate(c.tokens), kSequenceFirst),
                          golden.Get("in.beta", c.Gate(c.tokens), kSequenceFirst)});

  const Tensor o = testing::RunForward(rule, extended.in);
  EXPECT_TRUE(golden.Matches(Tokens(o, c.dk, c.tokens), "out.o", kSequenceFirst));
  if (golden.Has("out.state")) {
    const Tensor state = Scaled(Tokens(o, c.dk + c.tokens, c.dk), std::sqrt(c.dk));
    EXPECT_TRUE(golden.Matches(state, "out.state", kStateAsTokens));
  }

  std::vector<Tensor> grads = testing::RunBackward(rule, extended.in, extended.grad_o);
  if (golden.Has("in.s0")) {
    EXPECT_TRUE(golden.Matches(Tokens(grads[2], 0, c.dk), "grad.in.s0", kStateAsTokens));
  }
  for (Tensor& grad : grads) grad = Tokens(grad, c.dk, c.tokens);
  if (c.l2_norm) {
    grads[0] = testing::RunBackward(l2_norm, {q}, grads[0])[0];
    grads[1] = testing::RunBackward(l2_norm, {k}, grads[1])[0];
  }
  const std::vector<std::string> names = {"grad.in.q", "grad.in.k", "grad.in.v", "grad.in.g",
                                          "grad.in.beta"};
  for (size_t i = 0; i < names.size(); ++i)
    EXPECT_TRUE(golden.Matches(grads[i], names[i], kSequenceFirst));
}

INSTANTIATE_TEST_SUITE_P(All, DeltaRuleGolden,
                         ::testing::Values("gdr_recurrent_gqa", "gdr_recurrent_state",
                                           "gdr_single_token", "gdr_strong_decay",
                                           "gdr_chunk16_no_l2", "gdr_chunk64_gqa",
                                           "gdr_chunk8_gqa_state"),
                         [](const auto& info) { return info.param; });

// What nobody asks for is not computed: an empty gradient stays empty.
TEST(DeltaRule, LeavesUnwantedGradientsEmpty) {
  const Dims gate = {Plain(Dim::kSequence, 3), Plain(Dim::kBatch, 1), Plain(Dim::kKeyHead, 1),
                     Plain(Dim::kValueInKey, 1)};
  const Dims key = {gate[0], gate[1], gate[2], Plain(Dim::kHeadDim, 2)};
  const Dims value = {gate[0], gate[1], gate[2], gate[3], Plain(Dim::kHeadDim, 1)};
  const std::vector<Tensor> in = {Filled(key, 0.5), Filled(key, 0.25), Filled(value, 1.0),
                                  Filled(gate, -0.5), Filled(gate, 0.5)};
  std::vector<Tensor> grads(5);
  grads[2] = Tensor(value);
  const Tensor up = Filled(value, 1.0);
  DeltaRuleOperation().Backward(in, testing::RunForward(DeltaRuleOperation(), in), up, grads);
  for (const size_t i : {0, 1, 3, 4}) EXPECT_TRUE(grads[i].empty());
  EXPECT_TRUE(
      testing::AllClose(grads[2], testing::RunBackward(DeltaRuleOperation(), in, up)[2], 0.0));
}

TEST(DeltaRule, RefusesValuesOfOtherKeyHeads) {
  const Dims q = {Plain(Dim::kSequence, 4), Plain(Dim::kBatch, 1), Plain(Dim::kKeyHead, 2),
                  Plain(Dim::kHeadDim, 3)};
  const Dims v = {Plain(Dim::kSequence, 4), Plain(Dim::kBatch, 1), Plain(Dim::kKeyHead, 1),
                  Plain(Dim::kValueInKey, 2), Plain(Dim::kHeadDim, 5)};
  const Dims gate(v.begin(), v.end() - 1);
  const std::vector<Dims> operands = {q, q, v, gate, gate};
  EXPECT_EQ(
      DeltaRuleOperation().Declare(operands).status().message(),
      "DeltaRule: v is [s=4, b=1, k=1, j=2, d=5], expected [s, b, k, j, d] with s, b and k of k = "
      "[s=4, b=1, k=2, d=3]");
}

}  // namespace
}  // namespace sumonce
