#include "capture/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace sumonce::capture {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr char kCaptures[] = SUMONCE_TEST_DATA "/captures/";

std::map<std::string, std::string> Minimal() {
  return {{"format", "sumonce-capture"},
          {"version", "1"},
          {"step", "1"},
          {"rank", "1"},
          {"world_size", "2"},
          {"mesh", R"({"tp": {"size": 2, "coordinate": 1}})"},
          {"params", R"({"w": {"shape": [2, 3], "dtype": "torch.float32", "requires_grad": true,
                               "marks": {"sequence_parallel": true, "partition_dim": 0}}})"}};
}

std::string MistakesOf(const std::map<std::string, std::string>& changes) {
  std::map<std::string, std::string> metadata = Minimal();
  for (const auto& [key, value] : changes) metadata[key] = value;
  const absl::StatusOr<Manifest> manifest = ParseManifest(metadata, "f");
  EXPECT_EQ(manifest.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(manifest.status().message());
}

// Every rank of every captured run has a manifest of its own rank, and what it says of shapes is
// what the tensors are.
TEST(Manifest, DescribesEveryCapturedRank) {
  int files = 0;
  for (const auto& folder : std::filesystem::directory_iterator(kCaptures)) {
    if (!folder.is_directory()) continue;  // the README
    const absl::StatusOr<std::vector<Manifest>> manifests = LoadManifests(folder.path().string());
    ASSERT_TRUE(manifests.ok()) << manifests.status();
    for (size_t i = 0; i < manifests->size(); ++i) {
      const Manifest& manifest = (*manifests)[i];
      ++files;
      EXPECT_EQ(manifest.rank, static_cast<int>(i)) << manifest.path;
      EXPECT_EQ(manifest.world_size, static_cast<int>(manifests->size())) << manifest.path;
      EXPECT_EQ(manifest.case_name, folder.path().filename()) << manifest.path;
      const absl::StatusOr<SafetensorsReader> reader = SafetensorsReader::Open(manifest.path);
      ASSERT_TRUE(reader.ok());
      for (const auto& [name, param] : manifest.params) {
        if (!param.requires_grad) continue;  // frozen: no gradient
        const auto tensor = reader->tensors().find("finalized/" + name);
        ASSERT_NE(tensor, reader->tensors().end()) << name;
        EXPECT_EQ(tensor->second.shape, param.shape) << name;
      }
    }
  }
  EXPECT_GE(files, 100);
}

TEST(Manifest, KeepsMarksModulesAndGroups) {
  const absl::StatusOr<std::vector<Manifest>> manifests =
      LoadManifests(std::string(kCaptures) + "plain-dp2-tp2");
  ASSERT_TRUE(manifests.ok()) << manifests.status();
  const Manifest& manifest = (*manifests)[1];
  EXPECT_EQ(manifest.AxisSize("tp"), 2);
  EXPECT_EQ(manifest.Coordinate("tp"), 1);
  EXPECT_EQ(manifest.AxisSize("absent"), 1);
  EXPECT_THAT(manifest.GroupOfRank("dp"), ElementsAre(1, 3));
  EXPECT_EQ(manifest.framework.at("megatron-core"), "0.16.1");
  const ManifestParam& norm = manifest.params.at("decoder.final_layernorm.weight");
  EXPECT_TRUE(IsSet(norm.marks, "sequence_parallel"));
  EXPECT_FALSE(IsSet(norm.marks, "tensor_model_parallel"));
  const ManifestModule& fc1 = manifest.modules.at("decoder.layers.0.mlp.linear_fc1");
  EXPECT_EQ(fc1.class_name,
            "megatron.core.extensions.transformer_engine.TELayerNormColumnParallelLinear");
  EXPECT_EQ(TextOf(fc1.attributes, "parallel_mode"), "column");
  EXPECT_EQ(IntegerOf(fc1.attributes, "tp_size"), 2);
  EXPECT_EQ(NumberOf(manifest.ddp, "gradient_scaling_factor"), 0.5);
  EXPECT_EQ(manifest.tokens.local, 128);
  EXPECT_FALSE(manifest.tokens.global);
  EXPECT_EQ(manifest.clip_grad, 1.0);
  EXPECT_EQ(FlagOf(manifest.config, "sequence_parallel"), true);
  ASSERT_TRUE(manifest.layout);
  EXPECT_EQ(manifest.layout->at("output_layer.weight").dim, 0);
  EXPECT_FALSE(manifest.layout->contains("decoder.final_layernorm.weight"));
  EXPECT_FALSE(manifest.owned);
}

TEST(Manifest, ReadsPlacementsSectionsOwnedAndTied) {
  const auto rank_0 = [](const std::string& name) {
    return LoadManifests(kCaptures + name + "/step-0001/rank-00000.safetensors").value()[0];
  };
  const Manifest dtensor = rank_0("dtensor-tp2-right");
  const ParamPlacements& norm = dtensor.placements->at("0.norm.weight");
  ASSERT_EQ(norm.param.size(), 1u);
  EXPECT_EQ(norm.param[0].kind, Placement::Kind::kReplicate);
  EXPECT_EQ(norm.grad[0].kind, Placement::Kind::kPartial);
  const ParamPlacements& w2 = dtensor.placements->at("1.w2.weight");
  EXPECT_EQ(w2.param[0].kind, Placement::Kind::kShard);
  EXPECT_EQ(w2.param[0].dim, 1);
  EXPECT_THAT(rank_0("gdn-out-norm-sp-off-tp2-bug")
                  .layout->at("decoder.layers.0.self_attention.in_proj.weight")
                  .sections,
              ElementsAre(16, 16, 32, 32, 8, 8));
  EXPECT_EQ(rank_0("plain-dp2-distributed-optimizer").owned->at("output_layer.weight").end, 1024);
  EXPECT_EQ(rank_0("tied-pp2-right").tied.at("output_layer.weight"),
            "embedding.word_embeddings.weight");
}

// A hook that does not know how a parameter is cut says null; that is not the same as no entry,
// which says that it is replicated.
TEST(Manifest, NullInALayoutIsNotKnown) {
  std::map<std::string, std::string> metadata = Minimal();
  metadata["layout"] = R"({"w": null})";
  EXPECT_FALSE(ParseManifest(metadata, "f").value().layout->at("w").known);
  metadata["layout"] = "null";
  EXPECT_FALSE(ParseManifest(metadata, "f").value().layout);
}

TEST(Manifest, JsonMayBeStructuredOrText) {
  const std::string structured = R"({"format": "sumonce-capture", "version": 1, "step": 0,
      "rank": 0, "world_size": 1, "mesh": {"tp": {"size": 1, "coordinate": 0}},
      "params": {"w": {"shape": [4], "dtype": "bfloat16"}}, "not_known": [1, {}]})";
  const absl::StatusOr<Manifest> manifest = ParseManifestJson(structured, "f.json");
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_THAT(manifest->params.at("w").shape, ElementsAre(4));
  const std::string text = R"({"format": "sumonce-capture", "version": "1", "step": "0",
      "rank": "0", "world_size": "1", "mesh": "{\"tp\": {\"size\": 1, \"coordinate\": 0}}",
      "params": "{\"w\": {\"shape\": [4], \"dtype\": \"bfloat16\"}}"})";
  EXPECT_EQ(ParseManifestJson(text, "f.json").value().params.at("w").dtype, "bfloat16");
}

TEST(Manifest, NamesAllMistakesAtOnce) {
  const std::string mistakes = MistakesOf({{"version", "2"},
                                           {"rank", "2"},
                                           {"mesh", R"({"tp": {"size": 2, "coordinate": 2}})"},
                                           {"params", R"({"w": {"shape": [-1], "dtype": 3}})"},
                                           {"groups", R"({"tp": [[0, 1], [1]]})"},
                                           {"tokens", "{not json"},
                                           {"owned", R"({"w": [5, 3]})"}});
  EXPECT_THAT(mistakes, HasSubstr("f: 'version' is 2, but this program reads version 1"));
  EXPECT_THAT(mistakes, HasSubstr("'rank' is \"2\"; expected a whole number from 0 to 1"));
  EXPECT_THAT(mistakes, HasSubstr("'mesh.tp.coordinate' is 2; expected a whole number from 0"));
  EXPECT_THAT(mistakes, HasSubstr("'params.w.shape[0]' is -1"));
  EXPECT_THAT(mistakes, HasSubstr("'params.w.dtype' is 3; expected text"));
  EXPECT_THAT(mistakes, HasSubstr("'groups.tp[1]' names rank 1 a second time"));
  EXPECT_THAT(mistakes, HasSubstr("'tokens' is no JSON"));
  EXPECT_THAT(mistakes, HasSubstr("'owned.w' is [5,3]; expected [begin, end]"));
}

TEST(Manifest, NamesWhatIsMissing) {
  const absl::StatusOr<Manifest> manifest = ParseManifest({{"format", "pt"}}, "f");
  EXPECT_THAT(std::string(manifest.status().message()),
              AllOf(HasSubstr("'format' is \"pt\"; expected \"sumonce-capture\""),
                    HasSubstr("'rank' is missing"), HasSubstr("'params' is missing")));
}

TEST(Manifest, RefusesDeepAndEndlessMistakes) {
  EXPECT_THAT(MistakesOf({{"config", std::string(100000, '[')}}), HasSubstr("nests more than"));
  std::string params = "{";
  for (int i = 0; i < 1000; ++i) params += (i ? ",\"" : "\"") + std::to_string(i) + "\":{}";
  const std::string mistakes = MistakesOf({{"params", params + "}"}});
  EXPECT_THAT(mistakes, HasSubstr("and 980 more mistakes"));
  EXPECT_LT(mistakes.size(), 4000u);
}

class FolderTest : public testing::Test {
 protected:
  FolderTest() {
    std::string pattern = testing::TempDir() + "/capture_XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~FolderTest() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& text) const {
    std::string path = folder_ + "/" + name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  static std::string Json(int rank) {
    return R"({"format": "sumonce-capture", "version": 1, "step": 1, "rank": )" +
           std::to_string(rank) + R"(, "world_size": 2, "mesh": {}, "params": {}})";
  }

  std::string MessageOf(const std::string& path) const {
    return std::string(LoadManifests(path).status().message());
  }

  std::string folder_;
};

TEST_F(FolderTest, ManifestsWithoutTensorsAreACapture) {
  Write("step-0001/rank-00000.json", Json(0));
  Write("step-0001/rank-00001.json", Json(1));
  Write("step-0001/notes.txt", "");
  const absl::StatusOr<std::vector<Manifest>> manifests = LoadManifests(folder_);
  ASSERT_TRUE(manifests.ok()) << manifests.status();
  EXPECT_EQ(manifests->size(), 2u);
  EXPECT_EQ(LoadManifests(folder_ + "/step-0001").value().size(), 2u);
  EXPECT_EQ(LoadManifests(folder_ + "/step-0001/rank-00001.json").value()[0].rank, 1);
  const std::string list = Write("all.json", "[" + Json(0) + "," + Json(1) + "]");
  EXPECT_EQ(LoadManifests(list).value().size(), 2u);
}

TEST_F(FolderTest, SaysWhatIsNoCapture) {
  EXPECT_THAT(MessageOf(folder_ + "/none"), HasSubstr("/none: no such file"));
  EXPECT_THAT(MessageOf(folder_), HasSubstr("holds no step-NNNN/rank-NNNNN.safetensors"));
  Write("step-0001/rank-00000.json", Json(1));
  EXPECT_THAT(MessageOf(folder_), HasSubstr("its metadata is of rank 1; expected rank 0"));
  Write("step-0001/rank-0.json", Json(0));
  EXPECT_THAT(MessageOf(folder_), HasSubstr("are one rank"));
  ASSERT_EQ(mkfifo((folder_ + "/pipe.json").c_str(), 0600), 0);
  EXPECT_THAT(MessageOf(folder_ + "/pipe.json"), HasSubstr("is not a regular file"));
  EXPECT_THAT(MessageOf(Write("empty.json", "")), HasSubstr("is no JSON"));
  EXPECT_THAT(MessageOf(Write("text.safetensors", "no tensors")), Not(testing::IsEmpty()));
}

}  // namespace
}  // namespace sumonce::capture
