#include "comm/mesh.h"

#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sumonce {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Mesh Make(const MeshSizes& sizes) {
  absl::StatusOr<Mesh> mesh = Mesh::Create(sizes);
  EXPECT_TRUE(mesh.ok()) << mesh.status();
  return *mesh;
}

std::string ErrorOf(const MeshSizes& sizes) {
  const absl::StatusOr<Mesh> mesh = Mesh::Create(sizes);
  EXPECT_EQ(mesh.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(mesh.status().message());
}

// tp 2, cp 2, dp 2, pp 2: rank = tp + 2 cp + 4 dp + 8 pp, the groups as Megatron's
// initialize_model_parallel with order "tp-cp-ep-dp-pp" lists them, written out by hand.
TEST(Mesh, MegatronsRankOrder) {
  const Mesh mesh = Make({.tp = 2, .cp = 2, .dp = 2, .pp = 2});
  EXPECT_EQ(mesh.world_size(), 16);
  EXPECT_THAT(mesh.Ranks(mesh.GroupOf(Axis::kTp), 5), ElementsAre(4, 5));
  EXPECT_THAT(mesh.Ranks(mesh.GroupOf(Axis::kCp), 5), ElementsAre(5, 7));
  EXPECT_THAT(mesh.Ranks(mesh.GroupOf(Axis::kDp), 5), ElementsAre(1, 5));
  EXPECT_THAT(mesh.Ranks(mesh.GroupOf(Axis::kPp), 5), ElementsAre(5, 13));
  EXPECT_THAT(mesh.Ranks(mesh.GroupOf({Axis::kDp, Axis::kCp}, "dp_cp"), 5),
              ElementsAre(1, 3, 5, 7));
  EXPECT_THAT(mesh.Ranks(mesh.GroupOf({Axis::kTp, Axis::kCp}, "tp_cp"), 13),
              ElementsAre(12, 13, 14, 15));
  EXPECT_THAT(mesh.Ranks(mesh.GroupOf({Axis::kTp, Axis::kDp, Axis::kCp}, "tp_dp_cp"), 13),
              ElementsAre(8, 9, 10, 11, 12, 13, 14, 15));
  EXPECT_THAT(mesh.Ranks(mesh.GroupOf({Axis::kTp, Axis::kPp}, "mp"), 6), ElementsAre(6, 7, 14, 15));
  EXPECT_EQ(mesh.coordinate(13, Axis::kTp), 1);
  EXPECT_EQ(mesh.coordinate(13, Axis::kCp), 0);
  EXPECT_EQ(mesh.coordinate(13, Axis::kDp), 1);
  EXPECT_EQ(mesh.coordinate(13, Axis::kPp), 1);
}

// Ranks of a group are ascending whatever the order in which its axes are named, and overlapping
// ones count once.
TEST(Mesh, GroupOrderIsByRank) {
  const Mesh mesh = Make({.tp = 4, .cp = 1, .dp = 2, .ep = 2, .etp = 1});
  EXPECT_EQ(mesh.GroupOf({Axis::kTp, Axis::kDp}, "g"), mesh.GroupOf({Axis::kDp, Axis::kTp}, "g"));
  EXPECT_EQ(mesh.size(mesh.GroupOf({Axis::kTp, Axis::kEp}, "g")), 4);
}

// docs/THEORY.md, "Atomic axes": t=4, e=2, x=1 has a0(2), a1(2); tp = (a0,a1), ep = (a0), edp =
// (a1).
TEST(Mesh, AtomicAxesOfTheTheorysExample) {
  const Mesh mesh = Make({.tp = 4, .ep = 2, .etp = 1});
  ASSERT_EQ(mesh.atomic().size(), 2u);
  EXPECT_EQ(mesh.atomic()[0].size, 2);
  EXPECT_EQ(mesh.atomic()[0].stride, 1);
  EXPECT_EQ(mesh.atomic()[0].name, "tp.0");
  EXPECT_EQ(mesh.atomic()[1].size, 2);
  EXPECT_EQ(mesh.atomic()[1].stride, 2);
  EXPECT_EQ(mesh.atomic()[1].name, "tp.1");
  EXPECT_THAT(mesh.GroupOf(Axis::kTp).atomic, ElementsAre(1, 0));
  EXPECT_THAT(mesh.GroupOf(Axis::kEp).atomic, ElementsAre(0));
  EXPECT_THAT(mesh.GroupOf(Axis::kEdp).atomic, ElementsAre(1));
  EXPECT_THAT(mesh.Ranks(mesh.GroupOf(Axis::kEp), 3), ElementsAre(2, 3));
  EXPECT_THAT(mesh.Ranks(mesh.GroupOf(Axis::kEdp), 3), ElementsAre(1, 3));
}

// tp 2, cp 1, dp 4, pp 2 with ep 4, etp 1: ep takes tp and half of dp; edp the other half; stages
// stay apart.
TEST(Mesh, ExpertGroupsAcrossTpAndDp) {
  const Mesh mesh = Make({.tp = 2, .dp = 4, .pp = 2, .ep = 4, .etp = 1});
  EXPECT_THAT(mesh.Ranks(mesh.GroupOf(Axis::kEp), 14), ElementsAre(12, 13, 14, 15));
  EXPECT_THAT(mesh.Ranks(mesh.GroupOf(Axis::kEdp), 14), ElementsAre(10, 14));
  EXPECT_EQ(mesh.size(Axis::kEtp), 1);
  EXPECT_EQ(mesh.size(Axis::kEdp), 2);
  EXPECT_EQ(mesh.atomic()[1].name, "dp.0");
  EXPECT_EQ(mesh.atomic()[3].name, "pp");
}

TEST(Mesh, EtpIsTpUnlessSaid) {
  const Mesh mesh = Make({.tp = 2, .dp = 4, .ep = 2});
  EXPECT_EQ(mesh.sizes().etp, 2);
  EXPECT_EQ(mesh.size(Axis::kEdp), 2);
  EXPECT_THAT(mesh.Ranks(mesh.GroupOf(Axis::kEp), 5), ElementsAre(5, 7));
}

// For every rank, its place in the group is RankIn; every axis's groups partition the world.
TEST(Mesh, RanksAndRankInAgree) {
  const Mesh mesh = Make({.tp = 2, .cp = 3, .dp = 4, .pp = 2, .ep = 6, .etp = 1});
  for (int axis = 0; axis < kNumAxes; ++axis) {
    const Group group = mesh.GroupOf(static_cast<Axis>(axis));
    std::vector<int> seen(mesh.world_size(), 0);
    for (int rank = 0; rank < mesh.world_size(); ++rank) {
      const std::vector<int> ranks = mesh.Ranks(group, rank);
      EXPECT_EQ(static_cast<int>(ranks.size()), mesh.size(group));
      EXPECT_EQ(ranks[mesh.RankIn(group, rank)], rank);
      for (int member : ranks) ++seen[member];
    }
    for (int count : seen) EXPECT_EQ(count, mesh.size(group)) << group.name;
  }
}

// An axis of size 1 has no atomic axes: its groups are the ranks alone.
TEST(Mesh, WorldOfOne) {
  const Mesh mesh = Make({});
  EXPECT_TRUE(mesh.atomic().empty());
  EXPECT_THAT(mesh.Ranks(mesh.GroupOf(Axis::kTp), 0), ElementsAre(0));
  EXPECT_EQ(mesh.size(Axis::kEdp), 1);
}

TEST(Mesh, SixAtomicAxesAtMost) {
  const Mesh mesh = Make({.tp = 4, .cp = 4, .dp = 4, .pp = 2, .ep = 4, .etp = 2});
  EXPECT_EQ(static_cast<int>(mesh.atomic().size()), kMaxAtomicAxes);
}

// tp 2 and ep 3 on 6 ranks: cuts 2 and 3 have no common refinement (docs/THEORY.md).
TEST(Mesh, RefusesCutsThatDoNotNest) {
  EXPECT_THAT(ErrorOf({.tp = 2, .dp = 3, .ep = 3, .etp = 1}),
              HasSubstr("at 1, 2, 3, 6, and 2 does not divide 3"));
}

TEST(Mesh, RefusesBadSizes) {
  EXPECT_THAT(ErrorOf({.tp = 0}), HasSubstr("tp is 0, expected at least 1"));
  EXPECT_THAT(ErrorOf({.tp = 2, .etp = -1}), HasSubstr("etp is -1"));
  EXPECT_THAT(ErrorOf({.tp = 2, .dp = 2, .ep = 3, .etp = 1}),
              HasSubstr("etp*ep = 1*3 = 3 does not divide tp*cp*dp = 4"));
  EXPECT_THAT(ErrorOf({.tp = 1 << 20, .cp = 1 << 20, .dp = 1 << 20}),
              HasSubstr("above 1048576 ranks"));
}

}  // namespace
}  // namespace sumonce
