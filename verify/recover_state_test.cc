// Arrays are placed on the ranks in a known state, and the state is read off them again; the action
// table is run on numbers and on states, and both must say the same.
#include "verify/recover_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "spmd/map.h"
#include "spmd/testing/rank_arrays.h"
#include "verify/judge.h"

namespace sumonce {
namespace {

using testing::Numbers;
using testing::RankArrays;
using testing::Scaled;

constexpr Tolerance kRounded = {.height = 64, .gamma = 64 * 0x1p-53};
constexpr Tolerance kExact = {};

Mesh MeshOf(const MeshSizes& sizes) { return *Mesh::Create(sizes); }

DimExtent Sections(Dim dim, Packing packing) {
  return {.dim = dim, .units = 12, .parts = {4, 2, 1}, .packing = packing};
}

// Whole extents that 2, 3 and 4 divide: plain, and packed both ways.
std::vector<Dims> Shapes() {
  return {{Plain(Dim::kFfn, 12), Plain(Dim::kHidden, 5)},
          {Plain(Dim::kHidden, 5), Sections(Dim::kFfn, Packing::kUnitMajor)},
          {Sections(Dim::kFfn, Packing::kPartMajor), Plain(Dim::kHidden, 5)}};
}

Tensor Mixture(const Tensor& whole, Dim dim, int n) {
  RankArrays slices;
  for (int k = 0; k < n; ++k) slices.push_back(SliceUnits(whole, dim, k, n));
  return testing::Sum(slices);
}

// The arrays of all world ranks in `state` of `whole`, scale and all; mixtures are of the slices
// along kFfn.
class Placement {
 public:
  Placement(const State& state, const Mesh& mesh, Numbers& numbers)
      : state_(state), mesh_(mesh), numbers_(numbers), arrays_(mesh.world_size()) {
    // Terms first: copies and slices of them are then consistent over the other axes.
    for (bool partial : {true, false}) {
      for (size_t a = 0; a < mesh.atomic().size(); ++a) {
        if ((state[a].layout == Layout::kPartial) == partial) order_.push_back(static_cast<int>(a));
      }
    }
  }
  RankArrays Of(const Tensor& whole) {
    Fill(0, 0, Scaled(whole, state_.scale.Evaluate(mesh_)));
    return arrays_;
  }

 private:
  void Fill(size_t depth, int rank, const Tensor& tensor) {
    if (depth == order_.size()) {
      arrays_[rank] = tensor.Clone();
      return;
    }
    const AtomicAxis& axis = mesh_.atomic()[order_[depth]];
    const AxisState& layout = state_[order_[depth]];
    RankArrays line(axis.size, tensor);
    if (layout.layout == Layout::kMixed) {
      line.assign(axis.size, Mixture(tensor, Dim::kFfn, axis.size));
    } else {
      line = testing::Place(tensor, layout, 1.0, axis.size, numbers_);
    }
    for (int k = 0; k < axis.size; ++k) Fill(depth + 1, rank + k * axis.stride, line[k]);
  }

  const State& state_;
  const Mesh& mesh_;
  Numbers& numbers_;
  std::vector<int> order_;
  RankArrays arrays_;
};

bool SameLayouts(const State& a, const State& b) {
  for (int i = 0; i < kMaxAtomicAxes; ++i) {
    if (a[i].layout != b[i].layout) return false;
    if (a[i].layout == Layout::kShard && !(a[i] == b[i])) return false;
  }
  return true;
}

bool Contains(const RecoveredState& recovered, const State& state) {
  return std::any_of(recovered.all.begin(), recovered.all.end(), [&](const State& fit) {
    return fit.scale == state.scale && SameLayouts(fit, state);
  });
}

ShardMap Replicated(const Dims& whole) { return ShardMap(whole, {}); }
ShardMap CutByTp(const Dims& whole) { return ShardMap(whole, {{Dim::kFfn, Axis::kTp}}); }

std::vector<Scale> ScalesAlong(int axis) {
  return {Scale(),
          Scale::SizeOfAxis(axis),
          Scale::SizeOfAxis(axis, -1),
          Scale::SizeOfAxis(axis, 2),
          Scale::SizeOfAxis(axis, -2),
          Scale::Rational(7, 5),
          Scale::Rational(-1)};
}

TEST(RecoverState, EveryLayoutAndFactorAlongTp) {
  Numbers numbers("layouts", false, -1, 1);
  for (int n : {2, 3, 4}) {
    const Mesh mesh = MeshOf({.tp = n});
    for (const Dims& dims : Shapes()) {
      const Tensor whole = numbers.Fill(dims);
      for (const AxisState& layout : {Equal(), Partial(0), Shard(Dim::kFfn), Mixed()}) {
        const bool cut = layout.layout == Layout::kShard || layout.layout == Layout::kMixed;
        const ShardMap shards = cut ? CutByTp(dims) : Replicated(dims);
        for (const Scale& scale : ScalesAlong(0)) {
          State state;
          state[0] = layout;
          state.scale = scale;
          const RankArrays ranks = Placement(state, mesh, numbers).Of(whole);
          const RecoveredState recovered = RecoverState(shards, mesh, ranks, whole, kRounded);
          ASSERT_TRUE(recovered.found)
              << Describe(state, mesh) << " of " << Describe(dims) << ", n=" << n;
          EXPECT_TRUE(SameLayouts(recovered.state, state)) << Describe(recovered.state, mesh);
          EXPECT_EQ(recovered.state.scale, scale) << Describe(recovered.state, mesh);
          EXPECT_LE(recovered.diff_abs_max, recovered.allowed);
        }
      }
    }
  }
}

// Nothing else is among the fits of random numbers: one layout, one factor.
TEST(RecoverState, IndependentNumbersFitOneStateAlone) {
  Numbers numbers("alone", false, -1, 1);
  const Mesh mesh = MeshOf({.tp = 3});
  const Tensor whole = numbers.Fill(Shapes()[1]);
  for (const AxisState& layout : {Partial(0), Shard(Dim::kFfn)}) {
    State state;
    state[0] = layout;
    const ShardMap shards =
        layout.layout == Layout::kShard ? CutByTp(whole.dims()) : Replicated(whole.dims());
    const RankArrays ranks = Placement(state, mesh, numbers).Of(whole);
    EXPECT_EQ(RecoverState(shards, mesh, ranks, whole, kRounded).all.size(), 1u);
  }
}

// Equal terms are both: a complete gradient, and n times it in n equal terms.
TEST(RecoverState, EqualTermsFitCompleteAndPartial) {
  Numbers numbers("equal", false, -1, 1);
  const Mesh mesh = MeshOf({.tp = 3});
  const Tensor whole = numbers.Fill(Shapes()[0]);
  const RecoveredState recovered =
      RecoverState(Replicated(whole.dims()), mesh, RankArrays(3, whole), whole, kRounded);
  ASSERT_TRUE(recovered.found);
  EXPECT_TRUE(SameLayouts(recovered.state, State())) << "the target's own layout comes first";
  EXPECT_TRUE(recovered.state.scale.IsOne());
  State partial;
  partial[0] = Partial(0);
  partial.scale = Scale::SizeOfAxis(0);
  EXPECT_TRUE(Contains(recovered, partial));
  EXPECT_EQ(recovered.all.size(), 2u);
}

// With tp = dp the factors of both look alike; the set says so. The simplest comes first.
TEST(RecoverState, AxesOfOneSizeHaveFactorsThatLookAlike) {
  Numbers numbers("square", false, -1, 1);
  const Mesh mesh = MeshOf({.tp = 2, .dp = 2});
  const Tensor whole = numbers.Fill(Shapes()[0]);
  const auto recover = [&](double factor) {
    return RecoverState(Replicated(whole.dims()), mesh, RankArrays(4, Scaled(whole, factor)), whole,
                        kRounded);
  };
  EXPECT_TRUE(recover(1).state.scale.IsOne());
  for (int axis : {0, 1}) {
    State state;
    state.scale = Scale::SizeOfAxis(axis);
    EXPECT_TRUE(Contains(recover(2), state)) << Describe(state, mesh);
  }
}

TEST(RecoverState, ZeroIsNoEvidenceUnlessTheReferenceIsZero) {
  const Mesh mesh = MeshOf({.tp = 2});
  Numbers numbers("zero", false, 1, 2);
  const Dims dims = Shapes()[0];
  const RankArrays zeros(2, Tensor(dims));
  const RecoveredState both = RecoverState(Replicated(dims), mesh, zeros, Tensor(dims), kRounded);
  EXPECT_TRUE(both.zero && both.found);
  EXPECT_TRUE(both.state.scale.IsOne());
  const RecoveredState ranks_only =
      RecoverState(Replicated(dims), mesh, zeros, numbers.Fill(dims), kRounded);
  EXPECT_TRUE(ranks_only.zero);
  EXPECT_FALSE(ranks_only.found) << "zero is no multiple of a gradient";
  const RankArrays ones(2, numbers.Fill(dims));
  EXPECT_FALSE(RecoverState(Replicated(dims), mesh, ones, Tensor(dims), kRounded).found);
}

TEST(RecoverState, PermutedShardsAreNoState) {
  Numbers numbers("permuted", false, -1, 1);
  const Mesh mesh = MeshOf({.tp = 3});
  for (const Dims& dims : Shapes()) {
    const Tensor whole = numbers.Fill(dims);
    const ShardMap shards = CutByTp(dims);
    RankArrays swapped;
    for (int rank : {1, 0, 2}) swapped.push_back(shards.Slice(whole, mesh, rank));
    EXPECT_FALSE(RecoverState(shards, mesh, swapped, whole, kRounded).found) << "ranks swapped";
    RankArrays inside;
    for (int rank : {0, 1, 2}) inside.push_back(shards.Slice(whole, mesh, rank).Clone());
    std::swap(inside[2].data()[0], inside[2].data()[1]);
    EXPECT_FALSE(RecoverState(shards, mesh, inside, whole, kRounded).found)
        << "two entries swapped";
  }
}

// One copy, one entry, a little off: below the bound it is rounding, above it the state is gone.
TEST(RecoverState, TheBoundDecides) {
  Numbers numbers("bound", false, 0.5, 1);
  const Mesh mesh = MeshOf({.tp = 2});
  const Tensor whole = numbers.Fill(Shapes()[0]);
  RankArrays ranks = {whole, whole.Clone()};
  const double allowed =
      RecoverState(Replicated(whole.dims()), mesh, ranks, whole, kRounded).allowed;
  ASSERT_GT(allowed, 0);
  ranks[1].data()[7] += 0.5 * allowed;
  EXPECT_TRUE(RecoverState(Replicated(whole.dims()), mesh, ranks, whole, kRounded).found);
  EXPECT_FALSE(RecoverState(Replicated(whole.dims()), mesh, ranks, whole, kExact).found);
  ranks[1].data()[7] += 1.5 * allowed;
  EXPECT_FALSE(RecoverState(Replicated(whole.dims()), mesh, ranks, whole, kRounded).found);
}

TEST(RecoverState, NumbersThatAreNotFiniteAreNoState) {
  Numbers numbers("nan", false, -1, 1);
  const Mesh mesh = MeshOf({.tp = 2});
  const Tensor whole = numbers.Fill(Shapes()[0]);
  for (double bad : {std::nan(""), double{INFINITY}}) {
    RankArrays ranks = {whole.Clone(), whole.Clone()};
    ranks[0].data()[3] = ranks[1].data()[3] = bad;
    EXPECT_FALSE(RecoverState(Replicated(whole.dims()), mesh, ranks, whole, kRounded).found);
  }
}

// An all-reduce over one axis, in rank order.
RankArrays Reduce(const RankArrays& ranks, const AtomicAxis& axis, bool average) {
  RankArrays reduced;
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
    const int first = rank - rank / axis.stride % axis.size * axis.stride;
    Tensor sum = ranks[first].Clone();
    for (int k = 1; k < axis.size; ++k) AddInto(sum, ranks[first + k * axis.stride]);
    for (double& value : std::span(sum.data(), sum.count())) value /= average ? axis.size : 1;
    reduced.push_back(sum);
  }
  return reduced;
}

struct Gradient {
  State state;
  RankArrays ranks;
};

// none, SUM, AVG, SUM twice, AVG after /n: on states by the table of maps, on numbers by
// arithmetic.
std::vector<Gradient> AfterEachAction(const Gradient& before, int a, const Mesh& mesh) {
  const Group group{mesh.atomic()[a].name, {a}};
  const AtomicAxis& axis = mesh.atomic()[a];
  const auto act = [&](const Gradient& gradient, Map map) {
    return Gradient{Apply({.map = map}, group, gradient.state, 0),
                    Reduce(gradient.ranks, axis, map == Map::kAvg)};
  };
  Gradient divided{Apply(Scale::SizeOfAxis(a, -1), before.state), {}};
  for (const Tensor& rank : before.ranks) divided.ranks.push_back(Scaled(rank, 1.0 / axis.size));
  const Gradient sum = act(before, Map::kSum);
  return {before, sum, act(before, Map::kAvg), act(sum, Map::kSum), act(divided, Map::kAvg)};
}

struct TableCase {
  MeshSizes sizes;
  Tolerance tolerance;
};

class NumbersAgainstTheory : public ::testing::TestWithParam<TableCase> {
 protected:
  // The class along tp; over dp the terms of its ranks, summed as the first step of the finalizer
  // does.
  void ExpectAgreement(const AxisState& layout, int exponent, bool terms_over_dp) {
    const Mesh mesh = MeshOf(GetParam().sizes);
    const bool exact = GetParam().tolerance.gamma == 0;
    Numbers numbers("table", exact, -1, 1);
    const bool shard = layout.layout == Layout::kShard;
    for (const Dims& dims : Shapes()) {
      // Every division of the table leaves integers.
      const Tensor whole = Scaled(numbers.Fill(dims), exact ? 12 * 12 * 12 : 1);
      const ShardMap shards = shard ? CutByTp(dims) : Replicated(dims);
      Gradient before;
      before.state[0] = layout;
      before.state.scale = Scale::SizeOfAxis(0, exponent);
      if (terms_over_dp) before.state[1] = Partial(0);
      before.ranks = Placement(before.state, mesh, numbers).Of(whole);
      ExpectRecovered(before, shards, mesh, whole, before.state);
      Gradient summed = before;
      if (terms_over_dp) summed = AfterEachAction(before, 1, mesh)[1];
      for (const Gradient& after : AfterEachAction(summed, 0, mesh)) {
        ExpectRecovered(after, shards, mesh, whole, before.state);
      }
    }
  }

  void ExpectRecovered(const Gradient& gradient, const ShardMap& shards, const Mesh& mesh,
                       const Tensor& whole, const State& before) {
    const RecoveredState recovered =
        RecoverState(shards, mesh, gradient.ranks, whole, GetParam().tolerance);
    const std::string where = Describe(before, mesh) + " -> " + Describe(gradient.state, mesh) +
                              " of " + Describe(whole.dims());
    ASSERT_TRUE(recovered.found) << where;
    EXPECT_TRUE(SameLayouts(recovered.state, gradient.state))
        << where << ": " << Describe(recovered.state, mesh);
    EXPECT_TRUE(Contains(recovered, gradient.state)) << where;
    EXPECT_EQ(recovered.state.scale.Evaluate(mesh), gradient.state.scale.Evaluate(mesh)) << where;
    const std::vector<AtomicAxis>& axes = mesh.atomic();
    if (axes.size() > 1 && axes[0].size == axes[1].size) return;  // the factors look alike
    EXPECT_EQ(recovered.state.scale, gradient.state.scale)
        << where << ": " << Describe(recovered.state, mesh);
    ExpectSameJudgement(recovered.state, gradient.state, before, shards.Target(mesh), mesh);
  }

  void ExpectSameJudgement(const State& recovered, const State& state, const State& before,
                           const State& target, const Mesh& mesh) {
    const Judgement numbers = Judge(target, before, recovered, Scale(), mesh);
    const Judgement theory = Judge(target, before, state, Scale(), mesh);
    EXPECT_EQ(numbers.mechanism, theory.mechanism);
    EXPECT_EQ(numbers.coefficient, theory.coefficient);
    EXPECT_EQ(numbers.axis, theory.axis);
  }
};

TEST_P(NumbersAgainstTheory, WholeActionTable) {
  const bool two_axes = GetParam().sizes.dp > 1;
  for (bool terms_over_dp : {false, true}) {
    if (terms_over_dp && !two_axes) continue;
    ExpectAgreement(Partial(0), 0, terms_over_dp);
    ExpectAgreement(Equal(), 0, terms_over_dp);
    ExpectAgreement(Equal(), -1, terms_over_dp);
    ExpectAgreement(Shard(Dim::kFfn), 0, terms_over_dp);
    ExpectAgreement(Shard(Dim::kFfn), -1, terms_over_dp);
    ExpectAgreement(Shard(Dim::kFfn), 1, terms_over_dp);
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, NumbersAgainstTheory,
                         ::testing::Values(TableCase{{.tp = 2}, kRounded},
                                           TableCase{{.tp = 3}, kRounded},
                                           TableCase{{.tp = 4}, kRounded},
                                           TableCase{{.tp = 2, .dp = 2}, kRounded},
                                           TableCase{{.tp = 2, .dp = 3}, kRounded}));

// Integers and powers of two: zero tolerance. An average of three divides, and so does the
// comparison.
INSTANTIATE_TEST_SUITE_P(Exact, NumbersAgainstTheory,
                         ::testing::Values(TableCase{{.tp = 2}, kExact},
                                           TableCase{{.tp = 4}, kExact},
                                           TableCase{{.tp = 2, .dp = 2}, kExact}));

TEST(RecoverState, AveragesOfThreeAreExact) {
  Numbers numbers("thirds", true, 0, 0);
  const Mesh mesh = MeshOf({.tp = 3});
  const Tensor whole = Scaled(numbers.Fill(Shapes()[0]), 5);  // 5 / 3 is not 5 * (1 / 3)
  Gradient before;
  before.state[0] = Partial(0);
  before.ranks = Placement(before.state, mesh, numbers).Of(whole);
  const Gradient average = AfterEachAction(before, 0, mesh)[2];
  const RecoveredState recovered =
      RecoverState(Replicated(whole.dims()), mesh, average.ranks, whole, kExact);
  ASSERT_TRUE(recovered.found);
  EXPECT_EQ(recovered.state.scale, Scale::SizeOfAxis(0, -1));
}

}  // namespace
}  // namespace sumonce
