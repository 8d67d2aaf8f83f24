#include "trace/record/recording_tape.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "trace/record/lowering.h"

namespace sumonce::trace::record {
namespace {

// The dimensions after a map of a group of n ranks.
absl::StatusOr<Dims> DimsAfter(const MapArgs& args, Dims dims, int n) {
  const bool shrinks = args.map == Map::kReduceScatter || args.map == Map::kSplit;
  const bool grows = args.map == Map::kAllGather || args.map == Map::kPad;
  if (n == 1 || (!shrinks && !grows)) return dims;
  const int at = Find(dims, args.dim);
  if (at < 0 || !dims[at].plain() || dims[at].width() != 1 ||
      (shrinks && dims[at].units % n != 0)) {
    return absl::UnimplementedError(absl::StrCat("a map along ", ToAbsl(Name(args.dim)), " of ",
                                                 Describe(dims), " over ", n, " ranks"));
  }
  dims[at].units = shrinks ? dims[at].units / n : dims[at].units * n;
  return dims;
}

}  // namespace

void AppendAllReduce(Graph& graph, const std::vector<int>& ranks, std::string_view how, int x) {
  graph.Append("c10d.allreduce_", {OfTensors({x}), OfGroup(ranks), OfReduction(how)}, {x}, {x});
}

// "decoder.layers.0.mlp" of "decoder.layers.0.mlp/Swiglu#0".
void RecordingTape::EnterModule(const Node& node) {
  const size_t slash = node.name.find('/');
  graph_.module = slash == std::string::npos ? "" : node.name.substr(0, slash);
}

absl::Status RecordingTape::ForwardNode(int id, const Input* input) {
  tensors_.resize(nodes_.size(), -1);
  marks_.resize(nodes_.size());
  Node& node = nodes_[id];
  graph_.phase = Phase::kForward;
  EnterModule(node);
  const auto operand = [&](size_t i) { return tensors_[node.operands[i]]; };
  switch (node.kind) {
    case Kind::kInput:
      return ForwardInput(id, *input);
    case Kind::kUse:
      node.dims = node.param->shards.Local(mesh());
      tensors_[id] = graph_.Alias(params_.at(node.param->name).weight);
      break;
    case Kind::kLocal: {
      Application application{.operation = node.operation.get(),
                              .declaration = &node.declaration,
                              .operands = {},
                              .dims = {}};
      for (size_t i = 0; i < node.operands.size(); ++i) {
        application.operands.push_back(operand(i));
        application.dims.push_back(nodes_[node.operands[i]].dims);
      }
      marks_[id].first = graph_.mark();
      tensors_[id] = Lower(graph_, application);
      marks_[id].second = graph_.mark();
      break;
    }
    case Kind::kScale:
      tensors_[id] = graph_.Call("aten.mul.Scalar",
                                 {OfTensor(operand(0)), OfNumber(node.scale.Evaluate(mesh()))},
                                 graph_.shape(operand(0)));
      break;
    case Kind::kCollective: {
      const Collective& collective = node.collective;
      SUMONCE_ASSIGN_OR_RETURN(
          tensors_[id], Communicated(collective.group, collective.forward, operand(0), node.dims));
      SUMONCE_ASSIGN_OR_RETURN(
          node.dims, DimsAfter(collective.forward, node.dims, mesh().size(collective.group)));
      break;
    }
  }
  if (node.needs_grad) graph_.Require(tensors_[id]);
  return graph_.failure.empty() ? absl::OkStatus() : absl::UnimplementedError(graph_.failure);
}

// The whole input, of which each rank takes its slice.
absl::Status RecordingTape::ForwardInput(int id, const Input& input) {
  int tensor =
      graph_.Named(TensorKind::kInput, input.name + suffix_, ShapeOf(input.shards.whole()));
  for (const ShardMap::Cut& cut : input.shards.cuts()) {
    const Group group = mesh().GroupOf(cut.axis);
    if (mesh().size(group) == 1) continue;
    SUMONCE_ASSIGN_OR_RETURN(tensor, Communicated(group, {.map = Map::kSplit, .dim = cut.dim},
                                                  tensor, input.shards.whole()));
  }
  tensors_[id] = tensor;
  nodes_[id].dims = input.shards.Local(mesh());
  return absl::OkStatus();
}

std::vector<int> RecordingTape::DimToFront(int x, int dim) const {
  std::vector<int> order = {dim};
  for (int d = 0; d < static_cast<int>(graph_.shape(x).size()); ++d) {
    if (d != dim) order.push_back(d);
  }
  return order;
}

// Of maxima in place, as Megatron's cross-entropy: nothing else reads them.
int RecordingTape::Reduced(const Group& group, std::string_view how, int x) {
  const int out =
      how == "MAX" ? graph_.Alias(x) : graph_.Call("aten.clone", {OfTensor(x)}, graph_.shape(x));
  AppendAllReduce(graph_, mesh().Ranks(group, rank_), how, out);
  return out;
}

// c10d gathers and scatters along the first dimension.
int RecordingTape::Gathered(const Group& group, int dim, int x) {
  const std::vector<int> order = DimToFront(x, dim);
  const int rows = graph_.Contiguous(dim == 0 ? x : graph_.RawPermute(x, order));
  Extents shape = graph_.shape(rows);
  shape[0] *= mesh().size(group);
  const int out = graph_.Call("aten.empty.memory_format", {OfExtents(shape)}, shape);
  graph_.Append("c10d._allgather_base_",
                {OfTensor(out), OfTensor(rows), OfGroup(mesh().Ranks(group, rank_))}, {out}, {out});
  if (dim == 0) return out;
  std::vector<int> back(order.size());
  for (size_t d = 0; d < order.size(); ++d) back[order[d]] = static_cast<int>(d);
  return graph_.Contiguous(graph_.RawPermute(out, back));
}

int RecordingTape::Scattered(const Group& group, int dim, int x) {
  const std::vector<int> order = DimToFront(x, dim);
  const int rows = graph_.Contiguous(dim == 0 ? x : graph_.RawPermute(x, order));
  Extents shape = graph_.shape(rows);
  shape[0] /= mesh().size(group);
  const int out = graph_.Call("aten.empty.memory_format", {OfExtents(shape)}, shape);
  graph_.Append(
      "c10d._reduce_scatter_base_",
      {OfTensor(out), OfTensor(rows), OfGroup(mesh().Ranks(group, rank_)), OfReduction("SUM")},
      {out}, {out});
  if (dim == 0) return out;
  std::vector<int> back(order.size());
  for (size_t d = 0; d < order.size(); ++d) back[order[d]] = static_cast<int>(d);
  return graph_.Contiguous(graph_.RawPermute(out, back));
}

// A tensor of its own, also where nothing moves: value and result have gradients of their own.
absl::StatusOr<int> RecordingTape::Communicated(const Group& group, const MapArgs& args, int x,
                                                const Dims& dims) {
  const int n = mesh().size(group);
  if (n == 1 || args.map == Map::kIdentity) return graph_.Alias(x);
  SUMONCE_RETURN_IF_ERROR(DimsAfter(args, dims, n).status());
  const int dim = Find(dims, args.dim);
  const int64_t index = mesh().RankIn(group, rank_);
  switch (args.map) {
    case Map::kSum:
      return Reduced(group, "SUM", x);
    case Map::kAvg:
      return Reduced(group, "AVG", x);
    case Map::kMax:
      return Reduced(group, "MAX", x);
    case Map::kReduceScatter:
      return Scattered(group, dim, x);
    case Map::kAllGather:
      return Gathered(group, dim, x);
    case Map::kSplit: {
      const int64_t own = graph_.shape(x)[dim] / n;
      const int slice = graph_.RawSlice(graph_.Contiguous(x), dim, index * own, (index + 1) * own);
      return graph_.Call("aten.clone", {OfTensor(slice)}, graph_.shape(slice));
    }
    case Map::kPad: {
      Extents whole = graph_.shape(x);
      const int64_t own = whole[dim];
      whole[dim] *= n;
      return graph_.Call("aten.slice_backward",
                         {OfTensor(x), OfExtents(whole), OfInteger(dim), OfInteger(index * own),
                          OfInteger((index + 1) * own), OfInteger(1)},
                         whole);
    }
    default:
      return absl::UnimplementedError(absl::StrCat("the map ", ToAbsl(Name(args.map))));
  }
}

absl::Status RecordingTape::SeedNode(int id) {
  graph_.phase = Phase::kBackward;
  const int loss = tensors_[id];
  graph_.Accumulate(loss, graph_.Call("aten.ones_like", {OfTensor(loss)}, graph_.shape(loss)));
  return absl::OkStatus();
}

absl::Status RecordingTape::BackwardNode(int id) {
  const Node& node = nodes_[id];
  const auto arrived = graph_.grad(tensors_[id]);
  if (!arrived) return absl::OkStatus();
  graph_.phase = Phase::kBackward;
  EnterModule(node);
  switch (node.kind) {
    case Kind::kInput:
      break;
    case Kind::kUse: {
      const int grad = on_term ? on_term(*node.param, *arrived) : *arrived;
      const int buffer = params_.at(node.param->name).grad;
      graph_.Append("aten.add_.Tensor", {OfTensor(buffer), OfTensor(grad)}, {buffer}, {buffer});
      break;
    }
    case Kind::kLocal:
      graph_.Backward(marks_[id].first, marks_[id].second);
      break;
    case Kind::kScale:
      graph_.Accumulate(tensors_[node.operands[0]],
                        graph_.Call("aten.mul.Scalar",
                                    {OfTensor(*arrived), OfNumber(node.scale.Evaluate(mesh()))},
                                    graph_.shape(*arrived)));
      break;
    case Kind::kCollective: {
      SUMONCE_ASSIGN_OR_RETURN(
          const int grad,
          Communicated(node.collective.group, node.collective.backward, *arrived, node.dims));
      const int operand = tensors_[node.operands[0]];
      if (graph_.shape(grad) != graph_.shape(operand)) {
        return absl::InvalidArgumentError(
            absl::StrCat(node.name, " backward: the gradient is ", ShapeText(graph_.shape(grad)),
                         ", its value ", ShapeText(graph_.shape(operand))));
      }
      graph_.Accumulate(operand, grad);
      break;
    }
  }
  return graph_.failure.empty() ? absl::OkStatus() : absl::UnimplementedError(graph_.failure);
}

}  // namespace sumonce::trace::record
