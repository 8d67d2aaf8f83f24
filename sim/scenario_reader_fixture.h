// A valid scenario, files of a test's own, and the mistakes that reading them gives.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "sim/scenario_reader.h"

namespace sumonce {

namespace fs = std::filesystem;

inline constexpr char kValid[] = R"(# Row-parallel target under sequence parallelism.
mesh { tp: 2 dp: 2 }
sequence_parallel: true
model {
  hidden: 8
  layer { linear_attention { num_key_heads: 2 num_value_heads: 4 mode: GATHER_REGION } mlp { ffn: 8 } }
  layer { self_attention { num_heads: 4 num_query_groups: 2 head_dim: 4 qk_layernorm: true } }
}
lora { r: 4 lora_alpha: 2 target: "linear_proj" target: "in_proj" }
data { sequence: 8 microbatches: 2 loss_on { from: 0.75 } }
steps: 2
defect { clear_mark { param: "*.linear_proj.lora_B" mark: SEQUENCE_PARALLEL rank: [0, 3] } }
defect { region_marks { module: "*.0.self_attention" marks: TOGGLE_AND_RESTORE } }
defect { collective { operation: "*.linear_fc2/ReduceScatter#0" map: IDENTITY } }
defect { drop_rule { rule: "sequence_parallel_sum" } }
expect { param: "*.linear_proj.lora_B" mechanism: MISSING_SUM axis: TP coefficient: "1/tp" step: 1 }
cure { set_mark { param: "*.linear_proj.lora_B" mark: SEQUENCE_PARALLEL } }
)";

class ScenarioReaderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "readerXXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string Write(const std::string& name, const std::string& text) {
    const fs::path path = root_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }

  // The mistakes as printed, the file's path left out.
  std::vector<std::string> Mistakes(const std::string& path, const Overrides& overrides = {}) {
    std::vector<std::string> printed;
    for (const Mistake& mistake : ReadScenario(path, "area/file", overrides).mistakes) {
      const std::string line = Format(mistake);
      EXPECT_EQ(line.rfind(path, 0), 0u) << line;
      printed.push_back(line.substr(path.size()));
    }
    return printed;
  }
  std::vector<std::string> MistakesOf(const std::string& text, const Overrides& overrides = {}) {
    return Mistakes(Write("file.textproto", text), overrides);
  }

  fs::path root_;
};

// kValid with one change; `from` must occur.
inline std::string Changed(const std::string& from, const std::string& to) {
  std::string text = kValid;
  const size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return text.replace(at, from.size(), to);
}

}  // namespace sumonce
