// Files that are no scenario, or that a scenario names and does not fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>

#include "base/safetensors.h"
#include "sim/scenario_reader_fixture.h"

namespace sumonce {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(ScenarioReaderTest, ExactModeRefusesWhatIsNotLinear) {
  const std::string exact = "data { fill: EXACT }\n";
  EXPECT_THAT(
      MistakesOf(exact +
                 "model { head: PROBE layer { mlp { activation: LINEAR no_norm: true } } }"),
      IsEmpty());
  EXPECT_THAT(MistakesOf(exact + "steps: 2\nmodel { layer { self_attention { } mlp { } } }"),
              ElementsAre(HasSubstr(":2:1: error: steps: 2 with data { fill: EXACT }, expected 1"),
                          HasSubstr(":3:1: error: head: CROSS_ENTROPY is not linear"),
                          HasSubstr(":3:17: error: self_attention is not linear"),
                          HasSubstr(":3:36: error: activation: SWIGLU is not linear"),
                          HasSubstr("the norm of mlp is not linear, expected a linear model")));
}

TEST_F(ScenarioReaderTest, RefusesWhatIsNoScenarioFile) {
  EXPECT_THAT(MistakesOf(""), ElementsAre(HasSubstr(":1:1: error: the file is empty")));
  EXPECT_THAT(MistakesOf("# only\n\n # comments"),
              ElementsAre(HasSubstr(":1:1: error: the file is empty")));
  EXPECT_THAT(MistakesOf("seed: 7\n"), ElementsAre(HasSubstr("error: the model has no layer")));
  EXPECT_THAT(MistakesOf(std::string("mesh {\n\x7f"
                                     "ELF\0\1",
                                     13)),
              ElementsAre(HasSubstr(":2:1: error: byte 0x7f is no text")));
  EXPECT_THAT(MistakesOf("seed: 7 # \xff"),
              ElementsAre(HasSubstr(":1:11: error: byte 0xff is no UTF-8")));
  EXPECT_THAT(MistakesOf("finalizer: \"\\377\" model { layer { mlp {} } }"),
              ElementsAre(HasSubstr(":1:1: error: finalizer: \"\\xff\" is no text")));
  EXPECT_THAT(MistakesOf("\xef\xbb\xbfseed: 7"),
              ElementsAre(HasSubstr(":1:1: error: the file begins with a byte order mark")));
  EXPECT_THAT(Mistakes(root_.string()), ElementsAre(HasSubstr(": error: is a directory")));
  EXPECT_THAT(Mistakes((root_ / "none").string()),
              ElementsAre(": error: cannot be read: No such file or directory"));
  ASSERT_EQ(mkfifo((root_ / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(Mistakes((root_ / "fifo").string()), ElementsAre(HasSubstr(": error: is a pipe")));
  if (geteuid() != 0) {
    const std::string path = Write("secret.textproto", kValid);
    fs::permissions(path, fs::perms::none);
    EXPECT_THAT(Mistakes(path), ElementsAre(": error: cannot be read: Permission denied"));
  }
}

TEST_F(ScenarioReaderTest, RefusesHugeAndDeepFiles) {
  const std::string path = Write("huge.textproto", kValid);
  fs::resize_file(path, (16 << 20) + 1);
  EXPECT_THAT(Mistakes(path), ElementsAre(": error: has 16777217 bytes, expected at most 16777216; "
                                          "is it a scenario?"));
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "a{";
  EXPECT_THAT(MistakesOf(deep), ElementsAre(HasSubstr(":1:66: error: more than 32 levels")));
}

TEST_F(ScenarioReaderTest, WeightsFilesMustHoldTheModel) {
  const std::string scenario =
      "model { hidden: 4 head: PROBE weights_file: \"w.safetensors\"\n"
      "  layer { mlp { ffn: 2 activation: LINEAR no_norm: true } } }";
  EXPECT_THAT(MistakesOf(scenario), ElementsAre(HasSubstr(":1:31: error: weights_file: ")));
  Write("w.safetensors", "garbage");
  EXPECT_THAT(MistakesOf(scenario), ElementsAre(HasSubstr(":1:31: error: weights_file: ")));
  const auto tensor = [](std::vector<int64_t> shape) {
    int64_t count = 1;
    for (int64_t extent : shape) count *= extent;
    return TensorToWrite{
        .dtype = DType::kFloat64, .shape = shape, .values = std::vector<double>(count, 1.0)};
  };
  const std::string path = (root_ / "w.safetensors").string();
  std::map<std::string, TensorToWrite> tensors = {
      {"embedding.word_embeddings.weight", tensor({24, 4})},
      {"decoder.layers.0.mlp.linear_fc1.weight", tensor({3, 4})}};
  ASSERT_TRUE(WriteSafetensors(path, tensors, {}, true).ok());
  EXPECT_THAT(
      MistakesOf(scenario),
      ElementsAre(HasSubstr("linear_fc1.weight has the shape [3, 4], expected [2, 4]"),
                  HasSubstr("has no tensor decoder.layers.0.mlp.linear_fc2.weight, expected "
                            "one of shape [4, 2]")));
  tensors["decoder.layers.0.mlp.linear_fc1.weight"] = tensor({2, 4});
  tensors["decoder.layers.0.mlp.linear_fc2.weight"] = tensor({4, 2});
  tensors["decoder.layers.0.mlp.linear_fc2.weight"].values[3] = std::nan("");
  ASSERT_TRUE(WriteSafetensors(path, tensors, {}, true).ok());
  EXPECT_THAT(
      MistakesOf(scenario),
      ElementsAre(HasSubstr("linear_fc2.weight has nan at [1, 1], expected finite numbers")));
  tensors["decoder.layers.0.mlp.linear_fc2.weight"].values[3] = 1;
  ASSERT_TRUE(WriteSafetensors(path, tensors, {}, true).ok());
  EXPECT_THAT(MistakesOf(scenario), IsEmpty());
}

TEST_F(ScenarioReaderTest, DataFilesMustFitTheBatchAndTheModel) {
  const std::string scenario =
      "data { sequence: 3 from_file: \"d.safetensors\" }\n"
      "model { layer { self_attention { head_dim: 2 } } }";
  const auto tensor = [](std::vector<int64_t> shape, std::vector<double> values) {
    return TensorToWrite{.dtype = DType::kFloat64, .shape = shape, .values = values};
  };
  const auto mistakes = [&](std::vector<int64_t> table, double token) {
    int64_t count = 1;
    for (int64_t extent : table) count *= extent;
    const TensorToWrite rotary = tensor(table, std::vector<double>(count, 1.0));
    const absl::Status written = WriteSafetensors((root_ / "d.safetensors").string(),
                                                  {{"in.tokens", tensor({1, 3}, {0, 1, token})},
                                                   {"in.targets", tensor({1, 3}, {0, 1, 2})},
                                                   {"in.loss_mask", tensor({1, 3}, {1, 1, 1})},
                                                   {"in.cos", rotary},
                                                   {"in.sin", rotary}},
                                                  {}, true);
    EXPECT_TRUE(written.ok()) << written;
    return MistakesOf(scenario);
  };
  EXPECT_THAT(mistakes({3, 2}, 2), IsEmpty());
  EXPECT_THAT(mistakes({6}, 2), ElementsAre(HasSubstr("in.cos has the shape [6], expected [at")));
  EXPECT_THAT(mistakes({2, 2}, 2), ElementsAre(HasSubstr("in.cos has the shape [2, 2]")));
  EXPECT_THAT(mistakes({3, 4}, 2), ElementsAre(HasSubstr("expected rotary_dim = 2")));
  EXPECT_THAT(mistakes({3, 2}, 24), ElementsAre(HasSubstr(":1:20: error: from_file: ")));
}

// A generator of its own, so that the bytes are the same everywhere.
class Noise {
 public:
  size_t Below(size_t limit) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return (state_ >> 33) % limit;
  }

 private:
  uint64_t state_ = 1;
};

TEST_F(ScenarioReaderTest, CutAndDamagedFilesNeverCrash) {
  const std::string valid = kValid;
  for (size_t length = 0; length < valid.size(); ++length) {
    MistakesOf(valid.substr(0, length));
  }
  Noise noise;
  constexpr char kTokens[] = "{}[]:\"#'<>,;.0x-e9\\\t\n \xff\0";
  for (int round = 0; round < 1500; ++round) {
    std::string damaged = valid;
    for (size_t flips = 1 + noise.Below(4); flips > 0; --flips) {
      const size_t at = noise.Below(damaged.size());
      if (noise.Below(2) == 0) {
        damaged[at] = static_cast<char>(damaged[at] ^ (1 << noise.Below(8)));
      } else {
        damaged[at] = kTokens[noise.Below(sizeof kTokens - 1)];
      }
    }
    MistakesOf(damaged);
  }
}

}  // namespace
}  // namespace sumonce
