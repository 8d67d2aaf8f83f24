#include "spmd/tensor.h"

#include "gtest/gtest.h"
#include "spmd/testing/rank_arrays.h"

namespace sumonce {
namespace {

const DimExtent kUnitMajor = {Dim::kGroup, 6, {2, 1}, Packing::kUnitMajor};
const DimExtent kPartMajor = {Dim::kGroup, 6, {2, 1}, Packing::kPartMajor};
const DimExtent kRows = Plain(Dim::kSequence, 2), kColumns = Plain(Dim::kHidden, 3);

TEST(DimExtent, IndexRunsOverUnitsOrOverParts) {
  EXPECT_EQ(kUnitMajor.width(), 3);
  EXPECT_EQ(kUnitMajor.extent(), 18);
  EXPECT_EQ(kUnitMajor.Index(4, 1, 0), 14);  // 4 units of 3, then the part of 2
  EXPECT_EQ(kPartMajor.Index(4, 1, 0), 16);  // 6 units of 2, then 4 of 1
  EXPECT_EQ(kPartMajor.Index(4, 0, 1), 9);
}

TEST(Dims, AreDescribedWithTheirParts) {
  EXPECT_EQ(Describe(Dims{kRows, kUnitMajor}), "[s=2, g=6x(2,1)]");
  EXPECT_EQ(Describe(Dims{kPartMajor}), "[g=6x(2|1)]");
  EXPECT_EQ(Describe(SetOf(Dim::kHeadDim, Dim::kSequence)), "s,d");
  EXPECT_EQ(Count(Dims{kRows, kUnitMajor}), 36);
  EXPECT_EQ(Find(Dims{kRows, kColumns}, Dim::kHidden), 1);
  EXPECT_EQ(Find(Dims{kRows, kColumns}, Dim::kVocab), -1);
}

// A block has whole units: in the part-major packing a piece of every part.
TEST(Tensor, SliceTakesABlockOfUnitsFromEveryPart) {
  Tensor whole({kPartMajor});
  for (int64_t i = 0; i < 18; ++i) whole.data()[i] = static_cast<double>(i);
  const Tensor block = SliceUnits(whole, Dim::kGroup, 1, 3);
  EXPECT_EQ(block.dims(), (Dims{{Dim::kGroup, 2, {2, 1}, Packing::kPartMajor}}));
  EXPECT_EQ(std::vector<double>(block.values().begin(), block.values().end()),
            (std::vector<double>{4, 5, 6, 7, 14, 15}));
}

TEST(Tensor, JoinAndPadUndoSlice) {
  testing::Numbers numbers("tensor", true, 0, 0);
  for (const DimExtent& g : {kUnitMajor, kPartMajor}) {
    for (const Dims& dims : {Dims{kRows, g, kColumns}, Dims{g, kRows}, Dims{kColumns, g}}) {
      const Tensor whole = numbers.Fill(dims);
      for (int n : {2, 3}) {
        std::vector<Tensor> blocks;
        Tensor sum(dims);
        for (int k = 0; k < n; ++k) {
          blocks.push_back(SliceUnits(whole, Dim::kGroup, k, n));
          const Tensor padded = PadUnits(blocks.back(), Dim::kGroup, k, n);
          EXPECT_TRUE(testing::Near(SliceUnits(padded, Dim::kGroup, k, n), blocks.back(), 0));
          AddInto(sum, padded);
        }
        EXPECT_TRUE(testing::Near(JoinUnits(blocks, Dim::kGroup), whole, 0));
        EXPECT_TRUE(testing::Near(sum, whole, 0));  // zeros elsewhere
      }
    }
  }
}

TEST(Tensor, CopiesShareAndClonesDoNot) {
  Tensor tensor({kRows});
  Tensor copy = tensor;
  Tensor clone = tensor.Clone();
  tensor.data()[0] = 1;
  EXPECT_EQ(copy.data()[0], 1);
  EXPECT_EQ(clone.data()[0], 0);
  EXPECT_TRUE(Tensor().empty());
  EXPECT_TRUE(Tensor().Clone().empty());
}

TEST(TensorDeathTest, AWrongCountIsOurOwnFault) {
  EXPECT_DEATH(Tensor({kRows}, {1, 2, 3}), "3 values for \\[s=2\\]");
  EXPECT_DEATH(SliceUnits(Tensor({kColumns}), Dim::kHidden, 0, 2), "cannot be cut into 2 along h");
}

}  // namespace
}  // namespace sumonce
