#include "trace/record/lowering_mixers.h"

#include <cmath>
#include <limits>

namespace sumonce::trace::record {
namespace {

// 1 above the diagonal.
int FutureMask(Graph& graph, int64_t tokens) {
  const Extents square = {tokens, tokens};
  const int ones = graph.Call("aten.ones", {OfExtents(square)}, square, "bool");
  return graph.Call("aten.triu", {OfTensor(ones), OfInteger(1)}, square, "bool");
}

// k or v [s, b, g, d], each head for all queries of its group: [b g q, s, d].
int ForQueries(Graph& graph, int x, int64_t queries) {
  const Extents shape = graph.shape(x);
  const int64_t s = shape[0], b = shape[1], g = shape[2], d = shape[3];
  const int rows = graph.View(graph.Permute(x, {1, 2, 0, 3}), {b, g, 1, s, d});
  return graph.View(graph.Expand(rows, {b, g, queries, s, d}), {b * g * queries, s, d});
}

}  // namespace

// q [s, b, g, q, d], k [s, b, g, d], v [s, b, g, e].
int LowerAttention(Graph& graph, const Application& at) {
  const Extents shape = graph.shape(at.operands[0]);
  const int64_t s = shape[0], b = shape[1], g = shape[2], heads = shape[3], d = shape[4];
  const int q = graph.View(graph.Permute(at.operands[0], {1, 2, 3, 0, 4}), {b * g * heads, s, d});
  const int k = ForQueries(graph, at.operands[1], heads);
  const int v = ForQueries(graph, at.operands[2], heads);
  const int scores = graph.Times(graph.MatMul(q, graph.Permute(k, {0, 2, 1})),
                                 1.0 / std::sqrt(static_cast<double>(d)));
  const int seen =
      graph.MaskedFill(scores, FutureMask(graph, s), -std::numeric_limits<double>::infinity());
  const int context = graph.MatMul(graph.Softmax(seen), v);
  const int64_t entries = graph.shape(at.operands[2])[3];
  const int apart = graph.View(context, {b, g, heads, s, entries});
  return graph.Contiguous(graph.Permute(apart, {3, 0, 1, 2, 4}));
}

// x [s, b, c], weight [c, t].
int LowerCausalConv(Graph& graph, const Application& at) {
  const Extents x = graph.shape(at.operands[0]), weight = graph.shape(at.operands[1]);
  const int64_t taps = weight[1];
  const int lines = graph.Permute(at.operands[0], {1, 2, 0});
  const int y =
      graph.DepthwiseConvolution(lines, graph.View(at.operands[1], {weight[0], 1, taps}), taps - 1);
  return graph.Contiguous(graph.Permute(graph.Slice(y, 2, 0, x[0]), {2, 0, 1}));
}

// The recurrence token by token: q and k [s, b, K, d], v [s, b, K, j, e], g and beta [s, b, K, j].
//   S' = e^g S;  u = beta (v - S'^T k);  S = S' + k u^T;  o = S^T q / sqrt(d).
int LowerDeltaRule(Graph& graph, const Application& at) {
  const Extents key = graph.shape(at.operands[0]), value = graph.shape(at.operands[2]);
  const int64_t s = key[0], j = value[3], d = key[3], e = value[4];
  const int64_t heads = key[1] * key[2] * j;
  // [s, heads, 1, d], each key head for all of its value heads.
  const auto per_value = [&](int x) {
    const int one = graph.View(x, {s, key[1], key[2], 1, d});
    return graph.View(graph.Expand(one, {s, key[1], key[2], j, d}), {s, heads, 1, d});
  };
  const int q = per_value(at.operands[0]), k = per_value(at.operands[1]);
  const int v = graph.View(at.operands[2], {s, heads, 1, e});
  const int alpha = graph.View(graph.Apply(Function::kExp, at.operands[3]), {s, heads, 1, 1});
  const int beta = graph.View(at.operands[4], {s, heads, 1, 1});
  std::vector<int> outputs;
  int state = -1;
  for (int64_t t = 0; t < s; ++t) {
    const int k_t = graph.Select(k, 0, t);
    int error = graph.Select(v, 0, t);
    if (state >= 0) {
      state = graph.Multiply(state, graph.Select(alpha, 0, t));
      error = graph.Subtract(error, graph.MatMul(k_t, state));
    }
    const int update = graph.Multiply(error, graph.Select(beta, 0, t));
    const int written = graph.MatMul(graph.Permute(k_t, {0, 2, 1}), update);
    state = state >= 0 ? graph.Add(state, written) : written;
    outputs.push_back(graph.Times(graph.MatMul(graph.Select(q, 0, t), state),
                                  1.0 / std::sqrt(static_cast<double>(d))));
  }
  return graph.View(graph.Stack(outputs), value);
}

}  // namespace sumonce::trace::record
