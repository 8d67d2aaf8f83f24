// The table of communications against n simulated ranks in integers: what it claims holds, what it
// refuses is in no state. And each pair of collectives against the definition of a transpose.
#include "spmd/map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <map>

#include "spmd/abstract_tape.h"
#include "spmd/collectives.h"
#include "spmd/testing/rank_arrays.h"

namespace sumonce::testing {
namespace {

constexpr Dim kS = Dim::kSequence;
constexpr Dim kK = Dim::kKeyHead;

bool CanCut(const RankArrays& x, Dim dim, int n) {
  const int position = Find(x[0].dims(), dim);
  return position >= 0 && x[0].dims()[position].units % n == 0;
}

// The map as a program would run it; nullopt if shapes do not allow it.
std::optional<RankArrays> Simulate(const MapArgs& args, const RankArrays& x) {
  const int n = static_cast<int>(x.size());
  const bool cuts = args.map == Map::kReduceScatter || args.map == Map::kSplit;
  if (cuts && !CanCut(x, args.dim, n)) return std::nullopt;
  if (args.map == Map::kAllToAll && !CanCut(x, args.other_dim, n)) return std::nullopt;
  RankArrays y;
  for (int rank = 0; rank < n; ++rank) {
    RankArrays received;
    switch (args.map) {
      case Map::kSum:
        y.push_back(Sum(x));
        break;
      case Map::kAvg:
        y.push_back(Sum(x));
        for (double& value : std::span(y.back().data(), y.back().count())) value /= n;
        break;
      case Map::kReduceScatter:
        y.push_back(SliceUnits(Sum(x), args.dim, rank, n));
        break;
      case Map::kAllGather:
        y.push_back(JoinUnits(x, args.dim));
        break;
      case Map::kSplit:
        y.push_back(SliceUnits(x[rank], args.dim, rank, n));
        break;
      case Map::kPad:
        y.push_back(PadUnits(x[rank], args.dim, rank, n));
        break;
      case Map::kAllToAll:
        for (const Tensor& from : x) received.push_back(SliceUnits(from, args.other_dim, rank, n));
        y.push_back(JoinUnits(received, args.dim));
        break;
      case Map::kOwn:
        y.push_back(rank == 0 ? x[0] : Tensor(x[0].dims()));
        break;
      case Map::kMax:
        y.push_back(Maximum(x));
        break;
      case Map::kIdentity:
      case Map::kStop:
        y.push_back(x[rank]);
        break;
    }
  }
  return y;
}

const std::vector<MapArgs>& AllMaps() {
  static const auto& maps = *new std::vector<MapArgs>{
      {.map = Map::kIdentity},
      {.map = Map::kSum},
      {.map = Map::kAvg},
      {.map = Map::kReduceScatter, .dim = kS},
      {.map = Map::kReduceScatter, .dim = kK},
      {.map = Map::kAllGather, .dim = kS},
      {.map = Map::kAllGather, .dim = kK},
      {.map = Map::kSplit, .dim = kS},
      {.map = Map::kSplit, .dim = kK},
      {.map = Map::kPad, .dim = kS},
      {.map = Map::kPad, .dim = kK},
      {.map = Map::kAllToAll, .dim = kS, .other_dim = kK},
      {.map = Map::kAllToAll, .dim = kK, .other_dim = kS},
      {.map = Map::kOwn},
      {.map = Map::kMax},
  };
  return maps;
}

// Entries divisible by 36, extents by 4 and 9: every step is exact, also /n twice.
Tensor Whole(Numbers& numbers) { return Scaled(numbers.Fill({Plain(kS, 36), Plain(kK, 36)}), 36); }

Tensor MixtureOf(const Tensor& whole, Dim dim, int n) {
  RankArrays slices;
  for (int rank = 0; rank < n; ++rank) slices.push_back(SliceUnits(whole, dim, rank, n));
  return Sum(slices);
}

RankArrays PlaceAny(const Tensor& whole, const State& state, double factor, int n,
                    Numbers& numbers) {
  if (state[0].layout == Layout::kMixed) {
    RankArrays arrays;
    for (int rank = 0; rank < n; ++rank) arrays.push_back(Scaled(MixtureOf(whole, kS, n), factor));
    return arrays;
  }
  if (state[0].layout != Layout::kMaxima) return Place(whole, state[0], factor, n, numbers);
  RankArrays arrays = Place(whole, Equal(), factor, n, numbers);
  for (int64_t i = 0; i < whole.count(); ++i) {  // rank i % n has the maximum, the others less
    for (int rank = 0; rank < n; ++rank) arrays[rank].data()[i] -= rank == i % n ? 0 : 1 + rank;
  }
  return arrays;
}

bool HoldsOrMixed(const State& state, double factor, const RankArrays& arrays,
                  const Tensor& whole) {
  if (state[0].layout != Layout::kMixed) return Holds(state[0], factor, arrays, whole, 0);
  for (Dim dim : {kS, kK}) {  // a mixture's state does not keep its dimension
    const Tensor expected = Scaled(MixtureOf(whole, dim, static_cast<int>(arrays.size())), factor);
    if (std::all_of(arrays.begin(), arrays.end(),
                    [&](const Tensor& array) { return Near(array, expected, 0); })) {
      return true;
    }
  }
  return false;
}

std::vector<State> AllStates() {
  std::vector<State> states;
  for (const AxisState& axis :
       {Equal(), Shard(kS), Shard(kK), Partial(SetOf(kS)), Mixed(), Maxima()}) {
    for (int exponent : {0, 1, -1}) {
      State state;
      state[0] = axis;
      state.scale = Scale::SizeOfAxis(0, exponent);
      states.push_back(state);
    }
  }
  return states;
}

class MapTable : public ::testing::TestWithParam<int> {
 protected:
  const int n_ = GetParam();
  const Mesh mesh_ = OneAxisMesh(n_);
  Numbers numbers_{"map", /*integers=*/true, 0, 0};
  double Factor(const State& state) const { return state.scale.Evaluate(mesh_); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, MapTable, ::testing::Values(2, 3));

TEST_P(MapTable, ClaimsHoldAndRefusalsAreNoState) {
  const Tensor whole = Whole(numbers_);
  int claims = 0, refusals = 0;
  for (const MapArgs& args : AllMaps()) {
    for (const State& state : AllStates()) {
      const RankArrays x = PlaceAny(whole, state, Factor(state), n_, numbers_);
      const std::optional<RankArrays> y = Simulate(args, x);
      const State predicted = Apply(args, mesh_.GroupOf(Axis::kTp), state, 0);
      SCOPED_TRACE(std::string(Name(args.map)) + " along " + std::string(Name(args.dim)) + " of " +
                   Describe(state, mesh_) + " gives " + Describe(predicted, mesh_));
      EXPECT_FALSE(predicted.off);
      if (predicted.lost) {
        ++refusals;
        // A scaled maximum is refused though a positive scale would do: scales have no sign.
        const bool scaled_maximum =
            args.map == Map::kMax && state[0].layout == Layout::kMaxima && !state.scale.IsOne();
        EXPECT_TRUE(!y || scaled_maximum || !HoldsAnyState(*y, whole, 0));
        continue;
      }
      ++claims;
      ASSERT_TRUE(y.has_value());
      EXPECT_TRUE(HoldsOrMixed(predicted, Factor(predicted), *y, whole));
    }
  }
  std::cerr << claims << " claims, " << refusals << " refusals\n";
}

// Two gradients of one value meet: the sum of their arrays is in the joined state of the sum of the
// two.
TEST_P(MapTable, JoinedGradientsHold) {
  const Tensor whole_a = Whole(numbers_), whole_b = Whole(numbers_);
  Tensor whole_sum = whole_a.Clone();
  AddInto(whole_sum, whole_b);
  int claims = 0;
  for (const State& a : AllStates()) {
    for (const State& b : AllStates()) {
      if (a[0].layout == Layout::kMaxima || b[0].layout == Layout::kMaxima)
        continue;  // never a gradient
      RankArrays sum = PlaceAny(whole_a, a, Factor(a), n_, numbers_);
      const RankArrays term = PlaceAny(whole_b, b, Factor(b), n_, numbers_);
      if (!SameDims({sum[0], term[0]})) {
        EXPECT_TRUE(Join(a, b, 0).lost) << Describe(a, mesh_) << " and " << Describe(b, mesh_);
        continue;
      }
      for (int rank = 0; rank < n_; ++rank) AddInto(sum[rank], term[rank]);
      const State joined = Join(a, b, 0);
      SCOPED_TRACE(Describe(a, mesh_) + " and " + Describe(b, mesh_) + " give " +
                   Describe(joined, mesh_));
      if (joined.lost) {
        EXPECT_FALSE(HoldsAnyState(sum, whole_sum, 0));
        continue;
      }
      ++claims;
      EXPECT_TRUE(HoldsOrMixed(joined, Factor(joined), sum, whole_sum));
    }
  }
  EXPECT_GT(claims, 0);
}

// ---- Pairs. A type fixes which arrays its values and its gradients are (docs/THEORY.md "Types"):
// R (E, P), I (E, E), V (S, S), P (P, E). A value is paired with its gradient by the sum over
// ranks, but an I value, one value that all ranks hold, counts once.

struct Type {
  char name = 'R';
  Dim dim = kS;  // of V
};

Dims DimsOf(const Type& type, int n) {
  Dims dims = {Plain(kS, 6), Plain(kK, 6)};
  if (type.name == 'V') dims[Find(dims, type.dim)].units /= n;
  return dims;
}
bool EqualValues(const Type& type) { return type.name == 'R' || type.name == 'I'; }
bool EqualGradients(const Type& type) { return type.name == 'I' || type.name == 'P'; }

RankArrays Draw(const Dims& dims, bool equal, int n, Numbers& numbers) {
  RankArrays arrays;
  for (int rank = 0; rank < n; ++rank)
    arrays.push_back(equal && rank > 0 ? arrays[0] : numbers.Fill(dims));
  return arrays;
}

bool Fits(const RankArrays& arrays, const Dims& dims, bool equal) {
  return std::all_of(arrays.begin(), arrays.end(), [&](const Tensor& array) {
    return array.dims() == dims && (!equal || Near(array, arrays[0], 0));
  });
}

double PairOf(const Type& type, const RankArrays& value, const RankArrays& gradient) {
  double sum = 0;
  for (size_t rank = 0; rank < value.size(); ++rank) {
    for (int64_t i = 0; i < value[rank].count(); ++i)
      sum += value[rank].data()[i] * gradient[rank].data()[i];
  }
  return type.name == 'I' ? sum / static_cast<double>(value.size()) : sum;
}

// <forward(x), y> = <x, backward(y)> for values x of type `from` and gradients y of type `to`.
bool IsTransposed(const MapArgs& forward, const MapArgs& backward, const Type& from, const Type& to,
                  int n, Numbers& numbers) {
  const RankArrays x = Draw(DimsOf(from, n), EqualValues(from), n, numbers);
  const RankArrays y = Draw(DimsOf(to, n), EqualGradients(to), n, numbers);
  const std::optional<RankArrays> fx = Simulate(forward, x);
  const std::optional<RankArrays> by = Simulate(backward, y);
  if (!fx || !by || !Fits(*fx, DimsOf(to, n), EqualValues(to))) return false;
  if (!Fits(*by, DimsOf(from, n), EqualGradients(from))) return false;
  return PairOf(to, *fx, y) == PairOf(from, x, *by);
}

struct Reading {
  Type from, to;
};

const std::map<std::string, Reading>& Readings() {
  static const auto& readings = *new std::map<std::string, Reading>{
      {"Copy", {{'I'}, {'R'}}},
      {"AllReduce", {{'P'}, {'I'}}},
      {"AllReduceBoth", {{'P'}, {'R'}}},
      {"AllGather to R", {{'V', kS}, {'R'}}},
      {"AllGather to I", {{'V', kS}, {'I'}}},
      {"ReduceScatter", {{'P'}, {'V', kS}}},
      {"Scatter", {{'I'}, {'V', kS}}},
      {"Slice", {{'R'}, {'V', kK}}},
      {"AllToAll", {{'V', kS}, {'V', kK}}},
      {"Owner", {{'R'}, {'P'}}},
  };
  return readings;
}

// Every dual pair is a transpose under its type, and no other backward map of the table would be,
// but for maps that leave equal gradients as they are.
TEST_P(MapTable, DualPairsAreTransposesAndNoOtherBackwardIs) {
  for (const CollectivePair& pair : CollectivePairs()) {
    if (!pair.dual) continue;
    SCOPED_TRACE(pair.name);
    ASSERT_TRUE(Readings().contains(pair.name)) << "say which types the new pair converts";
    const auto& [from, to] = Readings().at(pair.name);
    EXPECT_TRUE(IsTransposed(pair.forward, pair.backward, from, to, n_, numbers_));
    for (const MapArgs& other : AllMaps()) {
      const bool itself = other.map == pair.backward.map && other.dim == pair.backward.dim;
      const bool idle =
          pair.name == "AllReduce" && (other.map == Map::kAvg || other.map == Map::kMax);
      if (itself || idle || other.map == pair.backward.map) continue;
      EXPECT_FALSE(IsTransposed(pair.forward, other, from, to, n_, numbers_)) << Name(other.map);
    }
  }
}

// The list is checked for what it says; this is that the functions make what it says.
TEST(CollectivePairs, AreWhatTheFunctionsMake) {
  const Axis tp = Axis::kTp;
  const Dim s = Dim::kSequence, k = Dim::kKeyHead;
  using Make = std::function<Value(Tape&, Value)>;
  const std::map<std::string, Make> makers = {
      {"Copy", [&](Tape& t, Value x) { return CopyToRegion(t, x, tp); }},
      {"AllReduce", [&](Tape& t, Value x) { return ReduceFromRegion(t, x, tp); }},
      {"AllReduceBoth", [&](Tape& t, Value x) { return AllReduceBoth(t, x, tp); }},
      {"AllGather to R",
       [&](Tape& t, Value x) { return AllGather(t, x, tp, s, GatherGrad::kReduceScatter); }},
      {"AllGather to I",
       [&](Tape& t, Value x) { return AllGather(t, x, tp, s, GatherGrad::kSplit); }},
      {"ReduceScatter", [&](Tape& t, Value x) { return ReduceScatter(t, x, tp, s); }},
      {"Scatter", [&](Tape& t, Value x) { return ScatterToRegion(t, x, tp, s); }},
      {"Slice", [&](Tape& t, Value x) { return SliceReplicated(t, x, tp, k); }},
      {"AllToAll", [&](Tape& t, Value x) { return AllToAll(t, x, tp, s, k); }},
      {"Owner", [&](Tape& t, Value x) { return OwnerOnly(t, x, tp); }},
      {"StopMax", [&](Tape& t, Value x) { return StopMax(t, x, tp); }}};
  const Mesh mesh = *Mesh::Create({.tp = 2});
  EXPECT_EQ(CollectivePairs().size(), makers.size());
  for (const CollectivePair& pair : CollectivePairs()) {
    AbstractTape tape(mesh);
    Collective made;
    tape.edit_collective = [&](const std::string&, Collective& collective) { made = collective; };
    Param param{.name = "x", .shards = ShardMap({Plain(s, 8), Plain(k, 4)}, {})};
    makers.at(pair.name)(tape, tape.Use(param));
    for (const auto& [says, does] :
         {std::pair(pair.forward, made.forward), std::pair(pair.backward, made.backward)}) {
      EXPECT_EQ(says.map, does.map) << pair.name;
      EXPECT_EQ(says.dim, does.dim) << pair.name;
      EXPECT_EQ(says.other_dim, does.other_dim) << pair.name;
    }
  }
}

TEST(CollectivePairs, ThoseThatAreNotDualSayWhy) {
  std::vector<std::string> not_dual;
  for (const CollectivePair& pair : CollectivePairs()) {
    if (pair.dual) continue;
    not_dual.push_back(pair.name);
    EXPECT_FALSE(pair.why_not.empty()) << pair.name;
  }
  EXPECT_THAT(not_dual, ::testing::ElementsAre("StopMax"));
}

// ---- Groups of several axes.

// A dimension cut by two axes: the slow one first; it is joined from the fast one on, and only
// whole.
TEST(MapOfTwoAxes, CutsNestAndJoinInReverse) {
  const Mesh mesh = *Mesh::Create({.tp = 2, .cp = 3});
  const Group both = mesh.GroupOf({Axis::kCp, Axis::kTp}, "tp_cp");
  const int tp = mesh.GroupOf(Axis::kTp).atomic.at(0);
  const int cp = mesh.GroupOf(Axis::kCp).atomic.at(0);
  const State cut = Apply({.map = Map::kSplit, .dim = kS}, both, State(), 0);
  const int slow = both.atomic[0] == cp ? cp : tp;
  EXPECT_EQ(cut[slow], Shard(kS, 0));
  EXPECT_EQ(cut[slow == cp ? tp : cp], Shard(kS, 1));

  const MapArgs gather = {.map = Map::kAllGather, .dim = kS};
  EXPECT_TRUE(Apply(gather, both, cut, 0).ok());
  EXPECT_EQ(Apply(gather, both, cut, 0).axes, State().axes);
  EXPECT_TRUE(Apply(gather, mesh.GroupOf(slow == cp ? Axis::kCp : Axis::kTp), cut, 7).lost);
  EXPECT_EQ(Apply(gather, mesh.GroupOf(slow == cp ? Axis::kCp : Axis::kTp), cut, 7).lost.operation,
            7);
}

// A sum over both axes of copies along one and terms along the other counts the copies.
TEST(MapOfTwoAxes, SumCountsTheCopiesOfOneAxis) {
  const Mesh mesh = *Mesh::Create({.tp = 2, .cp = 3});
  State state;
  state[mesh.GroupOf(Axis::kCp).atomic.at(0)] = Partial(SetOf(kS));
  const State sum =
      Apply({.map = Map::kSum}, mesh.GroupOf({Axis::kCp, Axis::kTp}, "tp_cp"), state, 0);
  EXPECT_EQ(sum.axes, State().axes);
  EXPECT_EQ(sum.scale.Describe(mesh), "tp");
}

TEST(MapOfLostStates, StayLostWithTheFirstReason) {
  const Mesh mesh = OneAxisMesh(2);
  State state;
  state.lost = {"first", 3};
  const State after = Apply({.map = Map::kSum}, mesh.GroupOf(Axis::kTp), state, 9);
  EXPECT_STREQ(after.lost.reason, "first");
  EXPECT_EQ(after.lost.operation, 3);
}

}  // namespace
}  // namespace sumonce::testing
