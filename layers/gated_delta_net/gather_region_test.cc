#include "layers/gated_delta_net/gather_region.h"

#include "gtest/gtest.h"

namespace sumonce {
namespace {

struct Modules {
  bool on = true, off = false;
  Param marked{.marks = {.sequence_parallel = true}};
  Param unmarked;
  Param beside_off{.marks = {.sequence_parallel = true}};
  std::vector<ToggleableModule> all() {
    return {{"on", &on, {&marked, &unmarked}}, {"off", &off, {&beside_off}}};
  }
};

TEST(SequenceParallelOff, TogglesModulesForItsLife) {
  Modules modules;
  {
    const SequenceParallelOff region(modules.all(), RegionMarks::kKeep);
    EXPECT_FALSE(modules.on);
    EXPECT_TRUE(modules.marked.marks.sequence_parallel);
  }
  EXPECT_TRUE(modules.on);
  EXPECT_FALSE(modules.off);
}

TEST(SequenceParallelOff, LeavesAloneWhatIsOffOrUnmarked) {
  Modules modules;
  { const SequenceParallelOff region(modules.all(), RegionMarks::kToggleAndRestore); }
  EXPECT_FALSE(modules.off);
  EXPECT_FALSE(modules.unmarked.marks.sequence_parallel);
  EXPECT_TRUE(modules.beside_off.marks.sequence_parallel);
  { const SequenceParallelOff region(modules.all(), RegionMarks::kLeaveOff); }
  EXPECT_TRUE(modules.beside_off.marks.sequence_parallel);
}

TEST(SequenceParallelOff, RestoresMarksOnlyWhenTold) {
  Modules modules;
  {
    const SequenceParallelOff region(modules.all(), RegionMarks::kToggleAndRestore);
    EXPECT_FALSE(modules.marked.marks.sequence_parallel);
  }
  EXPECT_TRUE(modules.marked.marks.sequence_parallel);
  { const SequenceParallelOff region(modules.all(), RegionMarks::kLeaveOff); }
  EXPECT_FALSE(modules.marked.marks.sequence_parallel);
  EXPECT_TRUE(modules.on);
}

}  // namespace
}  // namespace sumonce
