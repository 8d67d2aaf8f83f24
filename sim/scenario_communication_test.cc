// defect { communication }: what the reader takes, and what it refuses with place, value and cure.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "sim/scenario_reader.h"

namespace sumonce {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kBefore[] = R"(mesh { tp: 2 dp: 2 }
sequence_parallel: true
model { hidden: 8 layer { self_attention { num_heads: 4 num_query_groups: 4 head_dim: 4 } } }
data { sequence: 8 }
defect { communication { )";

ReadResult ReadFault(const std::string& fields, const std::string& after = "") {
  std::string path = ::testing::TempDir() + "communicationXXXXXX";
  close(mkstemp(path.data()));
  std::ofstream(path) << kBefore << fields << " } }\n" << after;
  ReadResult read = ReadScenario(path, "area/file", {});
  std::remove(path.c_str());
  return read;
}

std::vector<std::string> Complaints(const std::string& fields) {
  std::vector<std::string> messages;
  for (const Mistake& mistake : ReadFault(fields).mistakes) messages.push_back(mistake.message);
  return messages;
}

TEST(ReadCommunication, ReadsEveryField) {
  const ReadResult read = ReadFault(
      "operation: \"finalizer data_*\" occurrence: 3 rank: 1 rank: 2 fault: SWAPPED_BUFFER "
      "element: 4 other: 9 count: 5");
  ASSERT_TRUE(read.ok()) << read.mistakes[0].message;
  const auto& edit = std::get<CommunicationEdit>(read.scenario.defects[0].kind);
  EXPECT_EQ(edit.fault.kind, FaultKind::kSwappedBuffer);
  EXPECT_EQ(edit.fault.operation, "finalizer data_*");
  EXPECT_EQ(edit.fault.occurrence, 3);
  EXPECT_THAT(edit.ranks, ElementsAre(1, 2));
  EXPECT_EQ(edit.fault.element, 4);
  EXPECT_EQ(edit.fault.other, 9);
  EXPECT_EQ(edit.fault.count, 5);
  EXPECT_EQ(Describe(read.scenario.defects[0]),
            "in the transport: SWAPPED_BUFFER of 5 elements from 4 and from 9 in call 3 of "
            "finalizer data_* on ranks 1, 2");
  const auto flip =
      ReadFault("operation: \"*.linear_proj/ReduceScatter#0\" fault: FLIPPED_BIT bit: 63");
  ASSERT_TRUE(flip.ok()) << flip.mistakes[0].message;
  EXPECT_EQ(std::get<CommunicationEdit>(flip.scenario.defects[0].kind).fault.bit, 63);
}

// Every name of the schema is a fault.
TEST(ReadCommunication, KnowsEveryFault) {
  for (int kind = 0; kind <= static_cast<int>(FaultKind::kUnordered); ++kind) {
    const std::string name(Name(static_cast<FaultKind>(kind)));
    const ReadResult read =
        ReadFault("operation: \"finalizer data_*\" occurrence: 2 fault: " + name);
    ASSERT_TRUE(read.ok()) << read.mistakes[0].message;
    EXPECT_EQ(std::get<CommunicationEdit>(read.scenario.defects[0].kind).fault.kind,
              static_cast<FaultKind>(kind));
  }
}

TEST(ReadCommunication, RefusesWhatHasNoSense) {
  EXPECT_THAT(Complaints("fault: LATE"), ElementsAre(HasSubstr("communication has no operation")));
  EXPECT_THAT(Complaints("operation: \"finalizer data_*\""),
              ElementsAre(HasSubstr("communication has no fault, expected one")));
  EXPECT_THAT(Complaints("operation: \"finalizer data_*\" fault: LATE rank: 4"),
              ElementsAre(HasSubstr("rank: 4, expected 0 to 3")));
  EXPECT_THAT(Complaints("operation: \"finalizer data_*\" fault: LATE occurrence: 0"),
              ElementsAre(HasSubstr("occurrence: 0, expected")));
  EXPECT_THAT(Complaints("operation: \"finalizer data_*\" fault: STALE_BUFFER"),
              ElementsAre(HasSubstr("the first call has no earlier one")));
  EXPECT_THAT(Complaints("operation: \"finalizer data_*\" fault: LATE element: 2 bit: 3 other: 1"),
              ElementsAre(HasSubstr("element without fault"), HasSubstr("bit without fault"),
                          HasSubstr("other without fault")));
  EXPECT_THAT(Complaints("operation: \"finalizer data_*\" fault: FLIPPED_BIT bit: 64"),
              ElementsAre(HasSubstr("bit: 64, expected")));
}

// An operation is one call: by its label, with the direction, on this mesh.
TEST(ReadCommunication, NamesOneCallOfThisMesh) {
  EXPECT_THAT(
      Complaints("operation: \"finalizer data_parallel/data_parallel_sun\" fault: LATE"),
      ElementsAre(HasSubstr("did you mean \"finalizer data_parallel/data_parallel_sum\"?")));
  EXPECT_THAT(Complaints("operation: \"finalizer *\" fault: LATE"),
              ElementsAre(HasSubstr("matches 2 calls, expected one: name finalizer data_parallel/"
                                    "data_parallel_sum or finalizer tensor_parallel/")));
  EXPECT_THAT(Complaints("operation: \"*/Copy#0\" fault: LATE"),
              ElementsAre(HasSubstr("matches no call between ranks of this model on this mesh")));
}

// A verdict on such a call can be expected by the call's name.
TEST(ReadCommunication, ExpectationsNameFinalizerCalls) {
  const std::string fields = "operation: \"finalizer data_*\" fault: DROPPED_CONTRIBUTION rank: 1";
  EXPECT_TRUE(ReadFault(fields,
                        "expect { param: \"*\" mechanism: LOST_CONTRIBUTION operation: "
                        "\"finalizer data_*\" }\n")
                  .ok());
  const ReadResult read = ReadFault(
      fields, "expect { param: \"*\" mechanism: AVERAGED operation: \"finalizer data_*\" }\n");
  ASSERT_EQ(read.mistakes.size(), 1u);
  EXPECT_THAT(read.mistakes[0].message,
              HasSubstr("operation without mechanism: UPSTREAM, MIXED_USE, LOST_"));
}

}  // namespace
}  // namespace sumonce
