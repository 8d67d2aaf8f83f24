// Look-ups, and their transposes.
#include <utility>

#include "trace/testing/examples.h"

namespace sumonce::trace::testing {
namespace {

using Shapes = std::vector<Extents>;

int64_t Whole(double number) { return static_cast<int64_t>(number); }

void AddLookups(Examples& examples) {
  // table[index], index into the rows.
  Example index;
  index.op = "aten.index.Tensor";
  index.operands = {{12, 6}, {12}};
  index.index_below = {0, 12};
  index.args = [](const Shapes&, int, int) { return std::vector<Argument>{T(0), Tensors({1})}; };
  index.kernel = [](const std::vector<Array>& in, const std::vector<Argument>&) {
    Array out({in[1].shape[0], in[0].shape[1]});
    ForEachIndex(out.shape, [&](const Index& at) {
      At(out, at) = At(in[0], {Whole(in[1].data[at[0]]) % in[0].shape[0], at[1]});
    });
    return std::vector<Array>{out};
  };
  examples["index"] = {index};
  // table[:, index].
  Example columns = index;
  columns.operands = {{12, 6}, {12}};
  columns.index_below = {0, 6};
  columns.args = [](const Shapes&, int, int) {
    return std::vector<Argument>{T(0), Tensors({-1, 1})};
  };
  columns.kernel = [](const std::vector<Array>& in, const std::vector<Argument>&) {
    Array out({in[0].shape[0], in[1].shape[0]});
    ForEachIndex(out.shape, [&](const Index& at) {
      At(out, at) = At(in[0], {at[0], Whole(in[1].data[at[1]]) % in[0].shape[1]});
    });
    return std::vector<Array>{out};
  };
  examples["index"].push_back(columns);
  Example embedding = index;
  embedding.op = "aten.embedding";
  embedding.args = [](const Shapes&, int, int) { return std::vector<Argument>{T(0), T(1)}; };
  examples["embedding"] = {embedding};

  Example gather;
  gather.op = "aten.gather";
  gather.operands = {{12, 6}, {12, 6}};
  gather.index_below = {0, 6};
  gather.args = [](const Shapes&, int, int) { return std::vector<Argument>{T(0), I(1), T(1)}; };
  gather.kernel = [](const std::vector<Array>& in, const std::vector<Argument>&) {
    Array out(in[1].shape);
    ForEachIndex(out.shape, [&](const Index& at) {
      At(out, at) = At(in[0], {at[0], Whole(At(in[1], at)) % in[0].shape[1]});
    });
    return std::vector<Array>{out};
  };
  gather.compatible = [](const Shapes& shapes) { return shapes[1][0] <= shapes[0][0]; };
  // Fewer indices than entries: what a rank's own ones name is not what the whole's do.
  Example fewer = gather;
  fewer.operands = {{24, 6}, {12, 6}};
  examples["gather"] = {gather, fewer};
}

void AddScatters(Examples& examples) {
  const auto scatter = [](const Array& into, const Array& at, const Array& values) {
    Array out = into;
    ForEachIndex(values.shape, [&](const Index& from) {
      At(out, {Whole(at.data[from[0]]) % out.shape[0], from[1]}) += At(values, from);
    });
    return std::vector<Array>{out};
  };
  const auto rows = [](const Shapes& shapes) { return shapes[0][0] == shapes[1][0]; };
  Example embedding_backward;
  embedding_backward.op = "aten.embedding_dense_backward";
  embedding_backward.operands = {{12, 6}, {12}};
  embedding_backward.index_below = {0, 12};
  embedding_backward.args = [](const Shapes&, int, int) {
    return std::vector<Argument>{T(0), T(1), I(12), I(-1), B(false)};
  };
  embedding_backward.kernel = [=](const std::vector<Array>& in, const std::vector<Argument>&) {
    return scatter(Array({12, in[0].shape[1]}), in[1], in[0]);
  };
  embedding_backward.compatible = rows;
  examples["embedding_dense_backward"] = {embedding_backward};

  Example put;
  put.op = "aten.index_put";
  put.operands = {{12, 6}, {12}, {12, 6}};
  put.index_below = {0, 12, 0};
  put.args = [](const Shapes&, int, int) {
    return std::vector<Argument>{T(0), Tensors({1}), T(2), B(true)};
  };
  put.kernel = [=](const std::vector<Array>& in, const std::vector<Argument>&) {
    return scatter(in[0], in[1], in[2]);
  };
  put.compatible = [](const Shapes& shapes) {
    return shapes[1][0] == shapes[2][0] && shapes[0][1] == shapes[2][1];
  };
  examples["index_put"] = {put};
}

// op(x, dim, index): rows and columns of a matrix.
void AddSelections(Examples& examples) {
  for (const int dim : {0, 1}) {
    Example select;
    select.op = "aten.index_select";
    select.operands = {{12, 12}, {12}};
    select.index_below = {0, 12};
    select.args = [=](const Shapes&, int, int) {
      return std::vector<Argument>{T(0), I(dim - 2 * dim), T(1)};
    };
    select.kernel = [=](const std::vector<Array>& in, const std::vector<Argument>&) {
      Array out = in[0];
      out.shape[dim] = in[1].count();
      out = Array(out.shape);
      ForEachIndex(out.shape, [&](const Index& at) {
        Index from = at;
        from[dim] = Whole(in[1].data[at[dim]]) % in[0].shape[dim];
        At(out, at) = At(in[0], from);
      });
      return std::vector<Array>{out};
    };
    examples["index_select"].push_back(select);
  }
}

// Of op(into, dim, index, source) the result; `index` names the place of each entry of source.
Array Scattered(const std::vector<Array>& in, int dim, bool adds,
                const std::function<double(const Index&)>& index) {
  Array out = in[0];
  ForEachIndex(in[2].shape, [&](const Index& from) {
    Index at = from;
    at[dim] = Whole(index(from)) % out.shape[dim];
    At(out, at) = (adds ? At(out, at) : 0) + At(in[2], from);
  });
  return out;
}

void AddPlaced(Examples& examples, const std::string& name, int dim, const Extents& index) {
  Example put;
  put.op = "aten." + name;
  put.operands = {{12, 12}, index, {12, 12}};
  put.index_below = {0, 12, 0};
  put.args = [=](const Shapes&, int, int) {
    return std::vector<Argument>{T(0), I(dim), T(1), T(2)};
  };
  put.kernel = [=](const std::vector<Array>& in, const std::vector<Argument>&) {
    return std::vector<Array>{Scattered(in, dim, name != "scatter", [&](const Index& from) {
      return index.size() == 1 ? in[1].data[from[dim]] : At(in[1], from);
    })};
  };
  put.compatible = [=](const Shapes& shapes) {
    if (index.size() == 1) {
      return shapes[1][0] == shapes[2][dim] && shapes[0][1 - dim] == shapes[2][1 - dim];
    }
    return shapes[1] == shapes[2] && shapes[0][1 - dim] >= shapes[2][1 - dim];
  };
  examples[name].push_back(put);
}

}  // namespace

void AddLookupExamples(Examples& examples) {
  AddLookups(examples);
  AddScatters(examples);
  AddSelections(examples);
  for (const int dim : {0, 1}) {
    AddPlaced(examples, "index_add", dim, {12});
    AddPlaced(examples, "scatter_add", dim, {12, 12});
    AddPlaced(examples, "scatter", dim, {12, 12});
  }
}

}  // namespace sumonce::trace::testing
