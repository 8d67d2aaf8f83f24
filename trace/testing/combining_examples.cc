#include <algorithm>
#include <cmath>
#include <numeric>

#include "trace/testing/examples.h"

namespace sumonce::trace::testing {
namespace {

using Arguments = std::function<std::vector<Argument>(const std::vector<Extents>&, int, int)>;
using Kernel =
    std::function<std::vector<Array>(const std::vector<Array>&, const std::vector<Argument>&)>;

Example Fixed(const std::string& op, std::vector<Extents> operands, std::vector<Argument> args,
              Kernel kernel) {
  Example example;
  example.op = op;
  example.operands = std::move(operands);
  example.args = [args](const std::vector<Extents>&, int, int) { return args; };
  example.kernel = std::move(kernel);
  example.compatible = Broadcastable;
  return example;
}

double Sum(const Line& line) { return std::accumulate(line.begin(), line.end(), 0.0); }
double Mean(const Line& line) { return Sum(line) / static_cast<double>(line.size()); }
double Max(const Line& line) { return *std::max_element(line.begin(), line.end()); }
double Min(const Line& line) { return *std::min_element(line.begin(), line.end()); }

void AddReduction(Examples& examples, const std::string& name, double (*f)(const Line&)) {
  for (const bool keep : {false, true}) {
    examples[name].push_back(Fixed("aten." + name + ".dim_IntList", {{12, 2, 6}},
                                   {T(0), L({0, -1}), B(keep)},
                                   [=](const std::vector<Array>& in, const std::vector<Argument>&) {
                                     return std::vector<Array>{Reduced(in[0], {0, 2}, keep, f)};
                                   }));
  }
}

void AddReductions(Examples& examples) {
  AddReduction(examples, "sum", Sum);
  AddReduction(examples, "mean", Mean);
  examples["sum"].push_back(Fixed("aten.sum", {{12, 6}}, {T(0)},
                                  [](const std::vector<Array>& in, const std::vector<Argument>&) {
                                    return std::vector<Array>{Reduced(in[0], {0, 1}, false, Sum)};
                                  }));
  AddReduction(examples, "amax", Max);
  AddReduction(examples, "amin", Min);
  for (const char* name : {"any", "all"}) {
    const bool any = std::string(name) == "any";
    examples[name] = {
        Fixed(std::string("aten.") + name + ".dim", {{12, 6}}, {T(0), I(0)},
              [=](const std::vector<Array>& in, const std::vector<Argument>&) {
                return std::vector<Array>{Reduced(in[0], {0}, false, [=](const Line& line) {
                  return (any ? Max(line) : Min(line)) > (any ? 0 : -9) ? 1.0 : 0.0;
                })};
              })};
  }
  for (const char* name : {"argmax", "argmin"}) {
    const bool max = std::string(name) == "argmax";
    examples[name] = {
        Fixed(std::string("aten.") + name, {{12, 6}}, {T(0), I(0)},
              [=](const std::vector<Array>& in, const std::vector<Argument>&) {
                return std::vector<Array>{Reduced(in[0], {0}, false, [=](const Line& line) {
                  const auto at = max ? std::max_element(line.begin(), line.end())
                                      : std::min_element(line.begin(), line.end());
                  return static_cast<double>(at - line.begin());
                })};
              })};
  }
  for (const char* name : {"max", "min"}) {
    const bool max = std::string(name) == "max";
    examples[name] = {Fixed(std::string("aten.") + name + ".dim", {{12, 6}}, {T(0), I(-1)},
                            [=](const std::vector<Array>& in, const std::vector<Argument>&) {
                              const auto where = [=](const Line& line) {
                                const auto at = max ? std::max_element(line.begin(), line.end())
                                                    : std::min_element(line.begin(), line.end());
                                return static_cast<double>(at - line.begin());
                              };
                              return std::vector<Array>{Reduced(in[0], {1}, false, max ? Max : Min),
                                                        Reduced(in[0], {1}, false, where)};
                            })};
  }
}

bool SameLetters(const std::vector<Extents>& shapes, const std::string& letters) {
  std::map<char, int64_t> extents;
  size_t operand = 0, d = 0;
  for (const char c : letters.substr(0, letters.find("->"))) {
    if (c == ',') {
      ++operand;
      d = 0;
      continue;
    }
    if (extents.emplace(c, shapes[operand][d]).first->second != shapes[operand][d]) return false;
    ++d;
  }
  return true;
}

Example Product(const std::string& op, std::vector<Extents> operands, const std::string& letters) {
  Example example = Fixed(op, std::move(operands), {T(0), T(1)},
                          [=](const std::vector<Array>& in, const std::vector<Argument>&) {
                            return std::vector<Array>{Einsum(in, letters)};
                          });
  example.compatible = [=](const std::vector<Extents>& shapes) {
    return SameLetters(shapes, letters);
  };
  return example;
}

// Causal taps: out[b, o, l] = sum of w[o, i, k] x[b, i, l - k] over the channels i of its group.
double Tap(const Array& x, int64_t b, int64_t c, int64_t l) {
  return l < 0 || l >= x.shape[2] ? 0 : At(x, {b, c, l});
}

Array Convolved(const Array& x, const Array& w, bool depthwise) {
  Array out({x.shape[0], depthwise ? x.shape[1] : w.shape[0], x.shape[2]});
  ForEachIndex(out.shape, [&](const Index& at) {
    for (int64_t i = 0; i < w.shape[1]; ++i) {
      for (int64_t k = 0; k < w.shape[2]; ++k)
        At(out, at) += At(w, {at[1], i, k}) * Tap(x, at[0], depthwise ? at[1] : i, at[2] - k);
    }
  });
  return out;
}

std::vector<Array> ConvolvedBackward(const Array& grad, const Array& x, const Array& w,
                                     bool depthwise, bool bias) {
  Array to_x(x.shape), to_w(w.shape), to_bias({grad.shape[1]});
  ForEachIndex(grad.shape, [&](const Index& at) {
    At(to_bias, {at[1]}) += At(grad, at);
    for (int64_t i = 0; i < w.shape[1]; ++i) {
      for (int64_t k = 0; k < w.shape[2]; ++k) {
        const int64_t c = depthwise ? at[1] : i;
        if (at[2] - k < 0) continue;
        At(to_x, {at[0], c, at[2] - k}) += At(grad, at) * At(w, {at[1], i, k});
        At(to_w, {at[1], i, k}) += At(grad, at) * Tap(x, at[0], c, at[2] - k);
      }
    }
  });
  std::vector<Array> out = {to_x, to_w};
  if (bias) out.push_back(to_bias);
  return out;
}

void AddConvolutions(Examples& examples, bool depthwise, int n) {
  const int64_t e = 2 * n;  // the least extent that can be cut at both sizes
  Example forward;
  forward.op = "aten.convolution";
  forward.operands = {{e, e, e}, {e, depthwise ? 1 : e, 3}};
  forward.only_n = n;
  forward.args = [=](const std::vector<Extents>& shapes, int, int) {
    return std::vector<Argument>{T(0),     T(1),   None(),
                                 L({1}),   L({2}), L({1}),
                                 B(false), L({0}), I(depthwise ? shapes[0][1] : 1)};
  };
  forward.kernel = [=](const std::vector<Array>& in, const std::vector<Argument>&) {
    return std::vector<Array>{Convolved(in[0], in[1], depthwise)};
  };
  forward.compatible = [=](const std::vector<Extents>& shapes) {
    return depthwise ? shapes[0][1] == shapes[1][0] : shapes[0][1] == shapes[1][1];
  };
  examples["convolution"].push_back(forward);

  Example backward;
  backward.op = "aten.convolution_backward";
  backward.operands = {{e, e, e}, {e, e, e}, {e, depthwise ? 1 : e, 3}};
  backward.only_n = n;
  backward.args = [=](const std::vector<Extents>& shapes, int, int) {
    return std::vector<Argument>{
        T(0),        T(1),   T(2),     None(), L({1}),
        L({2}),      L({1}), B(false), L({0}), I(depthwise ? shapes[1][1] : 1),
        L({1, 1, 1})};
  };
  backward.kernel = [=](const std::vector<Array>& in, const std::vector<Argument>&) {
    return ConvolvedBackward(in[0], in[1], in[2], depthwise, true);
  };
  backward.compatible = [=](const std::vector<Extents>& shapes) {
    const bool channels = depthwise ? shapes[1][1] == shapes[2][0] : shapes[1][1] == shapes[2][1];
    return channels && shapes[0][1] == shapes[2][0] && shapes[0][0] == shapes[1][0] &&
           shapes[0][2] == shapes[1][2];
  };
  examples["convolution_backward"].push_back(backward);
}

void AddProducts(Examples& examples) {
  examples["mm"] = {Product("aten.mm", {{12, 12}, {12, 6}}, "ik,kj->ij")};
  examples["bmm"] = {Product("aten.bmm", {{12, 6, 12}, {12, 12, 6}}, "bik,bkj->bij")};
  for (const char* name : {"addmm", "baddbmm"}) {
    const bool batch = std::string(name) == "baddbmm";
    const std::string letters = batch ? "bik,bkj->bij" : "ik,kj->ij";
    Example example = Product(std::string("aten.") + name, {}, letters);
    example.operands = batch ? std::vector<Extents>{{12, 6, 6}, {12, 6, 12}, {12, 12, 6}}
                             : std::vector<Extents>{{12, 6}, {12, 12}, {12, 6}};
    example.args = [](const std::vector<Extents>&, int, int) {
      return std::vector<Argument>{T(0), T(1), T(2)};
    };
    example.keywords = {{"beta", I(0)}};
    example.kernel = [=](const std::vector<Array>& in, const std::vector<Argument>&) {
      return std::vector<Array>{Einsum({in[1], in[2]}, letters)};
    };
    example.compatible = [=](const std::vector<Extents>& shapes) {
      return SameLetters({shapes[1], shapes[2]}, letters);
    };
    example.uninitialised = true;
    examples[name] = {example};
    // The bias of a linear layer, and a matrix of the result's extents.
    for (const bool bias : {true, false}) {
      Example sum = example;
      if (bias) sum.operands[0] = batch ? Extents{12, 1, 6} : Extents{6};
      sum.keywords.clear();
      sum.uninitialised = false;
      sum.kernel = [=](const std::vector<Array>& in, const std::vector<Argument>&) {
        return std::vector<Array>{Elementwise({in[0], Einsum({in[1], in[2]}, letters)},
                                              [](const Entries& at) { return at[0] + at[1]; })};
      };
      sum.compatible = [=](const std::vector<Extents>& shapes) {
        if (!SameLetters({shapes[1], shapes[2]}, letters)) return false;
        Extents product = shapes[1];
        product.back() = shapes[2].back();
        return Broadcastable({product, shapes[0]});
      };
      examples[name].push_back(sum);
    }
  }
}

Line Softmax(const Line& line) {
  Line out;
  double sum = 0;
  for (const double x : line) sum += std::exp(x);
  for (const double x : line) out.push_back(std::exp(x) / sum);
  return out;
}

double InverseDeviation(const Line& line) {
  const double mean = Mean(line);
  double square = 0;
  for (const double x : line) square += (x - mean) * (x - mean);
  return 1 / std::sqrt(square / static_cast<double>(line.size()) + 1e-5);
}

Line Normalised(const Line& line) {
  Line out;
  for (const double x : line) out.push_back((x - Mean(line)) * InverseDeviation(line));
  return out;
}

void AddAlong(Examples& examples, const std::string& name, std::vector<Argument> args,
              const std::function<Line(const Line&)>& f) {
  Example example = Fixed("aten." + name, {{12, 12}}, std::move(args),
                          [=](const std::vector<Array>& in, const std::vector<Argument>&) {
                            return std::vector<Array>{AlongLines(in[0], 1, f)};
                          });
  example.fractions = true;
  examples[name] = {example};
}

// Orders whose dimension is absent, or among the keywords.
void AddOrders(Examples& examples) {
  // Without dimensions all entries move, from row to row.
  examples["roll"].push_back(Fixed("aten.roll", {{12, 6}}, {T(0), L({1})},
                                   [](const std::vector<Array>& in, const std::vector<Argument>&) {
                                     Array out = in[0];
                                     std::rotate(out.data.begin(), out.data.begin() + 1,
                                                 out.data.end());
                                     return std::vector<Array>{out};
                                   }));
  Example stable = Fixed("aten.sort.stable", {{12, 6}}, {T(0)},
                         [](const std::vector<Array>& in, const std::vector<Argument>&) {
                           Array out = in[0];
                           const int64_t columns = out.shape[1];
                           for (int64_t c = 0; c < columns; ++c) {
                             std::vector<double> line;
                             for (int64_t i = c; i < out.count(); i += columns)
                               line.push_back(out.data[i]);
                             std::sort(line.begin(), line.end());
                             for (int64_t i = c; i < out.count(); i += columns)
                               out.data[i] = line[i / columns];
                           }
                           return std::vector<Array>{out};
                         });
  stable.keywords = {{"dim", I(0)}};
  examples["sort"].push_back(stable);
}

void AddMixing(Examples& examples) {
  AddAlong(examples, "_softmax", {T(0), I(-1), B(false)}, Softmax);
  AddAlong(examples, "_log_softmax", {T(0), I(1), B(false)}, [](const Line& line) {
    Line out = Softmax(line);
    for (double& x : out) x = std::log(x);
    return out;
  });
  AddAlong(examples, "cumsum", {T(0), I(1)}, [](Line line) {
    std::partial_sum(line.begin(), line.end(), line.begin());
    return line;
  });
  AddAlong(examples, "flip", {T(0), L({1})}, [](Line line) {
    std::reverse(line.begin(), line.end());
    return line;
  });
  AddAlong(examples, "roll", {T(0), L({1}), L({1})}, [](Line line) {
    std::rotate(line.begin(), line.begin() + 1, line.end());
    return line;
  });
  AddAlong(examples, "sort", {T(0), I(1)}, [](Line line) {
    std::sort(line.begin(), line.end());
    return line;
  });
  AddOrders(examples);
  AddAlong(examples, "topk", {T(0), I(12), I(1)}, [](Line line) {
    std::sort(line.begin(), line.end(), std::greater<>());
    return line;
  });
  for (const char* name : {"_softmax_backward_data", "_log_softmax_backward_data"}) {
    Example example =
        Fixed(std::string("aten.") + name, {{12, 12}, {12, 12}}, {T(0), T(1), I(-1), None()},
              [](const std::vector<Array>& in, const std::vector<Argument>&) {
                const Array product = Elementwise(in, [](const Entries& x) { return x[0] * x[1]; });
                const Array sums = Reduced(product, {1}, true, Sum);
                return std::vector<Array>{Elementwise(
                    {in[0], in[1], sums}, [](const Entries& x) { return x[1] * (x[0] - x[2]); })};
              });
    examples[name] = {example};
  }
  for (const char* name : {"tril", "triu"}) {
    const bool lower = std::string(name) == "tril";
    examples[name] = {Fixed(std::string("aten.") + name, {{12, 6, 6}}, {T(0)},
                            [=](const std::vector<Array>& in, const std::vector<Argument>&) {
                              Array out = in[0];
                              ForEachIndex(out.shape, [&](const Index& at) {
                                if (lower ? at[2] > at[1] : at[2] < at[1]) At(out, at) = 0;
                              });
                              return std::vector<Array>{out};
                            })};
  }
  for (const double value : {0.0, 4.0}) {
    examples["constant_pad_nd"].push_back(
        Fixed("aten.constant_pad_nd", {{12, 6}}, {T(0), L({2, 0}), N(value)},
              [=](const std::vector<Array>& in, const std::vector<Argument>&) {
                Array out({in[0].shape[0], in[0].shape[1] + 2}, value);
                ForEachIndex(in[0].shape, [&](const Index& at) {
                  At(out, {at[0], at[1] + 2}) = At(in[0], at);
                });
                return std::vector<Array>{out};
              }));
  }
}

void AddNorms(Examples& examples, int n) {
  const int64_t e = 2 * n;
  Example forward = Fixed(
      "aten.native_layer_norm", {{e, e}, {e}, {e}}, {T(0), L({e}), T(1), T(2), N(1e-5)},
      [](const std::vector<Array>& in, const std::vector<Argument>&) {
        const Array unit = AlongLines(in[0], 1, Normalised);
        return std::vector<Array>{
            Elementwise({unit, in[1], in[2]}, [](const Entries& x) { return x[0] * x[1] + x[2]; }),
            Reduced(in[0], {1}, true, Mean), Reduced(in[0], {1}, true, InverseDeviation)};
      });
  forward.fractions = true;
  forward.only_n = n;
  examples["native_layer_norm"].push_back(forward);
  Example backward = Fixed(
      "aten.native_layer_norm_backward", {{e, e}, {e, e}, {e, 1}, {e, 1}, {e}, {e}},
      {T(0), T(1), L({e}), T(2), T(3), T(4), T(5), L({1, 1, 1})},
      [](const std::vector<Array>& in, const std::vector<Argument>&) {
        const Array unit = Elementwise({in[1], in[2], in[3]},
                                       [](const Entries& x) { return (x[0] - x[1]) * x[2]; });
        const Array scaled =
            Elementwise({in[0], in[4]}, [](const Entries& x) { return x[0] * x[1]; });
        const Array along =
            Elementwise({scaled, unit}, [](const Entries& x) { return x[0] * x[1]; });
        const Array to_x = Elementwise(
            {scaled, unit, Reduced(along, {1}, true, Mean), Reduced(scaled, {1}, true, Mean)},
            [](const Entries& x) { return x[0] - x[1] * x[2] - x[3]; });
        const Array to_w = Elementwise({in[0], unit}, [](const Entries& x) { return x[0] * x[1]; });
        return std::vector<Array>{to_x, Reduced(to_w, {0}, false, Sum),
                                  Reduced(in[0], {0}, false, Sum)};
      });
  backward.fractions = true;
  // The bias takes no part, not even with its extents.
  backward.fixed_equal = {false, false, false, false, false, true};
  backward.compatible = [](const std::vector<Extents>& shapes) {
    return Broadcastable({shapes.begin(), shapes.end() - 1});
  };
  backward.only_n = n;
  examples["native_layer_norm_backward"].push_back(backward);
}

}  // namespace

void AddCombiningExamples(Examples& examples) {
  AddReductions(examples);
  AddProducts(examples);
  AddMixing(examples);
  for (const int n : {2, 3}) {
    AddConvolutions(examples, true, n);
    AddConvolutions(examples, false, n);
    AddNorms(examples, n);
  }
}

}  // namespace sumonce::trace::testing
