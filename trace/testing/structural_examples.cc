#include <algorithm>

#include "trace/testing/examples.h"

namespace sumonce::trace::testing {
namespace {

using Shapes = std::vector<Extents>;
using Views = std::function<std::vector<Geometry>(const Geometry& in, int size, int rank)>;

Example View(const std::string& op, const Extents& shape, const Views& views) {
  Example example;
  example.op = op;
  example.operands = {shape};
  example.args = [](const Shapes&, int, int) { return std::vector<Argument>{T(0)}; };
  example.views = [views](const Shapes& shapes, int size, int rank) {
    return views(Contiguous(shapes[0]), size, rank);
  };
  return example;
}

Geometry Part(Geometry in, int dim, int64_t begin, int64_t count) {
  in.offset += begin * in.strides[dim];
  in.shape[dim] = count;
  return in;
}

Geometry Without(Geometry in, int dim) {
  in.shape.erase(in.shape.begin() + dim);
  in.strides.erase(in.strides.begin() + dim);
  return in;
}

Geometry Swapped(Geometry in, int a, int b) {
  std::swap(in.shape[a], in.shape[b]);
  std::swap(in.strides[a], in.strides[b]);
  return in;
}

// [a, b, c] as [a * b, c].
Geometry Merged(const Geometry& in) { return Contiguous({in.shape[0] * in.shape[1], in.shape[2]}); }

void AddViews(Examples& examples) {
  const Extents shape = {12, 12, 2};
  for (const char* name : {"view", "_unsafe_view", "_reshape_alias"}) {
    const std::string op = std::string("aten.") + name;
    examples[name] = {
        View(op, shape,
             [](const Geometry& in, int, int) { return std::vector<Geometry>{Merged(in)}; }),
        View(op, {24, 12},
             [](const Geometry& in, int, int) {
               return std::vector<Geometry>{Contiguous({in.shape[0] / 2, 2, in.shape[1]})};
             }),
        View(op, {24, 12}, [](const Geometry& in, int, int) {
          return std::vector<Geometry>{Contiguous({2, in.shape[0] / 2, in.shape[1]})};
        })};
  }
  for (const char* name : {"t", "transpose"}) {
    examples[name] = {View(std::string("aten.") + name, {12, 12}, [](const Geometry& in, int, int) {
      return std::vector<Geometry>{Swapped(in, 0, 1)};
    })};
  }
  examples["permute"] = {View("aten.permute", shape, [](const Geometry& in, int, int) {
    return std::vector<Geometry>{Swapped(Swapped(in, 0, 1), 1, 2)};
  })};
  examples["unsqueeze"] = {View("aten.unsqueeze", shape, [](Geometry in, int, int) {
    in.shape.insert(in.shape.begin() + 1, 1);
    in.strides.insert(in.strides.begin() + 1, in.strides[1] * in.shape[2]);
    return std::vector<Geometry>{in};
  })};
  examples["squeeze"] = {View("aten.squeeze.dim", {12, 1, 12}, [](const Geometry& in, int, int) {
    return std::vector<Geometry>{Without(in, 1)};
  })};
  examples["expand"] = {View("aten.expand", {12, 1},
                             [](Geometry in, int, int) {
                               in.shape[1] = 6;
                               in.strides[1] = 0;
                               return std::vector<Geometry>{in};
                             }),
                        View("aten.expand", {6, 1}, [](Geometry in, int size, int) {
                          in.shape[1] = 12 / size;
                          in.strides[1] = 0;
                          return std::vector<Geometry>{in};
                        })};
  examples["select"] = {View("aten.select.int", shape, [](const Geometry& in, int, int) {
    return std::vector<Geometry>{Without(Part(in, 1, 2, 1), 1)};
  })};
  examples["unbind"] = {View("aten.unbind.int", {12, 3}, [](const Geometry& in, int, int) {
    return std::vector<Geometry>{Without(Part(in, 1, 0, 1), 1), Without(Part(in, 1, 2, 1), 1)};
  })};
  examples["slice"] = {
      View("aten.slice.Tensor", shape,
           [](const Geometry& in, int, int) {
             return std::vector<Geometry>{Part(in, 0, 1, 1), Part(in, 2, 1, 1)};
           }),
      // The rank's own rows of what it holds whole.
      View("aten.slice.Tensor", {12, 3}, [](const Geometry& in, int size, int rank) {
        const int64_t own = in.shape[0] / size;
        return std::vector<Geometry>{Part(in, 0, rank * own, own)};
      })};
  for (const char* name : {"split", "split_with_sizes"})
    examples[name] = {View(std::string("aten.") + name, {3, 12}, [](const Geometry& in, int, int) {
      return std::vector<Geometry>{Part(in, 0, 0, 1), Part(in, 0, 1, 2)};
    })};
  examples["as_strided"] = {View("aten.as_strided", {12, 12}, [](const Geometry& in, int, int) {
    Geometry out = Swapped(in, 0, 1);
    out.shape[0] = 6;
    return std::vector<Geometry>{out};
  })};
  for (const char* name : {"lift_fresh", "detach", "alias"}) {
    examples[name] = {View(std::string("aten.") + name, {12, 12},
                           [](const Geometry& in, int, int) { return std::vector<Geometry>{in}; })};
  }
}

Array Joined(const std::vector<Array>& in, int dim) {
  Extents shape = in[0].shape;
  shape[dim] = 0;
  for (const Array& array : in) shape[dim] += array.shape[dim];
  Array out(shape);
  int64_t begin = 0;
  for (const Array& array : in) {
    ForEachIndex(array.shape, [&](Index at) {
      const double entry = At(array, at);
      at[dim] += begin;
      At(out, at) = entry;
    });
    begin += array.shape[dim];
  }
  return out;
}

// The dimensions of the parts beside `dim` are the same.
std::function<bool(const Shapes&)> SameBeside(int dim) {
  return [=](const Shapes& shapes) {
    for (size_t d = 0; d < shapes[0].size(); ++d) {
      if (static_cast<int>(d) != dim && shapes[0][d] != shapes[1][d]) return false;
    }
    return true;
  };
}

void AddJoins(Examples& examples) {
  Example cat;
  cat.op = "aten.cat";
  cat.operands = {{12, 3}, {12, 5}};
  cat.args = [](const Shapes&, int, int) { return std::vector<Argument>{Tensors({0, 1}), I(-1)}; };
  cat.kernel = [](const std::vector<Array>& in, const std::vector<Argument>&) {
    return std::vector<Array>{Joined(in, 1)};
  };
  cat.compatible = SameBeside(1);
  examples["cat"] = {cat};
  Example stack = cat;
  stack.op = "aten.stack";
  stack.operands = {{12, 6}, {12, 6}};
  stack.args = [](const Shapes&, int, int) { return std::vector<Argument>{Tensors({0, 1}), I(0)}; };
  stack.kernel = [](const std::vector<Array>& in, const std::vector<Argument>&) {
    std::vector<Array> rows = in;
    for (Array& row : rows) row.shape.insert(row.shape.begin(), 1);
    return std::vector<Array>{Joined(rows, 0)};
  };
  stack.compatible = SameBeside(-1);
  examples["stack"] = {stack};

  Example select;
  select.op = "aten.select_backward";
  select.operands = {{12, 6}};
  select.args = [](const Shapes& shapes, int, int) {
    return std::vector<Argument>{T(0), L({shapes[0][0], 4, shapes[0][1]}), I(1), I(2)};
  };
  select.kernel = [](const std::vector<Array>& in, const std::vector<Argument>&) {
    Array out({in[0].shape[0], 4, in[0].shape[1]});
    ForEachIndex(in[0].shape, [&](const Index& at) { At(out, {at[0], 2, at[1]}) = At(in[0], at); });
    return std::vector<Array>{out};
  };
  examples["select_backward"] = {select};

  // Into twice the columns, from column 2; and each rank's rows into its place of the whole.
  for (const bool own : {false, true}) {
    Example slice;
    slice.op = "aten.slice_backward";
    slice.operands = {{12, 12}};
    slice.args = [=](const Shapes& shapes, int size, int rank) {
      const int64_t rows = own ? 12 : shapes[0][0];
      const int64_t begin = own ? (rank * shapes[0][0]) % 12 : 2;
      (void)size;
      return std::vector<Argument>{
          T(0),     L({rows, shapes[0][1] + (own ? 0 : 4)}), I(own ? 0 : 1),
          I(begin), I(begin + shapes[0][own ? 0 : 1]),       I(1)};
    };
    slice.kernel = [](const std::vector<Array>& in, const std::vector<Argument>& args) {
      Array out({args[1].items[0].integer, args[1].items[1].integer});
      ForEachIndex(in[0].shape, [&](Index at) {
        const double entry = At(in[0], at);
        at[args[2].integer] += args[3].integer;
        At(out, at) = entry;
      });
      return std::vector<Array>{out};
    };
    slice.compatible = [=](const Shapes& shapes) { return !own || shapes[0][0] < 12; };
    examples["slice_backward"].push_back(slice);
  }
}

void AddCreation(Examples& examples) {
  const auto make = [&](const std::string& name, std::vector<Argument> args, const Array& made) {
    Example example;
    example.op = "aten." + name;
    example.args = [=](const Shapes&, int, int) { return args; };
    example.kernel = [=](const std::vector<Array>&, const std::vector<Argument>&) {
      return std::vector<Array>{made};
    };
    examples[name] = {example};
  };
  make("zeros", {L({4})}, Array({4}));
  make("ones", {L({4})}, Array({4}, 1));
  make("full", {L({4}), N(3)}, Array({4}, 3));
  make("scalar_tensor", {N(3)}, Array({}, 3));
  Array count({4}), unit({2, 2});
  for (int i = 0; i < 4; ++i) count.data[i] = i;
  unit.data = {1, 0, 0, 1};
  make("arange", {I(4)}, count);
  make("eye", {I(2)}, unit);
  const auto like = [&](const std::string& name, std::vector<Argument> args, double number,
                        bool in_place = false) {
    Example example;
    example.op = "aten." + name + (in_place ? "_" : "");
    example.operands = {{12, 6}};
    example.args = [=](const Shapes&, int, int) { return args; };
    example.kernel = [=](const std::vector<Array>& in, const std::vector<Argument>&) {
      return std::vector<Array>{Array(in[0].shape, number)};
    };
    example.writes_first = in_place;
    examples[name] = {example};
  };
  like("zeros_like", {T(0)}, 0);
  like("ones_like", {T(0)}, 1);
  like("full_like", {T(0), N(3)}, 3);
  like("new_zeros", {T(0), L({12, 6})}, 0);
  like("new_ones", {T(0), L({12, 6})}, 1);
  like("new_full", {T(0), L({12, 6}), N(3)}, 3);
  like("zero", {T(0)}, 0, true);
  like("fill", {T(0), N(3)}, 3, true);
}

Example Collective(const std::string& op, Shapes operands, std::string_view reduce) {
  Example example;
  example.op = op;
  example.operands = std::move(operands);
  const bool first = example.operands.size() == 1;
  example.args = [=](const Shapes&, int size, int) {
    std::vector<Argument> args = {first ? Tensors({0}) : T(0)};
    if (!first) args.push_back(T(1));
    args.push_back(Axis(size));
    if (!reduce.empty()) args.push_back(Reduce(reduce));
    return args;
  };
  // Of the whole, a collective changes nothing.
  example.kernel = [=](const std::vector<Array>& in, const std::vector<Argument>&) {
    return std::vector<Array>{in.back()};
  };
  example.writes_first = true;
  example.uninitialised = !first;
  return example;
}

Array Combined(const std::vector<std::vector<Array>>& ranks, std::string_view reduce) {
  Array out = ranks[0].back();
  for (size_t r = 1; r < ranks.size(); ++r) {
    for (size_t i = 0; i < out.data.size(); ++i) {
      const double entry = ranks[r].back().data[i];
      out.data[i] = reduce == "MAX" ? std::max(out.data[i], entry) : out.data[i] + entry;
    }
  }
  for (double& entry : out.data) entry /= reduce == "AVG" ? static_cast<double>(ranks.size()) : 1;
  return out;
}

void AddCollectives(Examples& examples) {
  for (const char* name : {"allreduce", "allreduce_coalesced"}) {
    for (const char* reduce : {"SUM", "AVG", "MAX"}) {
      Example example = Collective(std::string("c10d.") + name + "_", {{12, 6}}, reduce);
      example.across = [=](const std::vector<std::vector<Array>>& ranks) {
        return std::vector<Array>(ranks.size(), Combined(ranks, reduce));
      };
      examples[name].push_back(example);
    }
  }
  Example broadcast = Collective("c10d.broadcast_", {{12, 6}}, "");
  broadcast.across = [](const std::vector<std::vector<Array>>& ranks) {
    return std::vector<Array>(ranks.size(), ranks[0].back());
  };
  examples["broadcast"] = {broadcast};

  Example gather = Collective("c10d._allgather_base_", {{12, 12}, {12, 12}}, "");
  gather.fixed_equal = {true, false};
  gather.across = [](const std::vector<std::vector<Array>>& ranks) {
    std::vector<Array> parts;
    for (const auto& rank : ranks) parts.push_back(rank.back());
    return std::vector<Array>(ranks.size(), Joined(parts, 0));
  };
  gather.compatible = [](const Shapes& shapes) {
    return shapes[1][0] < shapes[0][0] && shapes[1][1] == shapes[0][1];
  };
  examples["_allgather_base"] = {gather};

  for (const char* reduce : {"SUM", "AVG"}) {
    Example scatter = Collective("c10d._reduce_scatter_base_", {{12, 6}, {12, 6}}, reduce);
    scatter.fixed_shard = true;
    scatter.across = [=](const std::vector<std::vector<Array>>& ranks) {
      const Array sum = Combined(ranks, reduce);
      const int64_t own = sum.shape[0] / static_cast<int64_t>(ranks.size());
      std::vector<Array> out;
      for (size_t r = 0; r < ranks.size(); ++r)
        out.push_back(
            Seen(sum, Part(Contiguous(sum.shape), 0, static_cast<int64_t>(r) * own, own)));
      return out;
    };
    scatter.compatible = [](const Shapes& shapes) {
      return shapes[1][0] == 12 && shapes[1][1] == shapes[0][1];
    };
    examples["_reduce_scatter_base"].push_back(scatter);
  }
}

}  // namespace

void AddStructuralExamples(Examples& examples) {
  AddViews(examples);
  AddJoins(examples);
  AddCreation(examples);
  AddCollectives(examples);
}

}  // namespace sumonce::trace::testing
