#include "trace/record/graph.h"

#include <algorithm>

#include "base/status.h"

namespace sumonce::trace::record {
namespace {

Geometry ContiguousOf(const Extents& shape) {
  Geometry geometry{.offset = 0, .shape = shape, .strides = Extents(shape.size(), 1)};
  for (size_t d = shape.size(); d-- > 1;) geometry.strides[d - 1] = geometry.strides[d] * shape[d];
  return geometry;
}

Argument OfDims(const std::vector<int>& dims) {
  Argument list{.kind = Argument::Kind::kList};
  for (const int dim : dims) list.items.push_back(OfInteger(dim));
  return list;
}

Extents Reduced(const Extents& shape, const std::vector<int>& dims, bool keep) {
  Extents out;
  for (size_t d = 0; d < shape.size(); ++d) {
    const bool over = std::find(dims.begin(), dims.end(), static_cast<int>(d)) != dims.end();
    if (!over) out.push_back(shape[d]);
    if (over && keep) out.push_back(1);
  }
  return out;
}

Extents Broadcast(const Extents& a, const Extents& b) {
  Extents out(std::max(a.size(), b.size()), 1);
  for (const Extents* shape : {&a, &b}) {
    const size_t from = out.size() - shape->size();
    for (size_t d = 0; d < shape->size(); ++d) out[from + d] = std::max(out[from + d], (*shape)[d]);
  }
  return out;
}

}  // namespace

Argument OfTensor(int id) { return {.kind = Argument::Kind::kTensor, .integer = id}; }
Argument OfTensors(const std::vector<int>& ids) {
  Argument list{.kind = Argument::Kind::kList};
  for (const int id : ids) list.items.push_back(OfTensor(id));
  return list;
}
Argument OfInteger(int64_t integer) {
  return {
      .kind = Argument::Kind::kInteger, .integer = integer, .number = static_cast<double>(integer)};
}
Argument OfNumber(double number) { return {.kind = Argument::Kind::kFloat, .number = number}; }
Argument OfFlag(bool flag) { return {.kind = Argument::Kind::kBool, .integer = flag}; }
Argument OfExtents(const Extents& extents) {
  Argument list{.kind = Argument::Kind::kList};
  for (const int64_t extent : extents) list.items.push_back(OfInteger(extent));
  return list;
}
Argument OfGroup(const std::vector<int>& ranks) {
  Argument group{.kind = Argument::Kind::kGroup};
  for (const int rank : ranks) group.items.push_back(OfInteger(rank));
  return group;
}
Argument OfReduction(std::string_view name) {
  return {.kind = Argument::Kind::kReduce, .text = name};
}

// ---- Tensors.

std::string_view Graph::Keep(const std::string& text) { return program_.text->emplace_back(text); }

int Graph::Made(const Extents& shape, std::string_view dtype) {
  program_.tensors.push_back(
      {.defined = true, .storage = storages_++, .geometry = ContiguousOf(shape), .dtype = dtype});
  return static_cast<int>(program_.tensors.size()) - 1;
}

int Graph::Seen(int id, Geometry geometry) {
  TensorInfo info = program_.tensors[id];
  info.geometry = std::move(geometry);
  info.kind = TensorKind::kPlain;
  info.name = {};
  info.outside = false;
  program_.tensors.push_back(std::move(info));
  return static_cast<int>(program_.tensors.size()) - 1;
}

int Graph::Named(TensorKind kind, const std::string& name, const Extents& shape) {
  const int id = Made(shape);
  program_.tensors[id].kind = kind;
  program_.tensors[id].name = Keep(name);
  return id;
}

int Graph::Outside(const Extents& shape, const std::string& digest) {
  const int id = Made(shape);
  program_.tensors[id].outside = true;
  program_.tensors[id].digest = Keep(digest);
  return id;
}

// ---- Operations.

void Graph::Append(std::string_view op, std::vector<Argument> args, std::vector<int> outs,
                   std::vector<int> writes) {
  Operation operation;
  operation.name = op;
  operation.module = Keep(module);
  operation.phase = phase;
  operation.args = std::move(args);
  operation.outs.assign(outs.begin(), outs.end());
  operation.writes.assign(writes.begin(), writes.end());
  program_.ops.push_back(std::move(operation));
}

int Graph::Call(std::string_view op, std::vector<Argument> args, const Extents& out,
                std::string_view dtype) {
  const int id = Made(out, dtype);
  Append(op, std::move(args), {id});
  return id;
}

bool Graph::IsContiguous(int id) const {
  const Geometry& geometry = program_.tensors[id].geometry;
  return geometry.strides == ContiguousOf(geometry.shape).strides;
}

int Graph::Raw(int id, const Extents& shape) {
  if (this->shape(id) == shape) return id;
  if (!IsContiguous(id)) id = Call("aten.clone", {OfTensor(id)}, this->shape(id));
  Geometry seen = ContiguousOf(shape);
  seen.offset = program_.tensors[id].geometry.offset;
  const int view = Seen(id, std::move(seen));
  Append("aten.view", {OfTensor(id), OfExtents(shape)}, {view});
  return view;
}

int Graph::RawPermute(int id, const std::vector<int>& order) {
  const Geometry& from = program_.tensors[id].geometry;
  Geometry to{.offset = from.offset, .shape = {}, .strides = {}};
  for (const int dim : order) {
    to.shape.push_back(from.shape[dim]);
    to.strides.push_back(from.strides[dim]);
  }
  const int view = Seen(id, std::move(to));
  Append("aten.permute", {OfTensor(id), OfDims(order)}, {view});
  return view;
}

int Graph::RawSlice(int id, int dim, int64_t begin, int64_t end) {
  Geometry part = program_.tensors[id].geometry;
  part.offset += begin * part.strides[dim];
  part.shape[dim] = end - begin;
  const int view = Seen(id, std::move(part));
  Append("aten.slice.Tensor", {OfTensor(id), OfInteger(dim), OfInteger(begin), OfInteger(end)},
         {view});
  return view;
}

// ---- Differentiable ones.

int Graph::Differentiable(int out, std::vector<int> in, std::function<void(int grad)> derivative) {
  const bool any = std::any_of(in.begin(), in.end(), [&](int id) { return required(id); });
  if (!any) return out;
  Require(out);
  steps_.push_back({.out = out, .in = std::move(in), .derivative = std::move(derivative)});
  return out;
}

int Graph::Alias(int id) {
  const Geometry same = program_.tensors[id].geometry;
  const int alias = Seen(id, same);
  Append("aten.alias", {OfTensor(id)}, {alias});
  return alias;
}

int Graph::View(int id, const Extents& to) {
  if (shape(id) == to) return id;
  const Extents from = shape(id);
  return Differentiable(Raw(id, to), {id},
                        [=, this](int grad) { Accumulate(id, Raw(grad, from)); });
}

int Graph::Contiguous(int id) {
  if (IsContiguous(id)) return id;
  return Differentiable(Call("aten.clone", {OfTensor(id)}, shape(id)), {id},
                        [=, this](int grad) { Accumulate(id, grad); });
}

int Graph::Permute(int id, const std::vector<int>& order) {
  std::vector<int> back(order.size());
  for (size_t d = 0; d < order.size(); ++d) back[order[d]] = static_cast<int>(d);
  return Differentiable(RawPermute(id, order), {id},
                        [=, this](int grad) { Accumulate(id, RawPermute(grad, back)); });
}

int Graph::Slice(int id, int dim, int64_t begin, int64_t end) {
  const Extents from = shape(id);
  return Differentiable(RawSlice(id, dim, begin, end), {id}, [=, this](int grad) {
    Accumulate(id, Call("aten.slice_backward",
                        {OfTensor(grad), OfExtents(from), OfInteger(dim), OfInteger(begin),
                         OfInteger(end), OfInteger(1)},
                        from));
  });
}

int Graph::Select(int id, int dim, int64_t index) {
  const Extents from = shape(id);
  Geometry part = program_.tensors[id].geometry;
  part.offset += index * part.strides[dim];
  part.shape.erase(part.shape.begin() + dim);
  part.strides.erase(part.strides.begin() + dim);
  const int view = Seen(id, std::move(part));
  Append("aten.select.int", {OfTensor(id), OfInteger(dim), OfInteger(index)}, {view});
  return Differentiable(view, {id}, [=, this](int grad) {
    Accumulate(id, Call("aten.select_backward",
                        {OfTensor(grad), OfExtents(from), OfInteger(dim), OfInteger(index)}, from));
  });
}

int Graph::Stack(const std::vector<int>& ids) {
  Extents to = shape(ids[0]);
  to.insert(to.begin(), static_cast<int64_t>(ids.size()));
  const int out = Call("aten.stack", {OfTensors(ids), OfInteger(0)}, to);
  return Differentiable(out, ids, [=, this](int grad) {
    for (size_t k = 0; k < ids.size(); ++k)
      Accumulate(ids[k], Select(grad, 0, static_cast<int64_t>(k)));
  });
}

int Graph::Cat(const std::vector<int>& ids, int dim) {
  Extents to = shape(ids[0]);
  to[dim] = 0;
  for (const int id : ids) to[dim] += shape(id)[dim];
  const int out = Call("aten.cat", {OfTensors(ids), OfInteger(dim)}, to);
  return Differentiable(out, ids, [=, this](int grad) {
    int64_t begin = 0;
    for (const int id : ids) {
      const int64_t end = begin + shape(id)[dim];
      Accumulate(id, RawSlice(grad, dim, begin, end));
      begin = end;
    }
  });
}

int Graph::Expand(int id, const Extents& to) {
  const Extents from = shape(id);
  if (from == to) return id;
  Geometry repeated = program_.tensors[id].geometry;
  for (size_t d = 0; d < to.size(); ++d) {
    if (repeated.shape[d] != to[d]) repeated.strides[d] = 0;
    repeated.shape[d] = to[d];
  }
  const int view = Seen(id, std::move(repeated));
  Append("aten.expand", {OfTensor(id), OfExtents(to)}, {view});
  return Differentiable(view, {id},
                        [=, this](int grad) { Accumulate(id, Unbroadcast(grad, from)); });
}

// The gradient of what was repeated: summed over its repetitions.
int Graph::Unbroadcast(int grad, const Extents& to) {
  const Extents from = shape(grad);
  if (from == to) return grad;
  std::vector<int> dims;
  const size_t leading = from.size() - to.size();
  for (size_t d = 0; d < from.size(); ++d) {
    if (d < leading || (to[d - leading] == 1 && from[d] != 1)) dims.push_back(static_cast<int>(d));
  }
  const int sum = Call("aten.sum.dim_IntList", {OfTensor(grad), OfDims(dims), OfFlag(true)},
                       Reduced(from, dims, true));
  return Raw(sum, to);
}

int Graph::Add(int a, int b) {
  const Extents sa = shape(a), sb = shape(b);
  const int out = Call("aten.add.Tensor", {OfTensor(a), OfTensor(b)}, Broadcast(sa, sb));
  return Differentiable(out, {a, b}, [=, this](int grad) {
    if (required(a)) Accumulate(a, Unbroadcast(grad, sa));
    if (required(b)) Accumulate(b, Unbroadcast(grad, sb));
  });
}

int Graph::Subtract(int a, int b) {
  const Extents sa = shape(a), sb = shape(b);
  const int out = Call("aten.sub.Tensor", {OfTensor(a), OfTensor(b)}, Broadcast(sa, sb));
  return Differentiable(out, {a, b}, [=, this](int grad) {
    if (required(a)) Accumulate(a, Unbroadcast(grad, sa));
    if (required(b))
      Accumulate(b, Unbroadcast(Call("aten.neg", {OfTensor(grad)}, shape(grad)), sb));
  });
}

int Graph::Multiply(int a, int b) {
  const Extents sa = shape(a), sb = shape(b);
  const auto product = [this](int x, int y) {
    return Call("aten.mul.Tensor", {OfTensor(x), OfTensor(y)}, Broadcast(shape(x), shape(y)));
  };
  return Differentiable(product(a, b), {a, b}, [=, this](int grad) {
    if (required(a)) Accumulate(a, Unbroadcast(product(grad, b), sa));
    if (required(b)) Accumulate(b, Unbroadcast(product(grad, a), sb));
  });
}

int Graph::Times(int id, double number) {
  const auto scaled = [=, this](int x) {
    return Call("aten.mul.Scalar", {OfTensor(x), OfNumber(number)}, shape(x));
  };
  return Differentiable(scaled(id), {id}, [=, this](int grad) { Accumulate(id, scaled(grad)); });
}

int Graph::Plus(int id, double number) {
  const int out = Call("aten.add.Scalar", {OfTensor(id), OfNumber(number)}, shape(id));
  return Differentiable(out, {id}, [=, this](int grad) { Accumulate(id, grad); });
}

int Graph::Apply(Function function, int id) {
  const auto call = [&](std::string_view op) { return Call(op, {OfTensor(id)}, shape(id)); };
  const auto derived = [this](std::string_view op, int grad, int at, std::vector<Argument> more) {
    std::vector<Argument> args = {OfTensor(grad), OfTensor(at)};
    args.insert(args.end(), more.begin(), more.end());
    return Call(op, std::move(args), shape(grad));
  };
  switch (function) {
    case Function::kExp: {
      const int y = call("aten.exp");
      return Differentiable(y, {id}, [=, this](int grad) {
        Accumulate(id, derived("aten.mul.Tensor", grad, y, {}));
      });
    }
    case Function::kLog:
      return Differentiable(call("aten.log"), {id}, [=, this](int grad) {
        Accumulate(id, derived("aten.div.Tensor", grad, id, {}));
      });
    case Function::kSigmoid: {
      const int y = call("aten.sigmoid");
      return Differentiable(y, {id}, [=, this](int grad) {
        Accumulate(id, derived("aten.sigmoid_backward", grad, y, {}));
      });
    }
    case Function::kSilu:
      return Differentiable(call("aten.silu"), {id}, [=, this](int grad) {
        Accumulate(id, derived("aten.silu_backward", grad, id, {}));
      });
    case Function::kGelu:  // in either form
      return Differentiable(call("aten.gelu"), {id}, [=, this](int grad) {
        Accumulate(id, derived("aten.gelu_backward", grad, id, {}));
      });
    case Function::kRelu: {
      const int y = call("aten.relu");
      return Differentiable(y, {id}, [=, this](int grad) {
        Accumulate(id, derived("aten.threshold_backward", grad, y, {OfNumber(0)}));
      });
    }
    case Function::kSoftplus:
      return Differentiable(call("aten.softplus"), {id}, [=, this](int grad) {
        Accumulate(id, derived("aten.softplus_backward", grad, id, {OfNumber(1), OfNumber(20)}));
      });
    case Function::kRsqrt:
      break;
  }
  const int y = call("aten.rsqrt");  // dy = -y^3 / 2
  return Differentiable(y, {id}, [=, this](int grad) {
    const int cube = Call("aten.pow.Tensor_Scalar", {OfTensor(y), OfInteger(3)}, shape(y));
    const int slope = Call("aten.mul.Scalar", {OfTensor(cube), OfNumber(-0.5)}, shape(y));
    Accumulate(id, derived("aten.mul.Tensor", grad, slope, {}));
  });
}

int Graph::Square(int id) {
  const int out = Call("aten.pow.Tensor_Scalar", {OfTensor(id), OfInteger(2)}, shape(id));
  return Differentiable(out, {id}, [=, this](int grad) {
    const int twice = Call("aten.mul.Scalar", {OfTensor(id), OfNumber(2)}, shape(id));
    Accumulate(id, Call("aten.mul.Tensor", {OfTensor(grad), OfTensor(twice)}, shape(grad)));
  });
}

int Graph::Sum(int id, const std::vector<int>& dims, bool keep) {
  const Extents from = shape(id), kept = Reduced(from, dims, true);
  const int out = Call("aten.sum.dim_IntList", {OfTensor(id), OfDims(dims), OfFlag(keep)},
                       Reduced(from, dims, keep));
  return Differentiable(out, {id},
                        [=, this](int grad) { Accumulate(id, Expand(Raw(grad, kept), from)); });
}

int Graph::Mean(int id, const std::vector<int>& dims) {
  const Extents from = shape(id);
  int64_t count = 1;
  for (const int dim : dims) count *= from[dim];
  const int out =
      Call("aten.mean.dim", {OfTensor(id), OfDims(dims), OfFlag(true)}, Reduced(from, dims, true));
  return Differentiable(out, {id}, [=, this](int grad) {
    const int whole = Expand(grad, from);
    Accumulate(id, Call("aten.div.Scalar", {OfTensor(whole), OfInteger(count)}, from));
  });
}

int Graph::Maximum(int id) {
  const int last = static_cast<int>(shape(id).size()) - 1;
  const int out = Call("aten.amax", {OfTensor(id), OfDims({last}), OfFlag(false)},
                       Reduced(shape(id), {last}, false));
  return Differentiable(out, {id}, [this](int) { failure = "the derivative of a maximum"; });
}

int Graph::Softmax(int id) {
  const int out = Call("aten._softmax", {OfTensor(id), OfInteger(-1), OfFlag(false)}, shape(id));
  return Differentiable(out, {id}, [=, this](int grad) {
    Accumulate(id, Call("aten._softmax_backward_data",
                        {OfTensor(grad), OfTensor(out), OfInteger(-1), Argument{}}, shape(id)));
  });
}

int Graph::MaskedFill(int id, int mask, double number) {
  const auto filled = [=, this](int x, double with) {
    return Call("aten.masked_fill.Scalar", {OfTensor(x), OfTensor(mask), OfNumber(with)}, shape(x));
  };
  return Differentiable(filled(id, number), {id},
                        [=, this](int grad) { Accumulate(id, filled(grad, 0)); });
}

int Graph::Transposed(int id) {
  std::vector<int> order;
  for (size_t d = 0; d < shape(id).size(); ++d) order.push_back(static_cast<int>(d));
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  return RawPermute(id, order);
}

int Graph::MatMul(int a, int b) {
  const auto product = [this](int x, int y) {
    Extents out = shape(x);
    out.back() = shape(y).back();
    return Call(out.size() == 2 ? "aten.mm" : "aten.bmm", {OfTensor(x), OfTensor(y)}, out);
  };
  return Differentiable(product(a, b), {a, b}, [=, this](int grad) {
    if (required(a)) Accumulate(a, product(grad, Transposed(b)));
    if (required(b)) Accumulate(b, product(Transposed(a), grad));
  });
}

// x [b, c, l], weight [c, 1, k]: out [b, c, l + 2 padding - k + 1].
int Graph::DepthwiseConvolution(int x, int weight, int64_t padding) {
  const Extents one = {1}, none = {0};
  Extents out = shape(x);
  out[2] += 2 * padding - shape(weight)[2] + 1;
  const Argument groups = OfInteger(shape(x)[1]);
  const int y = Call("aten.convolution",
                     {OfTensor(x), OfTensor(weight), Argument{}, OfExtents(one),
                      OfExtents({padding}), OfExtents(one), OfFlag(false), OfExtents(none), groups},
                     out);
  return Differentiable(y, {x, weight}, [=, this](int grad) {
    const int to_x = Made(shape(x)), to_weight = Made(shape(weight));
    Argument mask{.kind = Argument::Kind::kList,
                  .items = {OfFlag(true), OfFlag(true), OfFlag(false)}};
    Append("aten.convolution_backward",
           {OfTensor(grad), OfTensor(x), OfTensor(weight), OfExtents(none), OfExtents(one),
            OfExtents({padding}), OfExtents(one), OfFlag(false), OfExtents(none), groups, mask},
           {to_x, to_weight});
    if (required(x)) Accumulate(x, to_x);
    if (required(weight)) Accumulate(weight, to_weight);
  });
}

// ---- Backward.

void Graph::Accumulate(int id, int grad) {
  if (!required(id)) return;
  const auto [known, added] = grads_.emplace(id, grad);
  if (added) return;
  known->second =
      Call("aten.add.Tensor", {OfTensor(known->second), OfTensor(grad)}, shape(known->second));
}

std::optional<int> Graph::grad(int id) const {
  const auto found = grads_.find(id);
  return found == grads_.end() ? std::nullopt : std::optional(found->second);
}

void Graph::Backward(int from, int to) {
  for (int k = to; k-- > from;) {
    const auto grad_out = grad(steps_[k].out);
    if (!grad_out) continue;
    const auto derivative = steps_[k].derivative;  // it may append steps
    derivative(*grad_out);
  }
}

}  // namespace sumonce::trace::record
