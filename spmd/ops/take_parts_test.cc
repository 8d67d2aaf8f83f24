// What the sweeps cannot see: which entries the reshaping operations take, and in which packing.
#include "spmd/ops/take_parts.h"

#include "gtest/gtest.h"
#include "spmd/ops/swiglu.h"
#include "spmd/ops/unfold.h"
#include "tests/run_operation.h"

namespace sumonce {
namespace {

// Two groups of the parts q (2 entries), k, v; an entry's number: group, part, place.
Tensor Fused(Packing packing) {
  const DimExtent g = {Dim::kGroup, 2, {2, 1, 1}, packing};
  Tensor x({g});
  for (int64_t unit = 0; unit < 2; ++unit) {
    for (size_t part = 0; part < 3; ++part) {
      for (int64_t i = 0; i < g.parts[part]; ++i) {
        x.data()[g.Index(unit, part, i)] = static_cast<double>(100 * unit + 10 * part + i);
      }
    }
  }
  return x;
}

std::vector<double> Take(Packing packing, int first, int count) {
  const TakePartsOperation operation({.dim = Dim::kGroup, .first = first, .count = count});
  const Tensor out = testing::RunForward(operation, {Fused(packing)});
  return {out.values().begin(), out.values().end()};
}

TEST(TakeParts, KeepsThePacking) {
  EXPECT_EQ(Take(Packing::kUnitMajor, 1, 2), (std::vector<double>{10, 20, 110, 120}));
  EXPECT_EQ(Take(Packing::kPartMajor, 1, 2), (std::vector<double>{10, 110, 20, 120}));
}

TEST(TakeParts, OnePartIsTheSameInEitherPacking) {
  EXPECT_EQ(Take(Packing::kUnitMajor, 0, 1), (std::vector<double>{0, 1, 100, 101}));
  EXPECT_EQ(Take(Packing::kPartMajor, 0, 1), (std::vector<double>{0, 1, 100, 101}));
}

TEST(TakeParts, RefusesPartsThatAreNotThere) {
  const std::vector<Dims> x = {{{Dim::kGroup, 2, {2, 1, 1}, Packing::kUnitMajor}}};
  const absl::Status status =
      TakePartsOperation({.dim = Dim::kGroup, .first = 2, .count = 2}).Declare(x).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "TakeParts: x [g=2x(2,1,1)] has no parts 2..3 of g");
}

// The first half of fc1's output is the gate: silu(0) = 0 whatever the other is, and up = 0 alike.
TEST(Swiglu, TheFirstPartIsTheGate) {
  for (Packing packing : {Packing::kPartMajor, Packing::kUnitMajor}) {
    const DimExtent f = {Dim::kFfn, 2, {1, 1}, packing};
    Tensor x({f});
    x.data()[f.Index(0, 0, 0)] = 100;  // sigmoid(100) is 1 to the last bit
    x.data()[f.Index(0, 1, 0)] = 3;
    x.data()[f.Index(1, 0, 0)] = -100;  // and sigmoid(-100) nothing
    x.data()[f.Index(1, 1, 0)] = 3;
    const Tensor y = testing::RunForward(SwigluOperation(Dim::kFfn), {x});
    EXPECT_EQ(y.data()[0], 300);
    EXPECT_NEAR(y.data()[1], 0, 1e-40);
  }
}

TEST(Unfold, RefusesAnotherWidth) {
  const UnfoldOperation unfold({.dim = Dim::kGroup, .inner = {Plain(Dim::kHeadDim, 4)}});
  const std::vector<Dims> x = {{{Dim::kGroup, 2, {6}, Packing::kUnitMajor}}};
  const absl::Status status = unfold.Declare(x).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "Unfold: each unit of g of x [g=2x6] cannot become [d=4]");
}

}  // namespace
}  // namespace sumonce
