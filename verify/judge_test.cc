// The table "classes, actions, outcomes" (theory section 6), every cell: the class is a state, the
// action is run on it by the one table of maps, and the judgement names mechanism and coefficient.
#include "verify/judge.h"

#include <gtest/gtest.h>

#include "spmd/map.h"

namespace sumonce {
namespace {

constexpr char kPerRank[] = "none: per rank";
constexpr char kMixture[] = "none: a mixture";

Mesh MakeMesh(const MeshSizes& sizes) { return *Mesh::Create(sizes); }

enum class Done { kNone, kSum, kAvg, kSumTwice, kAvgAfterDivision };
constexpr Done kAllDone[] = {Done::kNone, Done::kSum, Done::kAvg, Done::kSumTwice,
                             Done::kAvgAfterDivision};

State Act(Done done, Axis axis, const Mesh& mesh, State state) {
  const Group group = mesh.GroupOf(axis);
  switch (done) {
    case Done::kNone:
      return state;
    case Done::kSum:
      return Apply({.map = Map::kSum}, group, state, 0);
    case Done::kAvg:
      return Apply({.map = Map::kAvg}, group, state, 0);
    case Done::kSumTwice:
      return Act(Done::kSum, axis, mesh, Act(Done::kSum, axis, mesh, state));
    case Done::kAvgAfterDivision:
      return Act(Done::kAvg, axis, mesh, Apply(Scale::SizeOfGroup(group, -1), state));
  }
  return state;
}

struct Expected {
  Mechanism mechanism;
  std::string coefficient;
  std::string action;
};

// One row of the table: a class along an axis, and what each action of kAllDone makes of it. `n`
// stands for the axis.
struct Row {
  std::string name;
  GradClass grad_class;
  AxisState layout;
  int exponent;  // of the axis' size in the factor before the finalizer
  std::vector<Expected> cells;
};

std::vector<Row> SoundClasses() {
  using enum Mechanism;
  const AxisState shard = Shard(Dim::kFfn);
  return {
      {"partial",
       GradClass::kPartial,
       Partial(SetOf(Dim::kSequence)),
       0,
       {{kMissingSum, kPerRank, "none"},
        {kNone, "", "SUM"},
        {kAveraged, "1/n", "AVG"},
        {kDoubleSum, "n", "SUM twice"},
        {kAveraged, "1/n^2", "AVG after /n"}}},
      {"complete",
       GradClass::kComplete,
       Equal(),
       0,
       {{kNone, "", "none or AVG"},
        {kDoubleSum, "n", "SUM"},
        {kNone, "", "none or AVG"},
        {kDoubleSum, "n^2", "SUM twice"},
        {kAveraged, "1/n", "AVG after /n"}}},
      {"equal share",
       GradClass::kEqualShare,
       Equal(),
       -1,
       {{kUnsummedShare, "1/n", "none or AVG"},
        {kNone, "", "SUM"},
        {kUnsummedShare, "1/n", "none or AVG"},
        {kDoubleSum, "n", "SUM twice"},
        {kUnsummedShare, "1/n^2", "AVG after /n"}}},
      {"shard",
       GradClass::kShard,
       shard,
       0,
       {{kNone, "", "none"},
        {kMixedShards, kMixture, "SUM"},
        {kMixedShards, kMixture, "AVG"},
        {kMixedShards, kMixture, "SUM twice"},
        {kMixedShards, kMixture, "AVG after /n"}}},
      {"shard with 1/n",
       GradClass::kShard,
       shard,
       -1,
       {{kWrongScale, "1/n", "none"},
        {kMixedShards, kMixture, "SUM"},
        {kMixedShards, kMixture, "AVG"},
        {kMixedShards, kMixture, "SUM twice"},
        {kMixedShards, kMixture, "AVG after /n"}}},
  };
}

// Classes that arrive with a factor.
std::vector<Row> ScaledClasses() {
  using enum Mechanism;
  return {
      {"shard with n",
       GradClass::kShard,
       Shard(Dim::kFfn),
       1,
       {{kWrongScale, "n", "none"},
        {kMixedShards, kMixture, "SUM"},
        {kMixedShards, kMixture, "AVG"},
        {kMixedShards, kMixture, "SUM twice"},
        {kMixedShards, kMixture, "AVG after /n"}}},
      {"complete with n",
       GradClass::kComplete,
       Equal(),
       1,
       {{kWrongScale, "n", "none or AVG"},
        {kDoubleSum, "n^2", "SUM"},
        {kWrongScale, "n", "none or AVG"},
        {kDoubleSum, "n^3", "SUM twice"},
        {kNone, "", "AVG after /n"}}},
      {"partial with n",
       GradClass::kPartial,
       Partial(0),
       1,
       {{kMissingSum, kPerRank, "none"},
        {kWrongScale, "n", "SUM"},
        {kNone, "", "AVG"},
        {kDoubleSum, "n^2", "SUM twice"},
        {kAveraged, "1/n", "AVG after /n"}}},
      {"partial with 1/n",
       GradClass::kPartial,
       Partial(0),
       -1,
       {{kMissingSum, kPerRank, "none"},
        {kWrongScale, "1/n", "SUM"},
        {kAveraged, "1/n^2", "AVG"},
        {kNone, "", "SUM twice"},
        {kAveraged, "1/n^3", "AVG after /n"}}},
  };
}

std::vector<Row> Table() {
  std::vector<Row> rows = SoundClasses();
  const std::vector<Row> scaled = ScaledClasses();
  rows.insert(rows.end(), scaled.begin(), scaled.end());
  return rows;
}

std::string WithAxisName(std::string coefficient, Axis axis) {
  const size_t at = coefficient.find('n');
  if (coefficient.starts_with("none") || at == std::string::npos) return coefficient;
  return coefficient.replace(at, 1, Name(axis));
}

// Judges a row's class along `axis`, everything else being as the target wants it.
void ExpectRow(const Row& row, Axis axis, const Mesh& mesh, const State& around,
               const State& target) {
  const int a = mesh.GroupOf(axis).atomic[0];
  State before = around;
  before[a] = row.layout;
  before.scale = before.scale * Scale::SizeOfAxis(a, row.exponent);
  State wanted = target;
  if (row.layout.layout == Layout::kShard) wanted[a] = row.layout;
  for (size_t i = 0; i < row.cells.size(); ++i) {
    const Judgement judgement =
        Judge(wanted, before, Act(kAllDone[i], axis, mesh, before), Scale(), mesh);
    const Expected& cell = row.cells[i];
    const std::string where = row.name + " over " + std::string(Name(axis)) + ", " + cell.action;
    EXPECT_EQ(Name(judgement.mechanism), Name(cell.mechanism)) << where;
    EXPECT_EQ(judgement.coefficient, WithAxisName(cell.coefficient, axis)) << where;
    const bool right = cell.mechanism == Mechanism::kNone;
    EXPECT_EQ(judgement.outcome, right ? Outcome::kRight : Outcome::kWrong) << where;
    if (!right) {
      EXPECT_EQ(judgement.axis, axis) << where;
    }
    if (!right || axis == Axis::kTp) {
      EXPECT_EQ(Name(judgement.grad_class), Name(row.grad_class)) << where;
      EXPECT_EQ(judgement.action, cell.action) << where;
    }
  }
}

TEST(Judge, TableOverTpAlone) {
  const Mesh mesh = MakeMesh({.tp = 4});
  for (const Row& row : Table()) ExpectRow(row, Axis::kTp, mesh, State(), State());
}

// Data parallelism has been summed, or cuts the optimizer's shard: the other axis must not change a
// word.
TEST(Judge, TableOverEachAxisBesideTheOther) {
  const Mesh mesh = MakeMesh({.tp = 4, .dp = 2});
  for (const Row& row : Table()) {
    for (const auto& [axis, other] : {std::pair{Axis::kTp, Axis::kDp}, {Axis::kDp, Axis::kTp}}) {
      ExpectRow(row, axis, mesh, State(), State());
      State cut;
      cut[mesh.GroupOf(other).atomic[0]] = Shard(Dim::kHidden);
      ExpectRow(row, axis, mesh, cut, cut);
    }
  }
}

// The whole way: terms over dp are summed in the first step, the row's action comes in the second.
TEST(Judge, TableOverTpAfterTheDataParallelSum) {
  const Mesh mesh = MakeMesh({.tp = 2, .dp = 2});
  const int tp = mesh.GroupOf(Axis::kTp).atomic[0];
  const int dp = mesh.GroupOf(Axis::kDp).atomic[0];
  for (const Row& row : Table()) {
    State before;
    before[tp] = row.layout;
    before[dp] = Partial(SetOf(Dim::kBatch));
    before.scale = Scale::SizeOfAxis(tp, row.exponent);
    State target;
    if (row.layout.layout == Layout::kShard) target[tp] = row.layout;
    for (size_t i = 0; i < row.cells.size(); ++i) {
      const State summed = Act(Done::kSum, Axis::kDp, mesh, before);
      const Judgement judgement =
          Judge(target, before, Act(kAllDone[i], Axis::kTp, mesh, summed), Scale(), mesh);
      EXPECT_EQ(Name(judgement.mechanism), Name(row.cells[i].mechanism)) << row.name << i;
      EXPECT_EQ(judgement.coefficient, WithAxisName(row.cells[i].coefficient, Axis::kTp))
          << row.name << i;
      EXPECT_EQ(judgement.action, row.cells[i].action) << row.name << i;
    }
  }
}

// A factor that is no group size belongs to no axis.
TEST(Judge, PlainFactorIsWrongScaleWithoutAxis) {
  const Mesh mesh = MakeMesh({.tp = 2});
  State state;
  state.scale = Scale::Rational(3, 2);
  const Judgement judgement = Judge(State(), state, state, Scale(), mesh);
  EXPECT_EQ(Name(judgement.mechanism), "WRONG_SCALE");
  EXPECT_EQ(judgement.coefficient, "3/2");
  EXPECT_FALSE(judgement.axis.has_value());
}

class JudgeWrongGroup : public ::testing::Test {
 protected:
  JudgeWrongGroup() : mesh_(MakeMesh({.tp = 4, .dp = 2})) {
    tp_ = mesh_.GroupOf(Axis::kTp).atomic[0];
    dp_ = mesh_.GroupOf(Axis::kDp).atomic[0];
  }
  void ExpectWrongGroup(const State& target, const State& before, const State& after, Axis axis,
                        const std::string& coefficient) {
    const Judgement judgement = Judge(target, before, after, Scale(), mesh_);
    EXPECT_EQ(Name(judgement.mechanism), "WRONG_GROUP");
    EXPECT_EQ(judgement.axis, axis);
    EXPECT_EQ(judgement.coefficient, coefficient);
    EXPECT_EQ(judgement.grad_class, GradClass::kPartial) << "of the axis whose sum is missing";
    EXPECT_EQ(judgement.action, "none") << "along the axis whose sum is missing";
  }

  Mesh mesh_;
  int tp_ = 0;
  int dp_ = 0;
};

TEST_F(JudgeWrongGroup, SumOverDpInsteadOfTp) {
  State before;
  before[tp_] = Partial(SetOf(Dim::kSequence));
  before[dp_] = Partial(SetOf(Dim::kBatch));
  ExpectWrongGroup(State(), before, Act(Done::kSumTwice, Axis::kDp, mesh_, before), Axis::kTp,
                   kPerRank);
}

TEST_F(JudgeWrongGroup, SumOverTpInsteadOfDp) {
  State before;
  before[dp_] = Partial(SetOf(Dim::kBatch));
  ExpectWrongGroup(State(), before, Act(Done::kSum, Axis::kTp, mesh_, before), Axis::kDp, kPerRank);
}

TEST_F(JudgeWrongGroup, ShardSummedOverTpInsteadOfDp) {
  State target;
  target[tp_] = Shard(Dim::kFfn);
  State before = target;
  before[dp_] = Partial(SetOf(Dim::kBatch));
  ExpectWrongGroup(target, before, Act(Done::kSum, Axis::kTp, mesh_, before), Axis::kDp, kMixture);
}

// A factor that arrived over dp is no sum that went astray: the missing sum is all that the
// finalizer did wrong.
TEST_F(JudgeWrongGroup, FactorThatArrivedIsNoSumOverAnotherGroup) {
  State before;
  before[tp_] = Partial(SetOf(Dim::kSequence));
  before.scale = Scale::SizeOfAxis(dp_);
  EXPECT_EQ(Name(Judge(State(), before, before, Scale(), mesh_).mechanism), "MISSING_SUM");
}

// Loss as the mean of cells: every rank's own mean makes the terms over dp add up to dp times the
// gradient, and the average is what is needed.
class JudgeMeanOfCells : public JudgeWrongGroup {
 protected:
  JudgeMeanOfCells() : sound_(Scale::SizeOfAxis(dp_)) {
    before_[dp_] = Partial(SetOf(Dim::kBatch));
    before_.scale = sound_;
  }
  Judgement JudgeAfter(const State& after) { return Judge(State(), before_, after, sound_, mesh_); }

  Scale sound_;
  State before_;
};

TEST_F(JudgeMeanOfCells, AverageOverDpIsRightAndASumIsDpTimesTooMuch) {
  EXPECT_EQ(JudgeAfter(Act(Done::kAvg, Axis::kDp, mesh_, before_)).outcome, Outcome::kRight);
  const Judgement summed = JudgeAfter(Act(Done::kSum, Axis::kDp, mesh_, before_));
  EXPECT_EQ(Name(summed.mechanism), "DOUBLE_SUM");
  EXPECT_EQ(summed.coefficient, "dp");
  EXPECT_EQ(summed.axis, Axis::kDp);
  EXPECT_EQ(summed.action, "SUM") << "what was done, whatever was needed";
}

TEST_F(JudgeMeanOfCells, DividedTwiceIsAveraged) {
  const Judgement judgement = JudgeAfter(Act(Done::kAvgAfterDivision, Axis::kDp, mesh_, before_));
  EXPECT_EQ(Name(judgement.mechanism), "AVERAGED");
  EXPECT_EQ(judgement.coefficient, "1/dp");
}

TEST_F(JudgeMeanOfCells, FaultsOverTpKeepTheirNames) {
  State averaged = Act(Done::kAvg, Axis::kDp, mesh_, before_);
  const Judgement twice = JudgeAfter(Act(Done::kSum, Axis::kTp, mesh_, averaged));
  EXPECT_EQ(Name(twice.mechanism), "DOUBLE_SUM");
  EXPECT_EQ(twice.coefficient, "tp");
  EXPECT_EQ(twice.grad_class, GradClass::kComplete);
  before_[tp_] = Partial(SetOf(Dim::kSequence));
  averaged = Act(Done::kAvg, Axis::kDp, mesh_, before_);
  EXPECT_EQ(Name(JudgeAfter(averaged).mechanism), "MISSING_SUM");
  EXPECT_EQ(JudgeAfter(Act(Done::kSum, Axis::kTp, mesh_, averaged)).outcome, Outcome::kRight);
}

TEST_F(JudgeMeanOfCells, ClassIsMeasuredAgainstTheSoundFactor) {
  State state;
  state.scale = sound_;
  EXPECT_EQ(ClassOf(state, sound_, Axis::kDp, mesh_), GradClass::kComplete);
  EXPECT_EQ(ClassOf(State(), sound_, Axis::kDp, mesh_), GradClass::kEqualShare);
  EXPECT_EQ(ClassOf(State(), sound_, Axis::kTp, mesh_), GradClass::kComplete);
}

// An axis that the mesh does not have carries no class and no action.
TEST(Judge, AxisOfOneRankHasNoClass) {
  const Mesh mesh = MakeMesh({.dp = 2});
  EXPECT_EQ(ClassOf(State(), Scale(), Axis::kTp, mesh), GradClass::kUnknown);
  EXPECT_EQ(ActionOf(State(), State(), Axis::kTp, mesh), "");
}

}  // namespace
}  // namespace sumonce
