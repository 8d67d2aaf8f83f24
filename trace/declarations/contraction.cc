// Matrix products and convolutions.
#include "base/status.h"
#include "trace/declaration.h"
#include "trace/declarations/labels.h"

namespace sumonce::trace {
namespace {

LocalDeclaration Product(std::vector<int> positions, std::string_view letters,
                         std::string_view contracted) {
  return [=](const Call&) {
    return std::vector<LocalRule>{Lettered(positions, letters, Linear(0, 1), contracted)};
  };
}

// c + part: c is repeated along what it has not, or has once.
LocalRule SumWith(const Call& call, const Value& part) {
  const Extents& out = call.out_shape(0);
  const Extents& added = call.shape(0);
  const int missing = static_cast<int>(out.size()) - static_cast<int>(added.size());
  LocalRule rule;
  rule.addition = true;
  Operand c{.position = 0};
  for (int d = 0; d < static_cast<int>(out.size()); ++d) {
    rule.result.push_back(d);
    if (d >= missing) c.labels.push_back(added[d - missing] == out[d] ? d : kUnnamed);
  }
  rule.operands = {c, {.labels = rule.result, .part = &part}};
  return rule;
}

// addmm(c, a, b), baddbmm(c, a, b): beta * c + alpha * a b, where beta and alpha are the same
// numbers on all ranks and at all sizes (the prover sees to it), so the reference's as well. With
// beta 0 c is not read.
Rule AddedProduct(std::string_view letters, std::string_view contracted) {
  return [=](const Call& call) -> std::vector<Value> {
    const Value product = Evaluate(call, Lettered({1, 2}, letters, Linear(0, 1), contracted));
    const auto beta = call.keyword("beta");
    if (product.lost() || (beta && beta->value == 0)) return {product};
    return {Evaluate(call, SumWith(call, product))};
  };
}

// convolution(x, w, bias, stride, padding, dilation, transposed, output_padding, groups), one
// dimension: x [b, c, l], w [c_out, c_in / groups, k]. Depthwise: each channel by itself.
struct ConvolutionForm {
  bool known = false;
  bool depthwise = false;
};

ConvolutionForm FormOf(const Call& call, int x, int w, int transposed, int groups) {
  if (call.shape(x).size() != 3 || call.shape(w).size() != 3) return {};
  const int64_t channels = call.shape(x)[1];
  const int64_t count = call.integer(groups, 0);
  const bool depthwise = count == channels && call.shape(w)[0] == channels;
  return {.known = !call.flag(transposed, true) && (depthwise || count == 1),
          .depthwise = depthwise};
}

std::vector<LocalRule> Convolution(const Call& call) {
  const ConvolutionForm form = FormOf(call, 0, 1, 6, 8);
  if (!form.known || call.is_tensor(2)) return {UndeclaredForm()};
  if (form.depthwise) return {Lettered({0, 1}, "bcl,c.k->bcl", Linear(0, 1), "", "kl")};
  return {Lettered({0, 1}, "bcl,ock->bol", Linear(0, 1), "c", "kl")};
}

// convolution_backward(grad, x, w, bias_sizes, stride, padding, dilation, transposed,
// output_padding, groups, mask): the results that the mask asks for.
std::vector<LocalRule> ConvolutionBackward(const Call& call) {
  const ConvolutionForm form = FormOf(call, 1, 2, 7, 9);
  if (!form.known || !call.is_list(10)) return {UndeclaredForm()};
  const std::vector<int64_t> wanted = call.integers(10);
  std::vector<LocalRule> rules;
  for (size_t k = 0; k < wanted.size() && k < 3; ++k) {
    if (wanted[k] == 0) continue;
    if (k == 2) {
      rules.push_back(Lettered({0}, "bol->o", Linear(0), "bl"));
    } else if (form.depthwise) {
      rules.push_back(k == 0 ? Lettered({0, 2}, "bcl,c.k->bcl", Linear(0, 1), "", "kl")
                             : Lettered({0, 1}, "bcl,bcl->c.k", Linear(0, 1), "b", "l"));
    } else {
      rules.push_back(k == 0 ? Lettered({0, 2}, "bol,ock->bcl", Linear(0, 1), "o", "kl")
                             : Lettered({0, 1}, "bol,bcl->ock", Linear(0, 1), "b", "l"));
    }
  }
  return rules;
}

}  // namespace

void RegisterContraction(DeclarationTable& table) {
  table.AddLocal("mm", "tt", Product({0, 1}, "ik,kj->ij", "k"));
  table.AddLocal("bmm", "tt", Product({0, 1}, "bik,bkj->bij", "k"));
  table.Add("addmm", {.rule = AddedProduct("ik,kj->ij", "k"), .form = "ttt"});
  table.Add("baddbmm", {.rule = AddedProduct("bik,bkj->bij", "k"), .form = "ttt"});
  table.AddLocal("convolution", "tt", Convolution, 1u << 8);
  table.AddLocal("convolution_backward", "ttt", ConvolutionBackward, 1u << 9);
}

}  // namespace sumonce::trace
