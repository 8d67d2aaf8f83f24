// Pairs of files whose difference is known, since it was made.
#include "capture/diff/diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

#include "base/random.h"
#include "capture/diff/slices.h"

namespace sumonce::diff {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Tensors = std::map<std::string, TensorToWrite>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Distinct values that float32 holds exactly, and bfloat16 after rounding.
TensorToWrite Made(const std::vector<int64_t>& shape, DType dtype = DType::kFloat32) {
  TensorToWrite tensor{.dtype = dtype, .shape = shape, .values = {}};
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  for (int64_t i = 0; i < count; ++i)
    tensor.values.push_back(static_cast<double>((i * 7919) % 1009 - 504) / 64.0);
  return tensor;
}

class DiffTest : public ::testing::Test {
 protected:
  DiffTest() {
    std::string pattern = ::testing::TempDir() + "/diff_XXXXXX";
    root_ = mkdtemp(pattern.data());
  }
  ~DiffTest() override { fs::remove_all(root_); }

  std::string Path(const std::string& name) const { return root_ + "/" + name; }
  std::string Write(const std::string& name, const Tensors& tensors) {
    fs::create_directories(fs::path(Path(name)).parent_path());
    EXPECT_TRUE(WriteSafetensors(Path(name), tensors, {}, true).ok());
    return Path(name);
  }
  DiffReport Compare(const TensorToWrite& a, const TensorToWrite& b,
                     const DiffOptions& options = {}) {
    const auto report =
        Diff(Write("a.safetensors", {{"w", a}}), Write("b.safetensors", {{"w", b}}), options);
    EXPECT_TRUE(report.ok()) << report.status();
    return *report;
  }
  // Of the one tensor that differs.
  Relation RelationTo(const TensorToWrite& a, const TensorToWrite& b) {
    const DiffReport report = Compare(a, b);
    EXPECT_EQ(report.differing.size(), 1u);
    return report.differing.empty() ? Relation{} : report.differing[0].relation;
  }

  std::string root_;
};

template <typename Change>
TensorToWrite With(TensorToWrite tensor, const Change& change) {
  for (size_t i = 0; i < tensor.values.size(); ++i) tensor.values[i] = change(tensor.values[i], i);
  return tensor;
}

// Slice `i` along the first dimension of the result is slice order[i] of the tensor.
TensorToWrite Rows(const TensorToWrite& tensor, const std::vector<int64_t>& order) {
  TensorToWrite result = tensor;
  result.shape[0] = static_cast<int64_t>(order.size());
  const size_t row = tensor.values.size() / static_cast<size_t>(tensor.shape[0]);
  result.values.clear();
  for (const int64_t from : order)
    result.values.insert(result.values.end(), tensor.values.begin() + from * row,
                         tensor.values.begin() + (from + 1) * row);
  return result;
}

TensorToWrite Transposed(const TensorToWrite& tensor) {
  TensorToWrite result{tensor.dtype, {tensor.shape[1], tensor.shape[0]}, tensor.values};
  for (int64_t i = 0; i < tensor.shape[0]; ++i) {
    for (int64_t j = 0; j < tensor.shape[1]; ++j)
      result.values[j * tensor.shape[0] + i] = tensor.values[i * tensor.shape[1] + j];
  }
  return result;
}

TEST_F(DiffTest, EqualFilesDoNotDiffer) {
  const DiffReport report = Compare(Made({4, 6}), Made({4, 6}));
  EXPECT_EQ(report.compared, 1);
  EXPECT_EQ(report.identical, 1);
  EXPECT_EQ(ToResult(report).outcome, RunOutcome::kPass);
}

// The figures of torch.testing.assert_close(a, b) on the same numbers: expected is b.
TEST_F(DiffTest, FiguresAreAssertCloses) {
  TensorToWrite a = Made({2, 3}), b = a;
  a.values = {1, 2, 3, 4, 5, 6};
  b.values = {1, 2, 3.5, 4, 5, 6.000005};
  const DiffReport report = Compare(a, b);
  ASSERT_EQ(report.differing.size(), 1u);
  const Figures& figures = report.differing[0].figures;
  EXPECT_EQ(figures.mismatched, 1);  // the last one is within 1e-5 + 1.3e-6 * 6
  EXPECT_EQ(figures.diff_abs_max, 0.5);
  EXPECT_EQ(figures.diff_abs_at, 2);
  EXPECT_DOUBLE_EQ(figures.diff_rel_max, 0.5 / 3.5);
  const ScenarioResult result = ToResult(report);
  ASSERT_EQ(result.failures.size(), 1u);
  EXPECT_THAT(result.failures[0],
              AllOf(HasSubstr("w: 1 of 6 mismatched (16.7%)"),
                    HasSubstr("absolute difference 0.5 at [0, 2] (allowed 1e-05)"),
                    HasSubstr("relative 0.142857 at [0, 2] (allowed 1.3e-06)")));
}

TEST_F(DiffTest, TolerancesAreTheUsersIfGiven) {
  TensorToWrite a = Made({3}), b = a;
  a.values = {1, 2, 3};
  b.values = {1, 2.1, 3};
  const DiffReport report = Compare(a, b, {.rtol = 0.1, .atol = 0.0, .filter = "*"});
  ASSERT_EQ(report.differing.size(), 1u);
  EXPECT_FALSE(report.differing[0].fails());
  EXPECT_EQ(ToResult(report).outcome, RunOutcome::kPass);
  EXPECT_THAT(ToResult(report).statements, ElementsAre(HasSubstr("not identical: w")));
}

// Neighbours are one unit apart, in each type; 0 and -0 are one value.
TEST(Ulps, CountRepresentableValues) {
  EXPECT_EQ(UlpsBetween(1, std::nextafter(1.0, 2.0), DType::kFloat64), 1u);
  EXPECT_EQ(UlpsBetween(1, std::nextafter(1.0f, 2.0f), DType::kFloat32), 1u);
  EXPECT_EQ(UlpsBetween(1, 1.0078125, DType::kBFloat16), 1u);
  EXPECT_EQ(UlpsBetween(1, 1.0009765625, DType::kFloat16), 1u);
  EXPECT_EQ(UlpsBetween(65504, kInfinity, DType::kFloat16), 1u);
  EXPECT_EQ(UlpsBetween(0, std::ldexp(1.0, -24), DType::kFloat16), 1u);
  EXPECT_EQ(UlpsBetween(std::ldexp(1.0, -14), std::ldexp(1023.0, -24), DType::kFloat16), 1u);
  EXPECT_EQ(UlpsBetween(0.0, -0.0, DType::kFloat32), 0u);
  EXPECT_EQ(UlpsBetween(std::ldexp(1.0, -149), -std::ldexp(1.0, -149), DType::kFloat32), 2u);
  EXPECT_EQ(UlpsBetween(-kInfinity, kInfinity, DType::kFloat64), 2 * (0x7ffull << 52));
  EXPECT_EQ(UlpsBetween(std::nan(""), 1, DType::kFloat32), std::nullopt);
  EXPECT_EQ(UlpsBetween(1, 2, DType::kInt32), std::nullopt);
}

// Every float16, in the order of its values, is one unit from the next.
TEST(Ulps, EveryFloat16IsOneFromTheNext) {
  for (uint16_t bits = 0; bits < 0x7c00; ++bits) {
    const double here = Float16{bits}.ToDouble();
    const double next = Float16{static_cast<uint16_t>(bits + 1)}.ToDouble();
    ASSERT_EQ(UlpsBetween(here, next, DType::kFloat16), 1u) << bits;
    ASSERT_EQ(UlpsBetween(-here, -next, DType::kFloat16), 1u) << bits;
  }
}

TEST_F(DiffTest, FindsMultiples) {
  const TensorToWrite a = Made({8, 5});
  EXPECT_EQ(RelationTo(a, With(a, [](double v, size_t) { return 4 * v; })).text, "B is 4 times A");
  EXPECT_EQ(RelationTo(a, With(a, [](double v, size_t) { return v / 8; })).text,
            "B is A divided by 8");
  EXPECT_EQ(RelationTo(a, With(a, [](double v, size_t) { return -v; })).text,
            "B is A with the other sign");
  EXPECT_EQ(RelationTo(a, With(a, [](double v, size_t) { return 0.75 * v; })).text,
            "B is 0.75 times A");
  // Thirds are rounded in float32.
  EXPECT_EQ(RelationTo(a, With(a, [](double v, size_t) { return v / 3; })).text,
            "B is A divided by 3");
  EXPECT_EQ(RelationTo(a, With(a, [](double v, size_t i) { return i == 7 ? 2 * v : v; })).kind,
            RelationKind::kNone);
  EXPECT_EQ(RelationTo(a, With(a, [](double v, size_t i) { return i % 2 ? 2 * v : v; })).kind,
            RelationKind::kNone);
}

TEST_F(DiffTest, FindsMultiplesInBfloat16) {
  TensorToWrite a = Made({8, 5}, DType::kBFloat16);
  EXPECT_EQ(RelationTo(a, With(a, [](double v, size_t) { return 3 * v; })).text, "B is 3 times A");
}

TEST_F(DiffTest, FindsZeroAndOffset) {
  const TensorToWrite a = Made({8, 5});
  const auto zero = With(a, [](double, size_t) { return 0.0; });
  EXPECT_EQ(RelationTo(a, zero).kind, RelationKind::kZero);
  EXPECT_EQ(RelationTo(zero, a).kind, RelationKind::kFromZero);
  EXPECT_EQ(RelationTo(a, With(a, [](double v, size_t) { return v + 2.5; })).text,
            "B is A plus 2.5");
}

TEST_F(DiffTest, FindsShifts) {
  const TensorToWrite a = Made({6, 5});
  const Relation rolled = RelationTo(a, Rows(a, {4, 5, 0, 1, 2, 3}));
  EXPECT_EQ(rolled.kind, RelationKind::kShifted);
  EXPECT_THAT(rolled.text, HasSubstr("shifted along dimension 0, the end at the beginning"));
  EXPECT_EQ(rolled.detail, "by 2 of 6");
  TensorToWrite later = Rows(a, {0, 0, 1, 2, 3, 4});
  for (int i = 0; i < 5; ++i) later.values[i] = 100 + i;  // a row that A does not have
  const Relation shifted = RelationTo(a, later);
  EXPECT_EQ(shifted.kind, RelationKind::kShifted);
  EXPECT_THAT(shifted.detail, HasSubstr("by 1; 5 of 6"));
}

TEST_F(DiffTest, FindsTranspositionsOfAnyMatrix) {
  EXPECT_EQ(RelationTo(Made({6, 5}), Transposed(Made({6, 5}))).kind, RelationKind::kTransposed);
  EXPECT_EQ(RelationTo(Made({6, 6}), Transposed(Made({6, 6}))).kind, RelationKind::kTransposed);
}

TEST_F(DiffTest, FindsPermutedBlocks) {
  const TensorToWrite a = Made({8, 3});
  const Relation relation = RelationTo(a, Rows(a, {6, 7, 0, 1, 4, 5, 2, 3}));
  EXPECT_EQ(relation.kind, RelationKind::kPermuted) << relation.text;
  EXPECT_THAT(relation.detail, HasSubstr("4 blocks, the smallest of 2"));
  // Columns: the transposed twin.
  const Relation columns = RelationTo(Transposed(a), Transposed(Rows(a, {6, 7, 0, 1, 4, 5, 2, 3})));
  EXPECT_THAT(columns.text, HasSubstr("along dimension 1"));
}

// [gate; up] as a whole against a pair on each of two ranks; and q, k, v of three heads with 2, 1
// and 1 rows.
TEST_F(DiffTest, FindsOtherPackings) {
  const TensorToWrite mlp = Made({8, 3});
  const Relation pair = RelationTo(mlp, Rows(mlp, {0, 1, 4, 5, 2, 3, 6, 7}));
  EXPECT_EQ(pair.kind, RelationKind::kRepacked) << pair.text;
  EXPECT_THAT(pair.detail, HasSubstr("2 units of 2 parts with 2, 2"));

  const TensorToWrite qkv = Made({12, 3});
  const std::vector<int64_t> by_part = {0, 1, 4, 5, 8, 9, 2, 6, 10, 3, 7, 11};
  const Relation heads = RelationTo(qkv, Rows(qkv, by_part));
  EXPECT_EQ(heads.kind, RelationKind::kRepacked) << heads.text;
  EXPECT_THAT(heads.text, HasSubstr("A has unit behind unit, B part behind part"));
  EXPECT_THAT(heads.detail, HasSubstr("3 units of 3 parts with 2, 1, 1"));
  const Relation back = RelationTo(Rows(qkv, by_part), qkv);
  EXPECT_THAT(back.text, HasSubstr("B has unit behind unit, A part behind part"));
  EXPECT_THAT(back.detail, HasSubstr("3 units of 3 parts with 2, 1, 1"));
}

TEST_F(DiffTest, FindsSlices) {
  const TensorToWrite whole = Made({8, 3});
  const DiffReport report = Compare(whole, Rows(whole, {4, 5, 6, 7}));
  ASSERT_EQ(report.differing.size(), 1u);
  EXPECT_TRUE(report.differing[0].fails());
  EXPECT_THAT(ToResult(report).failures[0],
              AllOf(HasSubstr("[8, 3] in A, [4, 3] in B"), HasSubstr("B is a slice of A"),
                    HasSubstr("4 to 8 of 8")));
}

TEST_F(DiffTest, AnotherDtypeFailsThoughValuesAreClose) {
  TensorToWrite b = Made({4, 4});
  b.dtype = DType::kBFloat16;
  const DiffReport report = Compare(Made({4, 4}), b);
  EXPECT_THAT(ToResult(report).failures, ElementsAre(HasSubstr("float32 in A, bfloat16 in B")));
  EXPECT_EQ(report.differing[0].figures.ulp_max, std::nullopt);
}

TEST_F(DiffTest, NothingEqualsNaN) {
  TensorToWrite a = Made({4});
  a.values[2] = std::nan("");
  const DiffReport report = Compare(a, a);
  ASSERT_EQ(report.differing.size() + static_cast<size_t>(report.identical), 1u);
  EXPECT_EQ(ToResult(report).outcome, RunOutcome::kFail);
  TensorToWrite b = Made({4});
  b.values[1] = kInfinity;
  EXPECT_THAT(ToResult(Compare(Made({4}), b)).failures[0], HasSubstr("not finite: 0 of A, 1 of B"));
}

TEST_F(DiffTest, TensorsOfOneSideAreNamed) {
  Write("a.safetensors", {{"both", Made({2})}, {"mine", Made({2})}});
  Write("b.safetensors", {{"both", Made({2})}, {"theirs", Made({2})}});
  const auto report = Diff(Path("a.safetensors"), Path("b.safetensors"), {});
  ASSERT_TRUE(report.ok());
  EXPECT_THAT(ToResult(*report).failures,
              ElementsAre("only in A: 1 tensor: mine", "only in B: 1 tensor: theirs"));
  const auto filtered = Diff(Path("a.safetensors"), Path("b.safetensors"), {.filter = "both"});
  EXPECT_EQ(ToResult(*filtered).outcome, RunOutcome::kPass);
}

// One model in other pieces is compared by its tensors; rank files, whose names repeat, by files.
TEST_F(DiffTest, FoldersArePairedByNamesOrByFiles) {
  Write("a/1.safetensors", {{"x", Made({2})}});
  Write("a/2.safetensors", {{"y", Made({3})}});
  Write("b/all.safetensors", {{"x", Made({2})}, {"y", Made({3})}});
  const auto pieces = Diff(Path("a"), Path("b"), {});
  ASSERT_TRUE(pieces.ok()) << pieces.status();
  EXPECT_EQ(pieces->identical, 2);

  Write("c/step/r0.safetensors", {{"w", Made({2})}});
  Write("c/step/r1.safetensors", {{"w", Made({3})}});
  Write("d/step/r0.safetensors", {{"w", Made({2})}});
  const auto ranks = Diff(Path("c"), Path("d"), {});
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  EXPECT_EQ(ranks->identical, 1);
  EXPECT_THAT(ranks->files_only_a, ElementsAre("step/r1.safetensors"));
}

// A FIFO would hold a reader for ever; what is no file, or no safetensors file, is named, the rest
// is compared, and nothing counts as equal.
TEST_F(DiffTest, WhatCannotBeReadInAFolderIsNamed) {
  for (const std::string side : {"a/", "b/"}) {
    for (const char* name : {"1", "2", "3", "4", "5"})
      Write(side + name + ".safetensors", {{std::string("w") + name, Made({4})}});
  }
  fs::remove(Path("a/1.safetensors"));
  ASSERT_EQ(mkfifo(Path("a/1.safetensors").c_str(), 0600), 0);
  fs::remove(Path("b/2.safetensors"));
  const int socket_fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{.sun_family = AF_UNIX};
  Path("b/2.safetensors").copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(socket_fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  fs::remove(Path("a/3.safetensors"));
  fs::create_symlink("nowhere", Path("a/3.safetensors"));
  std::ofstream(Path("b/4.safetensors")) << "not one";
  const auto report = Diff(Path("a"), Path("b"), {});
  close(socket_fd);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->compared, 1);
  EXPECT_THAT(report->unusable,
              ElementsAre(AllOf(HasSubstr("a/1.safetensors"), HasSubstr("is not a regular file")),
                          AllOf(HasSubstr("a/3.safetensors"), HasSubstr("no such file")),
                          AllOf(HasSubstr("b/2.safetensors"), HasSubstr("is not a regular file")),
                          HasSubstr("b/4.safetensors")));
  EXPECT_THAT(report->only_a, IsEmpty());
  EXPECT_THAT(report->only_b, IsEmpty());
  const ScenarioResult result = ToResult(*report);
  EXPECT_EQ(result.outcome, RunOutcome::kFail);
  EXPECT_THAT(result.failures, ::testing::Each(HasSubstr("not compared: ")));
}

TEST_F(DiffTest, AFolderWithNothingToReadIsAnError) {
  Write("a/1.safetensors", {{"w", Made({4})}});
  fs::create_directory(Path("b"));
  ASSERT_EQ(mkfifo(Path("b/1.safetensors").c_str(), 0600), 0);
  EXPECT_THAT(std::string(Diff(Path("a"), Path("b"), {}).status().message()),
              HasSubstr("b/1.safetensors: is not a regular file"));
}

// A link to a folder is the folder; one that goes round is entered once.
TEST_F(DiffTest, LinkedFoldersAreEntered) {
  Write("a/x/1.safetensors", {{"w", Made({4})}});
  Write("elsewhere/1.safetensors", {{"w", Made({4})}});
  fs::create_directory(Path("b"));
  fs::create_directory_symlink(Path("elsewhere"), Path("b/x"));
  fs::create_directory_symlink(Path("b"), Path("b/round"));
  const auto report = Diff(Path("a"), Path("b"), {});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->identical, 1);
  EXPECT_EQ(ToResult(*report).outcome, RunOutcome::kPass);
}

TEST_F(DiffTest, BadInputIsNamed) {
  Write("a.safetensors", {{"x", Made({2})}});
  fs::create_directory(Path("empty"));
  EXPECT_THAT(std::string(Diff(Path("a.safetensors"), Path("empty"), {}).status().message()),
              HasSubstr("one is a folder, the other a file"));
  EXPECT_THAT(std::string(Diff(Path("empty"), Path("empty"), {}).status().message()),
              HasSubstr("no file named *.safetensors"));
  EXPECT_TRUE(absl::IsNotFound(Diff(Path("gone"), Path("a.safetensors"), {}).status()));
  std::ofstream(Path("short.safetensors"), std::ios::binary) << "abc";
  EXPECT_TRUE(
      absl::IsInvalidArgument(Diff(Path("a.safetensors"), Path("short.safetensors"), {}).status()));
}

// More than one piece, scalars and tensors without elements.
TEST_F(DiffTest, AllSizesAreRead) {
  TensorToWrite big = Made({3, kPiece / 2 + 7});
  TensorToWrite other = big;
  other.values.back() += 1;
  const DiffReport report = Compare(big, other);
  ASSERT_EQ(report.differing.size(), 1u);
  EXPECT_EQ(report.differing[0].figures.diff_abs_at, static_cast<int64_t>(big.values.size()) - 1);
  EXPECT_EQ(Compare(Made({}), Made({})).identical, 1);
  EXPECT_EQ(Compare(Made({0, 4}), Made({0, 4})).identical, 1);
  EXPECT_THAT(ToResult(Compare(Made({0, 4}), Made({2, 4}))).failures,
              ElementsAre(HasSubstr("[0, 4] in A, [2, 4] in B")));
}

// Many equal slices must neither be slow nor be taken for a permutation.
TEST(Slices, EqualSlicesAreNoPermutation) {
  const std::vector<uint64_t> equal(100000, 7);
  const auto runs = PermutationOf(equal, equal);
  ASSERT_TRUE(runs.has_value());
  EXPECT_EQ(runs->size(), 1u);
  EXPECT_EQ(ShiftOf(equal, equal), std::nullopt);
}

}  // namespace
}  // namespace sumonce::diff
