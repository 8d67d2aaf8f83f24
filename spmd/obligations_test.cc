// The proof obligations of every registered operation (docs/THEORY.md "Obligations"): a new file of
// spmd/ops gets them without an edit here.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <map>

#include "spmd/testing/sweep.h"

namespace sumonce::testing {
namespace {

std::vector<std::string> OperationNames() {
  std::vector<std::string> names;
  for (const auto& [name, examples] : Operations().all()) names.push_back(name);
  return names;
}

class Obligations : public ::testing::TestWithParam<std::string> {
 protected:
  const std::vector<OperationExample>& examples() const {
    return Operations().all().at(GetParam());
  }
};
INSTANTIATE_TEST_SUITE_P(Operations, Obligations, ::testing::ValuesIn(OperationNames()),
                         [](const auto& info) { return info.param; });

void Add(const SweepResult& one, SweepResult& total) {
  for (auto count :
       {&SweepResult::forward_claims, &SweepResult::backward_claims, &SweepResult::forward_refusals,
        &SweepResult::backward_refusals, &SweepResult::forward_run, &SweepResult::backward_run,
        &SweepResult::forward_idle, &SweepResult::backward_idle}) {
    total.*count += one.*count;
  }
  total.unsound.insert(total.unsound.end(), one.unsound.begin(), one.unsound.end());
}

// Every state that the rules claim, forward or backward, is what n simulated ranks hold. An idle
// refusal is no fault: the rules know no homogeneous functions, no affine ones but addition, and
// refuse a partial gradient of a partial value even where the operation hands it on as it is. It is
// printed, and of values it must stay rare.
TEST_P(Obligations, EveryClaimedStateHolds) {
  SweepResult total;
  for (const OperationExample& example : examples()) {
    for (int n : {2, 3}) Add(Sweep(example, n).Run(), total);
  }
  std::cerr << GetParam() << ": forward " << total.forward_claims << " claims, "
            << total.forward_refusals << " refusals (" << total.forward_run << " run, "
            << total.forward_idle << " idle); backward " << total.backward_claims << " claims, "
            << total.backward_refusals << " refusals (" << total.backward_run << " run, "
            << total.backward_idle << " idle)\n";
  EXPECT_EQ(total.unsound.size(), 0u) << total.unsound.front();
  EXPECT_GT(total.forward_claims, 0);
  EXPECT_LE(total.forward_idle, 12) << "of " << total.forward_run;
}

// ---- Teeth: each falsehood that a declaration could hold, told to the rules.

struct Falsehood {
  std::string name;
  Sweep::Falsify tell;
};

// Whether the sweep cuts `dim` of some operand of the example.
bool IsCut(const OperationExample& example, Dim dim) {
  return std::any_of(example.operands.begin(), example.operands.end(), [&](const Dims& dims) {
    const int position = Find(dims, dim);
    return position >= 0 && dims[position].units % 2 == 0;
  });
}

std::vector<Falsehood> FalsehoodsOf(const OperationExample& example) {
  const Declaration truth = *example.operation->Declare(example.operands);
  std::vector<Falsehood> falsehoods;
  for (int i = 0; i < kNumDims; ++i) {
    const Dim dim = static_cast<Dim>(i);
    if (!IsCut(example, dim)) continue;
    for (const auto& [set, name] : {std::pair(&Declaration::sums, "does not sum "),
                                    std::pair(&Declaration::mixes, "does not mix "),
                                    std::pair(&Declaration::maxima, "takes no maximum over ")}) {
      if (!Contains(truth.*set, dim)) continue;
      falsehoods.push_back({name + std::string(Name(dim)),
                            [set = set, dim](Declaration& told) { told.*set &= ~SetOf(dim); }});
    }
  }
  if (truth.addition) {
    falsehoods.push_back({"is a product", [](Declaration& told) {
                            told.addition = false;
                            told.linear = ~0u;
                          }});
    return falsehoods;
  }
  for (size_t i = 0; i < example.operands.size(); ++i) {
    const bool constant = !example.constant.empty() && example.constant[i];
    if (constant || ((truth.linear >> i) & 1u)) continue;
    falsehoods.push_back({"is linear in operand " + std::to_string(i),
                          [i](Declaration& told) { told.linear |= 1u << i; }});
  }
  return falsehoods;
}

TEST_P(Obligations, EveryFalseDeclarationIsCaught) {
  std::map<std::string, bool> caught;  // by some example
  for (const OperationExample& example : examples()) {
    for (const Falsehood& falsehood : FalsehoodsOf(example)) {
      bool& found = caught[falsehood.name];
      for (int n : {2, 3})
        found = found || !Sweep(example, n, falsehood.tell).Run().unsound.empty();
    }
  }
  for (const auto& [name, found] : caught)
    EXPECT_TRUE(found) << GetParam() << " " << name << ": nothing noticed";
}

// ---- Gradients.

// <cotangent, f(operands)>, the function whose gradient Backward gives.
double Objective(const OperationExample& example, const std::vector<Tensor>& operands,
                 const Tensor& cotangent) {
  Tensor out(cotangent.dims());
  example.operation->Forward(operands, out);
  double sum = 0;
  for (int64_t i = 0; i < out.count(); ++i) sum += out.data()[i] * cotangent.data()[i];
  return sum;
}

// The central difference of the objective along `direction` of operand i.
double Difference(const OperationExample& example, std::vector<Tensor> operands,
                  const Tensor& cotangent, size_t i, const Tensor& direction) {
  constexpr double kStep = 1e-5;
  const Tensor at = operands[i];
  operands[i] = at.Clone();
  AddInto(operands[i], Scaled(direction, kStep));
  const double above = Objective(example, operands, cotangent);
  operands[i] = at.Clone();
  AddInto(operands[i], Scaled(direction, -kStep));
  return (above - Objective(example, operands, cotangent)) / (2 * kStep);
}

struct Point {
  std::vector<Tensor> operands, grads;
  Tensor out, cotangent;
};

Point EvaluateAt(const OperationExample& example) {
  Numbers numbers("finite differences", /*integers=*/false, example.low, example.high);
  Point point;
  for (size_t i = 0; i < example.operands.size(); ++i) {
    const bool constant = !example.constant.empty() && example.constant[i];
    point.operands.push_back(numbers.Fill(example.operands[i]));
    point.grads.push_back(constant ? Tensor() : Tensor(example.operands[i]));
  }
  point.out = Tensor(example.operation->Declare(example.operands)->result);
  point.cotangent = Numbers("cotangent", false, -2, 2).Fill(point.out.dims());
  example.operation->Forward(point.operands, point.out);
  example.operation->Backward(point.operands, point.out, point.cotangent, point.grads);
  return point;
}

// Single entries, and directions that see all entries at once.
TEST_P(Obligations, GradientsAreFiniteDifferences) {
  constexpr int64_t kEntries = 40;
  Numbers numbers("directions", false, -1, 1);
  for (const OperationExample& example : examples()) {
    const Point point = EvaluateAt(example);
    for (size_t i = 0; i < point.grads.size(); ++i) {
      const Tensor& grad = point.grads[i];
      if (grad.empty()) continue;
      SCOPED_TRACE(GetParam() + " operand " + std::to_string(i) + " " + Describe(grad.dims()));
      const double greatest = GreatestEntry(grad);
      EXPECT_GT(greatest, 0);
      for (int64_t at = 0; at < grad.count(); at += 1 + grad.count() / kEntries) {
        Tensor direction(grad.dims());
        direction.data()[at] = 1;
        EXPECT_NEAR(grad.data()[at],
                    Difference(example, point.operands, point.cotangent, i, direction),
                    1e-6 * greatest)
            << "entry " << at;
      }
      for (int k = 0; k < 3; ++k) {
        const Tensor direction = numbers.Fill(grad.dims());
        double expected = 0;
        for (int64_t at = 0; at < grad.count(); ++at)
          expected += grad.data()[at] * direction.data()[at];
        EXPECT_NEAR(expected, Difference(example, point.operands, point.cotangent, i, direction),
                    1e-6 * greatest * std::sqrt(static_cast<double>(grad.count())));
      }
    }
  }
}

Tensor ResultOf(const OperationExample& example, const std::vector<Tensor>& operands) {
  Tensor out(example.operation->Declare(example.operands)->result);
  example.operation->Forward(operands, out);
  return out;
}

// Whether f(x + y) = f(x) + f(y) for x and y in the place of these operands, the others fixed.
bool Additive(const OperationExample& example, const std::vector<size_t>& which) {
  Numbers numbers("additivity", /*integers=*/false, example.low, example.high);
  std::vector<Tensor> x;
  for (const Dims& dims : example.operands) x.push_back(numbers.Fill(dims));
  std::vector<Tensor> y = x, both = x;
  for (const size_t i : which) {
    y[i] = numbers.Fill(example.operands[i]);
    both[i] = x[i].Clone();
    AddInto(both[i], y[i]);
  }
  Tensor sum = ResultOf(example, x).Clone();
  AddInto(sum, ResultOf(example, y));
  return Near(ResultOf(example, both), sum, 1e-9);
}

// What is linear is declared: a declaration that forgets it claims nothing false, and refuses what
// holds.
TEST_P(Obligations, WhatIsLinearIsDeclared) {
  for (const OperationExample& example : examples()) {
    const Declaration declared = *example.operation->Declare(example.operands);
    std::vector<size_t> all;
    for (size_t i = 0; i < example.operands.size(); ++i) {
      all.push_back(i);
      if (example.operands.size() > 1 && declared.addition) continue;
      EXPECT_EQ(Additive(example, {i}), (declared.linear >> i & 1U) != 0)
          << GetParam() << " operand " << i << " " << Describe(example.operands[i]);
    }
    // Shift leaves it out on purpose (spmd/ops/shift.h).
    if (all.size() > 1 && GetParam() != "Shift")
      EXPECT_EQ(Additive(example, all), declared.addition) << GetParam();
  }
}

// Each gradient is the same whether or not the others are wanted.
TEST_P(Obligations, UnwantedGradientsAreLeftAlone) {
  for (const OperationExample& example : examples()) {
    const Point point = EvaluateAt(example);
    for (size_t i = 0; i < point.grads.size(); ++i) {
      if (point.grads[i].empty()) continue;
      std::vector<Tensor> only(point.grads.size());
      only[i] = Tensor(point.grads[i].dims());
      example.operation->Backward(point.operands, point.out, point.cotangent, only);
      EXPECT_TRUE(Near(only[i], point.grads[i], 0)) << GetParam() << " operand " << i;
      for (size_t j = 0; j < only.size(); ++j) EXPECT_EQ(only[j].empty(), j != i);
    }
  }
}

}  // namespace
}  // namespace sumonce::testing
