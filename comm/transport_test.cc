#include "comm/transport.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sumonce {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Transports, TheInProcessOneIsAlwaysThere) {
  const absl::StatusOr<const Transport*> found = Transports().Find("in_process");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_TRUE((*found)->probe().ok());
}

TEST(Transports, AnUnknownNameListsTheKnown) {
  const absl::Status status = Transports().Find("carrier_pigeon").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("'carrier_pigeon'; there are: "), HasSubstr("in_process")));
}

}  // namespace
}  // namespace sumonce
