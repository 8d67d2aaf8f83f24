#include "spmd/numeric_tape.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace sumonce {
namespace {

Buffer BufferOf(const Tensor& tensor) {
  return {.data = const_cast<double*>(tensor.data()),
          .count = tensor.count(),
          .dtype = DType::kFloat64};
}

// n blocks one after the other, as the collectives want them.
Tensor Blocks(const Tensor& x, Dim dim, int n) {
  std::vector<double> packed;
  packed.reserve(x.count());
  for (int k = 0; k < n; ++k) {
    const Tensor block = SliceUnits(x, dim, k, n);
    packed.insert(packed.end(), block.data(), block.data() + block.count());
  }
  return Tensor({Plain(Dim::kIn, x.count())}, std::move(packed));
}

Tensor JoinBlocks(const Tensor& packed, const Dims& block_dims, Dim dim, int n) {
  std::vector<Tensor> blocks;
  const int64_t count = Count(block_dims);
  for (int k = 0; k < n; ++k) {
    blocks.emplace_back(block_dims, std::vector<double>(packed.data() + k * count,
                                                        packed.data() + (k + 1) * count));
  }
  return JoinUnits(blocks, dim);
}

absl::Status CheckDim(const Tensor& x, Dim dim, int divisor, std::string_view label) {
  const int position = Find(x.dims(), dim);
  if (position < 0) {
    return absl::InvalidArgumentError(absl::StrCat(ToAbsl(label), ": ", Describe(x.dims()),
                                                   " has no dimension ", ToAbsl(Name(dim))));
  }
  if (x.dims()[position].units % divisor != 0) {
    return absl::InvalidArgumentError(absl::StrCat(ToAbsl(label), ": dimension ", ToAbsl(Name(dim)),
                                                   " of ", Describe(x.dims()),
                                                   " cannot be cut into ", divisor));
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> Reduce(Communicator& comm, ReduceOp op, const Tensor& x,
                              std::string_view label) {
  Tensor out(x.dims());
  SUMONCE_RETURN_IF_ERROR(comm.AllReduce(BufferOf(x), BufferOf(out), op, label));
  return out;
}

absl::StatusOr<Tensor> RunReduceScatter(Communicator& comm, Dim dim, const Tensor& x,
                                        std::string_view label) {
  const int n = comm.size();
  SUMONCE_RETURN_IF_ERROR(CheckDim(x, dim, n, label));
  Dims dims = x.dims();
  dims[Find(dims, dim)].units /= n;
  Tensor out(dims);
  SUMONCE_RETURN_IF_ERROR(
      comm.ReduceScatter(BufferOf(Blocks(x, dim, n)), BufferOf(out), ReduceOp::kSum, label));
  return out;
}

absl::StatusOr<Tensor> RunAllGather(Communicator& comm, Dim dim, const Tensor& x,
                                    std::string_view label) {
  const int n = comm.size();
  SUMONCE_RETURN_IF_ERROR(CheckDim(x, dim, 1, label));
  Tensor packed({Plain(Dim::kIn, x.count() * n)});
  SUMONCE_RETURN_IF_ERROR(comm.AllGather(BufferOf(x), BufferOf(packed), label));
  return JoinBlocks(packed, x.dims(), dim, n);
}

absl::StatusOr<Tensor> RunAllToAll(Communicator& comm, Dim from, Dim to, const Tensor& x,
                                   std::string_view label) {
  const int n = comm.size();
  SUMONCE_RETURN_IF_ERROR(CheckDim(x, from, 1, label));
  SUMONCE_RETURN_IF_ERROR(CheckDim(x, to, n, label));
  Tensor packed({Plain(Dim::kIn, x.count())});
  SUMONCE_RETURN_IF_ERROR(comm.AllToAll(BufferOf(Blocks(x, to, n)), BufferOf(packed), label));
  Dims block = x.dims();
  block[Find(block, to)].units /= n;
  return JoinBlocks(packed, block, from, n);
}

}  // namespace

absl::StatusOr<GroupComms> GroupComms::Create(Communicator& world, const Mesh& mesh,
                                              const std::vector<Group>& groups) {
  GroupComms comms;
  for (const Group& group : groups) {
    if (mesh.size(group) == 1 || comms.comms_.contains(group.name)) continue;
    const std::vector<int> ranks = mesh.Ranks(group, world.rank());
    const int color = *std::min_element(ranks.begin(), ranks.end());
    SUMONCE_ASSIGN_OR_RETURN(comms.comms_[group.name],
                             world.Split(color, mesh.RankIn(group, world.rank()), group.name));
  }
  return comms;
}

absl::StatusOr<Communicator*> GroupComms::Find(const Group& group) const {
  const auto found = comms_.find(group.name);
  if (found == comms_.end())
    return absl::NotFoundError(absl::StrCat("no communicator for the group ", group.name));
  return found->second.get();
}

absl::StatusOr<Tensor> RunMap(const MapArgs& args, const Group& group, const Mesh& mesh, int rank,
                              Communicator* comm, const Tensor& x, std::string_view label) {
  const int n = mesh.size(group);
  if (n == 1 || args.map == Map::kIdentity) return x;
  const int index = mesh.RankIn(group, rank);
  switch (args.map) {
    case Map::kIdentity:
      return x;
    case Map::kSum:
      return Reduce(*comm, ReduceOp::kSum, x, label);
    case Map::kAvg:
      return Reduce(*comm, ReduceOp::kAvg, x, label);
    case Map::kMax:
      return Reduce(*comm, ReduceOp::kMax, x, label);
    case Map::kReduceScatter:
      return RunReduceScatter(*comm, args.dim, x, label);
    case Map::kAllGather:
      return RunAllGather(*comm, args.dim, x, label);
    case Map::kAllToAll:
      return RunAllToAll(*comm, args.dim, args.other_dim, x, label);
    case Map::kSplit:
      SUMONCE_RETURN_IF_ERROR(CheckDim(x, args.dim, n, label));
      return SliceUnits(x, args.dim, index, n);
    case Map::kPad:
      SUMONCE_RETURN_IF_ERROR(CheckDim(x, args.dim, 1, label));
      return PadUnits(x, args.dim, index, n);
    case Map::kOwn:
      return index == 0 ? x : Tensor(x.dims());
    case Map::kStop:
      break;
  }
  SUMONCE_CHECK(false) << "map " << Name(args.map) << " moves no data";
  return x;
}

absl::Status NumericTape::ForwardNode(int id, const Input* input) {
  values_.resize(nodes_.size());
  Node& node = nodes_[id];
  switch (node.kind) {
    case Kind::kInput:
      values_[id] = ValueOf(*input, node.name);
      break;
    case Kind::kUse:
      SUMONCE_CHECK(!node.param->weight.empty()) << node.param->name << " has no weight";
      values_[id] = node.param->weight;
      break;
    case Kind::kLocal: {
      std::vector<Tensor> in;
      for (int operand : node.operands) in.push_back(values_[operand]);
      values_[id] = Tensor(node.declaration.result);
      node.operation->Forward(in, values_[id]);
      break;
    }
    case Kind::kScale:
      values_[id] = values_[node.operands[0]].Clone();
      ScaleInto(values_[id], node.scale.Evaluate(mesh()));
      break;
    case Kind::kCollective: {
      SUMONCE_ASSIGN_OR_RETURN(
          values_[id], Communicated(node, node.collective.forward, values_[node.operands[0]], ""));
      break;
    }
  }
  node.dims = values_[id].dims();
  return absl::OkStatus();
}

Tensor NumericTape::ValueOf(const Input& input, const std::string& name) const {
  if (input.whole) return input.shards.Slice(*input.whole, mesh(), rank_);
  SUMONCE_CHECK(input.element != nullptr) << name << " has no numbers";
  Tensor own(input.shards.Local(mesh()));
  const std::vector<int64_t> indices = input.shards.GlobalIndices(mesh(), rank_);
  for (size_t i = 0; i < indices.size(); ++i) own.data()[i] = input.element(indices[i]);
  return own;
}

absl::StatusOr<Tensor> NumericTape::Communicated(const Node& node, const MapArgs& args,
                                                 const Tensor& x, std::string_view direction) {
  Communicator* comm = nullptr;
  const Group& group = node.collective.group;
  const bool moves = args.map != Map::kIdentity && args.map != Map::kSplit &&
                     args.map != Map::kPad && args.map != Map::kOwn;
  if (moves && mesh().size(group) > 1) {
    SUMONCE_CHECK(comms_ != nullptr) << node.name << " on a mesh without communicators";
    SUMONCE_ASSIGN_OR_RETURN(comm, comms_->Find(group));
  }
  return RunMap(args, group, mesh(), rank_, comm, x,
                absl::StrCat(node.name, ToAbsl(direction)).c_str());
}

absl::Status NumericTape::SeedNode(int id) {
  grads_.assign(nodes_.size(), Tensor());
  grads_[id] = Tensor(nodes_[id].dims, std::vector<double>(values_[id].count(), 1.0));
  return absl::OkStatus();
}

absl::Status NumericTape::BackwardNode(int id) {
  const Node& node = nodes_[id];
  if (grads_[id].empty()) return absl::OkStatus();
  switch (node.kind) {
    case Kind::kInput:
    case Kind::kUse:
      return absl::OkStatus();
    case Kind::kLocal:
      SUMONCE_RETURN_IF_ERROR(BackwardLocal(id));
      break;
    case Kind::kScale: {
      Tensor grad = grads_[id].Clone();
      ScaleInto(grad, node.scale.Evaluate(mesh()));
      SUMONCE_RETURN_IF_ERROR(Accumulate(node.operands[0], id, std::move(grad)));
      break;
    }
    case Kind::kCollective: {
      SUMONCE_ASSIGN_OR_RETURN(
          Tensor grad, Communicated(node, node.collective.backward, grads_[id], " backward"));
      SUMONCE_RETURN_IF_ERROR(Accumulate(node.operands[0], id, std::move(grad)));
      break;
    }
  }
  if (!keep_gradients_) grads_[id] = Tensor();
  return absl::OkStatus();
}

absl::Status NumericTape::BackwardLocal(int id) {
  const Node& node = nodes_[id];
  std::vector<Tensor> in;
  std::vector<Tensor> grad_in;
  for (int operand : node.operands) {
    in.push_back(values_[operand]);
    grad_in.push_back(nodes_[operand].needs_grad ? Tensor(values_[operand].dims()) : Tensor());
  }
  node.operation->Backward(in, values_[id], grads_[id], grad_in);
  for (size_t i = 0; i < in.size(); ++i) {
    if (!grad_in[i].empty())
      SUMONCE_RETURN_IF_ERROR(Accumulate(node.operands[i], id, std::move(grad_in[i])));
  }
  return absl::OkStatus();
}

absl::Status NumericTape::Accumulate(int operand, int from, Tensor grad) {
  const Dims& dims = nodes_[operand].dims;
  if (!(grad.dims() == dims)) {
    return absl::InvalidArgumentError(
        absl::StrCat(nodes_[from].name, " backward: the gradient has ", Describe(grad.dims()),
                     ", its value ", Describe(dims)));
  }
  if (keep_gradients_) edges_[{from, operand}] = grad;
  if (grads_[operand].empty()) {
    // A collective may hand back the very gradient it was given: own elements before adding to
    // them.
    grads_[operand] = std::move(grad);
    return absl::OkStatus();
  }
  Tensor sum = grads_[operand].Clone();
  AddInto(sum, grad);
  grads_[operand] = std::move(sum);
  return absl::OkStatus();
}

}  // namespace sumonce
