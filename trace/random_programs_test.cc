// Soundness: no claim about 200 random programs, right ones and wrong ones, and none about programs
// that were made to look right, contradicts what was computed.
#include "trace/testing/random_programs.h"

#include <iostream>

#include "gtest/gtest.h"
#include "trace/prove_traces.h"

namespace sumonce::trace {
namespace {

// What the prover says of the programs of a file, of which it must claim nothing false.
testing::Tally ExpectSound(const std::string& name) {
  testing::Tally tally;
  const absl::Status status =
      testing::ForEachProgram(SUMONCE_TEST_DATA "/traces/" + name + ".jsonl.gz",
                              [&](const testing::RandomProgram& program) {
                                Count(program, ProveTraces(program.set), tally);
                              });
  EXPECT_TRUE(status.ok()) << status;
  std::cerr << testing::Describe(tally);
  for (const std::string& unsound : tally.unsound) ADD_FAILURE() << unsound;
  return tally;
}

TEST(RandomPrograms, NoClaimContradictsTheNumbers) {
  const testing::Tally tally = ExpectSound("random_programs");
  EXPECT_GT(tally.claims, 700);
  EXPECT_LE(tally.refused_right, 12);  // all-to-all is not declared
}

// Of what is wrong among them all but a few were claimed RIGHT once.
TEST(HostileProgramsWithNumbers, NoClaimContradictsTheNumbers) {
  const testing::Tally tally = ExpectSound("hostile_programs");
  for (const std::string& idle : tally.idle) ADD_FAILURE() << "idle: " << idle;
  EXPECT_GE(tally.programs, 29);
  EXPECT_GE(tally.claims, 8);  // of the right ones among them, and of known factors
}

}  // namespace
}  // namespace sumonce::trace
