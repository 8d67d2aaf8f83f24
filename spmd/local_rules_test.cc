// What one axis and one number cannot show of the local rules (the sweeps of obligations_test.cc
// show the rest): the order of cuts, the reasons, and why a gradient is partial.
#include "spmd/local_rules.h"

#include "gtest/gtest.h"

namespace sumonce {
namespace {

constexpr int kTwoAxes = 2;
const DimExtent kS = Plain(Dim::kSequence, 4), kH = Plain(Dim::kHidden, 4),
                kF = Plain(Dim::kFfn, 4);
const Dims kX = {kS, kH}, kW = {kF, kH};

// y [s, f] = x [s, h] W [f, h].
Declaration Product() {
  return {.result = {kS, kF}, .linear = Linear(0, 1), .sums = SetOf(Dim::kHidden)};
}

State Cut(Dim first, Dim second, int first_order = 0, int second_order = 0) {
  State state;
  state[0] = Shard(first, first_order);
  state[1] = Shard(second, second_order);
  return state;
}

State Forward(const Declaration& declaration, const State& x, const State& w) {
  return LocalForward(declaration, {{{&kX, &x}, {&kW, &w}}}, kTwoAxes, 5);
}
State Backward(const Declaration& declaration, const State& x, const State& w, const State& grad,
               size_t i) {
  const State result = Forward(declaration, x, w);
  return LocalBackward(declaration, {{{&kX, &x}, {&kW, &w}}}, result, grad, i, kTwoAxes, 5);
}

// tp then cp against cp then tp: the same slices on other ranks.
TEST(LocalRules, CutsOfOneDimensionMustNestAlike) {
  const State outer = Cut(Dim::kHidden, Dim::kHidden, 0, 1),
              inner = Cut(Dim::kHidden, Dim::kHidden, 1, 0);
  EXPECT_TRUE(Forward(Product(), outer, outer).ok());
  const State permuted = Forward(Product(), outer, inner);
  ASSERT_TRUE(permuted.lost);
  EXPECT_EQ(permuted.lost.operation, 5);
  EXPECT_STREQ(permuted.lost.reason, "operands are cut by several axes in another order");
}

// Axes are independent: tokens cut along one, the contracted dimension along the other.
TEST(LocalRules, EachAxisHasItsOwnRule) {
  State w;
  w[1] = Shard(Dim::kHidden);
  const State x = Cut(Dim::kSequence, Dim::kHidden);
  const State y = Forward(Product(), x, w);
  EXPECT_EQ(y[0], Shard(Dim::kSequence));
  EXPECT_EQ(y[1], Partial(SetOf(Dim::kHidden)));

  State y_grad;  // of a sum over the second axis: complete there
  y_grad[0] = Shard(Dim::kSequence);
  const State x_grad = Backward(Product(), x, w, y_grad, 0);
  EXPECT_EQ(x_grad[0], Shard(Dim::kSequence));
  EXPECT_EQ(x_grad[1], Shard(Dim::kHidden));
  const State w_grad = Backward(Product(), x, w, y_grad, 1);
  EXPECT_EQ(w_grad[0], Partial(SetOf(Dim::kSequence)));  // why: each rank sees its own tokens
  EXPECT_EQ(w_grad[1], Shard(Dim::kHidden));
}

// The other factor of a partial operand has terms for the reason that the operand has.
TEST(LocalRules, APartialOperandsReasonPassesToTheOtherFactor) {
  State x;
  x[0] = Partial(SetOf(Dim::kFfn));
  EXPECT_EQ(Forward(Product(), x, State())[0], Partial(SetOf(Dim::kFfn)));
  EXPECT_EQ(Backward(Product(), x, State(), State(), 1)[0], Partial(SetOf(Dim::kFfn)));
  EXPECT_EQ(Backward(Product(), x, State(), State(), 0)[0], Equal());
}

TEST(LocalRules, TheFirstFaultIsKept) {
  State lost, off;
  lost.lost = {"earlier", 2};
  off.off = {"values", 3};
  EXPECT_STREQ(Forward(Product(), lost, off).lost.reason, "earlier");
  EXPECT_EQ(Forward(Product(), State(), off).off.operation, 3);
  // The gradient of the factor that is off reads the sound one only; the other's reads the unsound
  // values.
  EXPECT_TRUE(Backward(Product(), State(), off, State(), 1).ok());
  EXPECT_EQ(Backward(Product(), State(), off, State(), 0).lost.operation, 3);
}

// An addend that every rank holds entire is counted once per rank, unless it is an n-th.
TEST(LocalRules, AnEqualAddendOfAPartialSumMustBeAnNth) {
  const Declaration sum = {.result = kX, .addition = true};
  State partial, nth;
  partial[0] = Partial(SetOf(Dim::kFfn));
  nth.scale = Scale::SizeOfAxis(0, -1);
  const auto add = [&](const State& a, const State& b) {
    return LocalForward(sum, {{{&kX, &a}, {&kX, &b}}}, kTwoAxes, 5);
  };
  EXPECT_TRUE(add(partial, nth).ok());
  EXPECT_EQ(add(nth, partial).axes, partial.axes);
  const State counted = add(partial, State());
  EXPECT_FALSE(counted.lost);
  EXPECT_STREQ(counted.off.reason, "an addend is counted once per rank in a partial sum");
  EXPECT_EQ(counted[0].layout, Layout::kPartial);
}

}  // namespace
}  // namespace sumonce
