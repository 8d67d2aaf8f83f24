#include <algorithm>
#include <cmath>

#include "trace/testing/examples.h"

namespace sumonce::trace::testing {
namespace {

using Function = std::function<double(const Entries&)>;

Example Base(const std::string& op, std::vector<Extents> operands, const Function& f) {
  Example example;
  example.op = op;
  example.operands = std::move(operands);
  const size_t count = example.operands.size();
  example.args = [count](const std::vector<Extents>&, int, int) {
    std::vector<Argument> args;
    for (size_t i = 0; i < count; ++i) args.push_back(T(static_cast<int>(i)));
    return args;
  };
  example.kernel = [f](const std::vector<Array>& in, const std::vector<Argument>&) {
    return std::vector<Array>{Elementwise(in, f)};
  };
  example.compatible = Broadcastable;
  return example;
}

Example WithNumbers(Example example, std::vector<Argument> more) {
  const auto args = example.args;
  example.args = [=](const std::vector<Extents>& shapes, int size, int rank) {
    std::vector<Argument> all = args(shapes, size, rank);
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  return example;
}

const std::vector<Extents>& Pair() {
  static const auto& pair = *new std::vector<Extents>{{12, 6}, {12, 6}};
  return pair;
}
const std::vector<Extents>& Repeated() {
  static const auto& pair = *new std::vector<Extents>{{12, 6, 2}, {6, 1}};
  return pair;
}

void AddUnary(Examples& examples, const std::string& name, const Function& f) {
  Example example = Base("aten." + name, {{12, 6}}, f);
  example.fractions = example.positive = true;
  examples[name] = {example};
}

void AddBinary(Examples& examples, const std::string& name, const Function& f) {
  examples[name].push_back(Base("aten." + name + ".Tensor", Pair(), f));
  examples[name].push_back(Base("aten." + name + ".Tensor", Repeated(), f));
}

// A number that is the local extent of dimension 0: it goes as 1/n where that is cut.
Example ByLocalExtent(const std::string& op, const std::function<double(double, double)>& f) {
  Example example = Base(op, {{12, 6}}, nullptr);
  example.args = [](const std::vector<Extents>& shapes, int, int) {
    return std::vector<Argument>{T(0), I(shapes[0][0])};
  };
  example.kernel = [f](const std::vector<Array>& in, const std::vector<Argument>& args) {
    const double number = args[1].number;
    return std::vector<Array>{
        Elementwise({in[0]}, [&](const Entries& x) { return f(x[0], number); })};
  };
  return example;
}

void AddDerivative(Examples& examples, const std::string& name) {
  Example example =
      Base("aten." + name, Pair(), [](const Entries& x) { return x[0] * (1 + x[1] * x[1]); });
  examples[name] = {example};
}

void AddNonlinear(Examples& examples) {
  const std::pair<const char*, double (*)(double)> functions[] = {
      {"rsqrt", [](double x) { return 1 / std::sqrt(x); }},
      {"sqrt", [](double x) { return std::sqrt(x); }},
      {"exp", [](double x) { return std::exp(x); }},
      {"log", [](double x) { return std::log(x); }},
      {"cos", [](double x) { return std::cos(x); }},
      {"sin", [](double x) { return std::sin(x); }},
      {"sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }},
      {"tanh", [](double x) { return std::tanh(x); }},
      {"gelu", [](double x) { return x / 2 * (1 + std::erf(x / std::sqrt(2.0))); }},
      {"silu", [](double x) { return x / (1 + std::exp(-x)); }},
      {"softplus", [](double x) { return std::log1p(std::exp(x)); }},
      {"erf", [](double x) { return std::erf(x); }},
      {"reciprocal", [](double x) { return 1 / x; }},
      {"relu", [](double x) { return std::max(x - 2, 0.0); }},
      {"abs", [](double x) { return std::abs(x - 2); }},
      {"sgn", [](double x) { return x < 2 ? -1.0 : 1.0; }},
      {"sign", [](double x) { return x < 2 ? -1.0 : 1.0; }},
      {"logical_not", [](double x) { return x < 2 ? 1.0 : 0.0; }},
      {"bitwise_not", [](double x) { return x < 2 ? 1.0 : 0.0; }}};
  for (const auto& [name, f] : functions)
    AddUnary(examples, name, [f = f](const Entries& x) { return f(x[0]); });
  for (const char* name : {"clamp", "clamp_min"}) {
    Example clamp = WithNumbers(Base(std::string("aten.") + name, {{12, 6}},
                                     [](const Entries& x) { return std::max(x[0], 1.0); }),
                                {I(1)});
    examples[name] = {clamp};
  }
  const std::pair<const char*, bool (*)(double, double)> comparisons[] = {
      {"gt", [](double x, double y) { return x > y; }},
      {"le", [](double x, double y) { return x <= y; }},
      {"lt", [](double x, double y) { return x < y; }},
      {"ge", [](double x, double y) { return x >= y; }},
      {"eq", [](double x, double y) { return x == y; }},
      {"ne", [](double x, double y) { return x != y; }},
      {"bitwise_and", [](double x, double y) { return x > 0 && y > 0; }},
      {"logical_and", [](double x, double y) { return x > 0 && y > 0; }},
      {"bitwise_or", [](double x, double y) { return x > 0 || y > 0; }},
      {"logical_or", [](double x, double y) { return x > 0 || y > 0; }}};
  for (const auto& [name, f] : comparisons)
    AddBinary(examples, name, [f = f](const Entries& x) { return f(x[0], x[1]) ? 1.0 : 0.0; });
}

}  // namespace

bool Broadcastable(const std::vector<Extents>& shapes) {
  for (const Extents& a : shapes) {
    for (const Extents& b : shapes) {
      const size_t common = std::min(a.size(), b.size());
      for (size_t d = 1; d <= common; ++d) {
        const int64_t x = a[a.size() - d], y = b[b.size() - d];
        if (x != y && x != 1 && y != 1) return false;
      }
    }
  }
  return true;
}

void AddElementwiseExamples(Examples& examples) {
  AddBinary(examples, "add", [](const Entries& x) { return x[0] + x[1]; });
  AddBinary(examples, "sub", [](const Entries& x) { return x[0] - x[1]; });
  AddBinary(examples, "mul", [](const Entries& x) { return x[0] * x[1]; });
  AddBinary(examples, "div", [](const Entries& x) { return x[0] / (x[1] * x[1] + 1); });
  for (const char* name : {"add", "sub"}) {
    const double sign = std::string(name) == "add" ? 1 : -1;
    for (const double number : {0.0, 5.0}) {
      examples[name].push_back(
          WithNumbers(Base(std::string("aten.") + name + ".Tensor", {{12, 6}},
                           [=](const Entries& x) { return x[0] + sign * number; }),
                      {N(number)}));
    }
  }
  examples["div"].back() =
      Base("aten.div.Tensor", Repeated(), [](const Entries& x) { return x[0] / (x[1] + 20); });
  examples["mul"].push_back(
      ByLocalExtent("aten.mul.Scalar", [](double x, double number) { return x * number; }));
  examples["div"].push_back(
      ByLocalExtent("aten.div.Scalar", [](double x, double number) { return x / number; }));
  Example rounded = Base("aten.div.Tensor_mode", {{12, 6}, {12, 6}},
                         [](const Entries& x) { return std::floor(x[0] / (x[1] * x[1] + 1)); });
  rounded.keywords = {{"rounding_mode", {.kind = Argument::Kind::kText, .text = "floor"}}};
  examples["div"].push_back(rounded);
  AddBinary(examples, "maximum", [](const Entries& x) { return std::max(x[0], x[1]); });
  AddBinary(examples, "minimum", [](const Entries& x) { return std::min(x[0], x[1]); });
  Example where = Base("aten.where.self", {{12, 6}, {12, 6}, {12, 6}},
                       [](const Entries& x) { return x[0] > 0 ? x[1] : x[2]; });
  examples["where"] = {where};
  examples["rsub"] = {WithNumbers(
      Base("aten.rsub.Scalar", {{12, 6}}, [](const Entries& x) { return 3 - x[0]; }), {N(3)})};

  AddUnary(examples, "neg", [](const Entries& x) { return -x[0]; });
  for (const char* name : {"clone", "_to_copy"})
    AddUnary(examples, name, [](const Entries& x) { return x[0]; });
  Example copy = Base("aten.copy_", Pair(), [](const Entries& x) { return x[1]; });
  copy.writes_first = copy.uninitialised = true;
  examples["copy"] = {copy};
  for (const double number : {0.0, 5.0}) {
    Example fill = WithNumbers(Base("aten.masked_fill.Scalar", Repeated(),
                                    [=](const Entries& x) { return x[1] > 0 ? number : x[0]; }),
                               {N(number)});
    examples["masked_fill"].push_back(fill);
  }
  for (const double number : {1.0, 2.0}) {
    examples["pow"].push_back(
        WithNumbers(Base("aten.pow.Tensor_Scalar", {{12, 6}},
                         [=](const Entries& x) { return std::pow(x[0], number); }),
                    {N(number)}));
  }

  AddNonlinear(examples);
  for (const char* name : {"gelu_backward", "silu_backward", "sigmoid_backward", "tanh_backward",
                           "softplus_backward", "threshold_backward"})
    AddDerivative(examples, name);
}

Examples AllExamples() {
  Examples examples;
  AddElementwiseExamples(examples);
  AddCombiningExamples(examples);
  AddStructuralExamples(examples);
  AddLookupExamples(examples);
  return examples;
}

}  // namespace sumonce::trace::testing
