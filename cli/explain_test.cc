// What `explain` and `doctor` print, whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "cli/command_line.h"

namespace sumonce {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Printed {
  int status = -1;
  std::string out;
  std::string err;
};

Printed Sumonce(std::vector<std::string> arguments) {
  std::ostringstream out, err;
  Io io{out, err};
  arguments.insert(arguments.begin(), "sumonce");
  const int status = RunCommandLine(arguments, io, Engine());
  return {status, out.str(), err.str()};
}

// The whole of what is printed of a word, in the order asked for; case is forgiven.
TEST(Explain, PrintsMeaningFormulaCureAndScenario) {
  const Printed call = Sumonce({"explain", "missing_sum", "FLIPPED_BIT", "P"});
  EXPECT_EQ(call.status, 0) << call.err;
  EXPECT_EQ(call.out, R"(MISSING_SUM  (mechanism)
  each rank holds its own share, and nobody adds them up
  formula: f_k = g_k, and sum over k of g_k = G
  cure: mark the parameter (sequence_parallel), or add a rule that sums it
  shown by: sumonce run lora/row_flag_missing
FLIPPED_BIT  (fault)
  one bit of what is sent is flipped
  shown by: sumonce run transport/flipped_bit
P  (state)
  along an axis: each rank holds a term; in brackets the dimension whose cut made it so
  formula: sum over k of x_k = lambda X
  shown by: sumonce run lora/row_flag_missing
)");
}

TEST(Explain, PrintsAVersionsRulesInOrder) {
  const Printed call = Sumonce({"explain", "megatron_core_0_12"});
  EXPECT_EQ(call.status, 0) << call.err;
  EXPECT_EQ(call.out, R"(megatron_core_0_12  (preset)
  what finalize_model_grads of this version does, in order; inside a step the first rule that claims a parameter wins
  step data_parallel
    data_parallel_mean  all parameters but those marked allreduce=false: times 1/dp, summed over dp (mean-of-cells loss)
    data_parallel_sum  all parameters but those marked allreduce=false: summed over dp (per-token loss)
    expert_data_parallel_mean  parameters marked allreduce=false: times 1/dp, summed over edp, the ranks that hold the same experts (mean-of-cells loss)
    expert_data_parallel_sum  parameters marked allreduce=false: summed over edp, the ranks that hold the same experts (per-token loss)
  step tensor_parallel
    sequence_parallel_sum  parameters marked sequence_parallel, with sequence parallelism or qk_layernorm on: summed over tp
    qk_layernorm_sum  parameters named q_layernorm or k_layernorm, with sequence parallelism or qk_layernorm on: summed over tp
  step per_token
    times_inverse_num_tokens  all parameters: times 1/num_tokens of the global batch (per-token loss)
)");
}

// What --version says, and a line for each transport: what it can run, or why it cannot and what
// would change that.
TEST(Doctor, SaysWhatThisMachineCanRun) {
  const Printed version = Sumonce({"--version"}), doctor = Sumonce({"doctor"});
  EXPECT_EQ(doctor.status, 0) << doctor.err;
  EXPECT_THAT(doctor.out, StartsWith(version.out));
  const std::string transports = doctor.out.substr(version.out.size());
  EXPECT_THAT(transports,
              HasSubstr("  in_process     can run here: up to 1024 ranks, fibers or threads\n"));
  for (const char* name : {"fake_nccl", "fake_nccl_tcp", "mpi", "nccl"})
    EXPECT_THAT(transports, HasSubstr(std::string("\n  ") + name + " "));
}

}  // namespace
}  // namespace sumonce
