// Programs that look right and are not, and traces that are not what they say: each is refused, by
// name, or what is claimed of it is still true.
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trace/prove_traces.h"
#include "trace/reader/line_source.h"
#include "trace/reader/program_reader.h"

namespace sumonce::trace {
namespace {

using ::testing::HasSubstr;

// A job of one replicated weight [8, 8], y = x w^T on x [16, 8] cut by rows, whose gradient
// grad = y^T x is all-reduced; `extra` lines run on tensor 5 (the gradient) before the sum.
// %s of a line: the local rows; %r: the rank; %n: the size; %o: where the rank's rows begin; %i:
// 1/n; %h: 1/min(n, 2); %w: 1/2 of the unsharded program alone.
struct Job {
  std::vector<std::string> tensors;
  std::vector<std::string> extra;
};

std::string Filled(std::string text, int size, int rank) {
  return absl::StrReplaceAll(text, {{"%s", absl::StrCat(16 / size)},
                                    {"%r", absl::StrCat(rank)},
                                    {"%n", absl::StrCat(size)},
                                    {"%o", absl::StrCat(rank * 16 / size * 8)},
                                    {"%h", absl::StrCat(size == 1 ? 1.0 : 0.5)},
                                    {"%w", absl::StrCat(size == 1 ? 0.5 : 1.0)},
                                    {"%i", absl::StrCat(1.0 / size)}});
}

absl::StatusOr<Program> Traced(const Job& job, int size, int rank) {
  std::string group;
  for (int r = 0; r < size; ++r) absl::StrAppend(&group, r > 0 ? "," : "", r);
  std::vector<std::string> lines = {
      absl::StrCat(R"({"format":"sumonce-trace","version":1,"axis":"tp","size":%n,"rank":%r,)",
                   R"("group":[)", group,
                   R"(],"params":{"w":{"shape":[8,8],"grad":true,"marks":{}}}})"),
      R"({"tensor":0,"storage":0,"offset":0,"shape":[8,8],"strides":[8,1],"dtype":"float64","kind":"param","name":"w"})",
      R"({"tensor":1,"storage":1,"offset":0,"shape":[8,8],"strides":[8,1],"dtype":"float64","kind":"grad","name":"w"})",
      R"({"tensor":2,"storage":2,"offset":0,"shape":[16,8],"strides":[8,1],"dtype":"float64","kind":"input","name":"x"})",
      R"({"tensor":3,"storage":2,"offset":%o,"shape":[%s,8],"strides":[8,1],"dtype":"float64"})",
      R"({"tensor":4,"storage":2,"offset":%o,"shape":[8,%s],"strides":[1,8],"dtype":"float64"})",
      R"({"tensor":5,"storage":3,"offset":0,"shape":[8,8],"strides":[8,1],"dtype":"float64"})"};
  lines.insert(lines.end(), job.tensors.begin(), job.tensors.end());
  lines.push_back(
      R"({"op":"aten.slice.Tensor","args":[{"t":2},0,0,%s],"out":[3],"phase":"forward"})");
  lines.push_back(R"({"op":"aten.t","args":[{"t":3}],"out":[4],"phase":"backward"})");
  lines.push_back(
      R"({"op":"aten.mm","args":[{"t":4},{"t":3}],"out":[5],"phase":"backward","module":"layer"})");
  lines.insert(lines.end(), job.extra.begin(), job.extra.end());
  lines.push_back(
      R"({"op":"aten.copy_","args":[{"t":1},{"t":5}],"out":[1],"writes":[1],"phase":"backward"})");
  if (size > 1) {
    lines.push_back(absl::StrCat(R"({"op":"c10d.allreduce_","args":[[{"t":1}],{"group":[)", group,
                                 R"(]},{"reduce":"SUM"}],"out":[1],"phase":"finalize"})"));
  }
  ProgramBuilder builder(absl::StrCat("tp", size, ".rank", rank));
  JsonLine json;
  for (const std::string& line : lines) {
    absl::Status status = json.Parse(Filled(line, size, rank));
    if (status.ok()) status = builder.Add(json);
    if (!status.ok()) return status;
  }
  return builder.Finish();
}

Proof Proved(const Job& job) {
  TraceSet set;
  for (int r = 0; r < 2; ++r) set.ranks.push_back(*Traced(job, 2, r));
  set.twice = *Traced(job, 4, 0);
  set.whole = *Traced(job, 1, 0);
  return ProveTraces(set).proofs.at("w");
}

constexpr char kMore[] =
    R"({"tensor":6,"storage":4,"offset":0,"shape":[8,8],"strides":[8,1],"dtype":"float64"})";

constexpr char kRows[] =
    R"({"tensor":6,"storage":4,"offset":0,"shape":[%s,8],"strides":[8,1],"dtype":"float64"})";
constexpr char kLine[] =
    R"({"tensor":6,"storage":4,"offset":0,"shape":[8],"strides":[1],"dtype":"float64"})";

std::string OnGradient(const std::string& op, const std::string& more) {
  return absl::StrCat(R"({"op":"aten.)", op, R"(","args":[{"t":5})", more,
                      R"(],"out":[5],"writes":[5],"phase":"backward","module":"layer"})");
}

TEST(Hostile, TheControlIsRight) {
  const Proof proof = Proved({});
  EXPECT_EQ(proof.outcome, Outcome::kRight) << proof.reason;
  EXPECT_EQ(proof.before, "P");
  EXPECT_EQ(proof.after, "E");
}

struct Hostility {
  std::string name;
  Job job;
  std::string reason;
};

class HostileProgram : public ::testing::TestWithParam<Hostility> {};

TEST_P(HostileProgram, IsRefusedByName) {
  const Proof proof = Proved(GetParam().job);
  EXPECT_EQ(proof.outcome, Outcome::kNoStatement);
  EXPECT_THAT(proof.reason, HasSubstr(GetParam().reason));
  EXPECT_THAT(proof.operation, HasSubstr("[layer]"));
}

// Tensor 6, made by an operation.
std::string Made(const std::string& op, const std::string& args) {
  return absl::StrCat(R"({"op":"aten.)", op, R"(","args":[)", args,
                      R"(],"out":[6],"phase":"backward","module":"layer"})");
}

// Numbers and memory.
std::vector<Hostility> HostileValues() {
  const std::string more = kMore, add_made = OnGradient("add_.Tensor", R"(,{"t":6})");
  return {
      {"number_of_the_rank", {{}, {OnGradient("mul_.Scalar", ",%r")}}, kRankNumber},
      {"number_only_when_sharded", {{}, {OnGradient("mul_.Scalar", ",%h")}}, kWholeNumber},
      {"nonlinear_in_terms", {{}, {OnGradient("pow_.Scalar", ",2")}}, "partial"},
      {"constant_added_to_terms", {{}, {OnGradient("add_.Tensor", ",1.5")}}, "partial"},
      {"undeclared", {{}, {OnGradient("bernoulli_", ",0.5")}}, kUndeclared},
      {"full_of_a_part", {{more}, {Made("full", "[8,8],%i"), add_made}}, kSizeNumber},
      {"alpha_of_a_part",
       {{more},
        {Made("clone", R"({"t":5})"),
         R"({"op":"aten.add_.Tensor","args":[{"t":5},{"t":6}],"kwargs":{"alpha":%i},"out":[5],)"
         R"("writes":[5],"phase":"backward","module":"layer"})"}},
       "a number"},
      {"memory_that_nobody_wrote",
       {{more}, {Made("empty.memory_format", "[8,8]"), add_made}},
       kUninitialised},
      {"complete_added_to_terms", {{more}, {Made("arange", "64"), add_made}}, "mixed use"},
      {"outside_tensor_of_the_rank",
       {{R"({"tensor":6,"storage":4,"offset":0,"shape":[8],"strides":[1],"dtype":"float64","digest":"a%r"})"},
        {add_made}},
       kOutsideDiffers},
      {"outside_tensor_of_the_size",
       {{R"({"tensor":6,"storage":4,"offset":0,"shape":[8],"strides":[1],"dtype":"float64","digest":"a%n"})"},
        {add_made}},
       kOutsideDiffers},
  };
}

// Shards, and bits.
std::vector<Hostility> HostileShards() {
  const std::string more = kMore, add_made = OnGradient("add_.Tensor", R"(,{"t":6})");
  return {
      {"rolled_in_a_shard",
       {{kRows},
        {Made("roll", R"({"t":3},[1],[0])"),
         R"({"op":"aten.mm","args":[{"t":4},{"t":6}],"out":[5],"phase":"backward","module":"layer"})"}},
       "whole dimension that is cut"},
      {"first_row_of_a_shard",
       {{R"({"tensor":6,"storage":2,"offset":%o,"shape":[8],"strides":[1],"dtype":"float64"})"},
        {Made("select.int", R"({"t":3},0,0)"), add_made}},
       ""},
      {"item_of_a_shard",
       {{},
        {R"({"op":"aten._local_scalar_dense","args":[{"t":3}],"out":[],"phase":"backward",)"
         R"("module":"layer"})",
         OnGradient("mul_.Scalar", ",3")}},
       kNumberRead},
      {"sorted_in_a_shard",
       {{kRows},
        {Made("sort", R"({"t":3},0)"),
         R"({"op":"aten.mm","args":[{"t":4},{"t":6}],"out":[5],"phase":"backward","module":"layer"})"}},
       "whole dimension that is cut"},
      {"clamped_at_a_part",
       {{kRows},
        {Made("clamp", R"({"t":3},%i)"),
         R"({"op":"aten.mm","args":[{"t":4},{"t":6}],"out":[5],"phase":"backward","module":"layer"})"}},
       kSizeNumber},
      {"count_of_a_local_extent",
       {{R"({"tensor":6,"storage":4,"offset":0,"shape":[%s],"strides":[1],"dtype":"float64"})",
         R"({"tensor":7,"storage":5,"offset":0,"shape":[8,%s],"strides":[%s,1],"dtype":"float64"})"},
        {Made("arange", "%s"),
         R"({"op":"aten.mul.Tensor","args":[{"t":4},{"t":6}],"out":[7],"phase":"backward","module":"layer"})",
         R"({"op":"aten.mm","args":[{"t":7},{"t":3}],"out":[5],"phase":"backward","module":"layer"})"}},
       kSizeNumber},
      {"mean_of_local_rows",
       {{kLine,
         R"({"tensor":7,"storage":5,"offset":0,"shape":[8],"strides":[1],"dtype":"float64"})"},
        {Made("mean.dim", R"({"t":3},[0])"),
         R"({"op":"aten.rsqrt","args":[{"t":6}],"out":[7],"phase":"backward","module":"layer"})",
         OnGradient("add_.Tensor", R"(,{"t":7})")}},
       "partial"},
      {"first_two_rows_of_a_shard",
       {{R"({"tensor":7,"storage":2,"offset":%o,"shape":[2,8],"strides":[8,1],"dtype":"float64"})",
         kLine},
        {R"({"op":"aten.slice.Tensor","args":[{"t":3},0,0,2],"out":[7],"phase":"backward","module":"layer"})",
         Made("sum.dim_IntList", R"({"t":7},[0])"), add_made}},
       ""},
      {"bits_as_another_type",
       {{R"({"tensor":6,"storage":3,"offset":0,"shape":[8,8],"strides":[8,1],"dtype":"int64"})"},
        {Made("view.dtype", R"({"t":5},{"s":"torch.int64"})"), add_made}},
       kOtherType},
      {"bits_as_another_type_in_place",
       {{}, {OnGradient("view.dtype", R"(,{"s":"torch.int64"})")}},
       kFormUndeclared},
  };
}

INSTANTIATE_TEST_SUITE_P(Values, HostileProgram, ::testing::ValuesIn(HostileValues()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Shards, HostileProgram, ::testing::ValuesIn(HostileShards()),
                         [](const auto& info) { return info.param.name; });

// A factor that only the unsharded program has is no operation of the sharded one.
TEST(Hostile, ANumberOfTheUnshardedProgramAloneRefusesAll) {
  const Proof proof = Proved({{}, {OnGradient("mul_.Scalar", ",%w")}});
  EXPECT_EQ(proof.outcome, Outcome::kNoStatement);
  EXPECT_THAT(proof.reason, HasSubstr("0.5"));
  EXPECT_THAT(proof.reason, HasSubstr("aten.mul_.Scalar [layer]"));
}

// A number that goes with the size is a factor, and is told.
TEST(Hostile, DividingByTheLocalExtentGivesItsFactor) {
  const Proof proof = Proved({{}, {OnGradient("div_.Scalar", ",%s")}});
  EXPECT_EQ(proof.outcome, Outcome::kWrong);
  EXPECT_EQ(proof.mechanism, Mechanism::kWrongScale);
  EXPECT_EQ(proof.coefficient, "tp");
}

TEST(Hostile, OneSizeIsNeverEnough) {
  TraceSet set;
  for (int r = 0; r < 2; ++r) set.ranks.push_back(*Traced({}, 2, r));
  const TraceProof alone = ProveTraces(set);
  EXPECT_EQ(alone.proofs.at("w").outcome, Outcome::kNoStatement);
  EXPECT_THAT(alone.refused, HasSubstr("--tp 2,4"));
  set.twice = *Traced({}, 4, 0);
  EXPECT_EQ(ProveTraces(set).proofs.at("w").outcome, Outcome::kNoStatement);
}

// ---- Traces that do not belong together, or are damaged.

TraceSet Shipped() { return *ReadTraces(SUMONCE_TEST_DATA "/traces/lora-replica-fixed"); }

std::string Refused(const TraceSet& set) {
  const TraceProof proof = ProveTraces(set);
  for (const auto& [param, statement] : proof.proofs)
    EXPECT_EQ(statement.outcome, Outcome::kNoStatement) << param;
  return proof.refused;
}

TEST(Mismatch, NamesTheFirstDifference) {
  TraceSet set = Shipped();
  set.ranks[1].ops.erase(set.ranks[1].ops.begin() + 100);
  EXPECT_THAT(Refused(set), HasSubstr("differ at @100 aten."));
  set = Shipped();
  set.twice->ops.pop_back();
  EXPECT_THAT(Refused(set), HasSubstr("636 operations"));
  set = Shipped();
  set.ranks[1].tensors[set.ranks[1].ops[60].outs[0]].geometry.shape[0] += 1;
  EXPECT_THAT(Refused(set), HasSubstr("in the other"));
}

// One change of a program, and its undoing.
class Change {
 public:
  // The first number of an operation, or the first extent of its first result, is one more.
  Change(Program& program, int op, bool number) {
    Operation& operation = program.ops[op];
    for (Argument& argument : operation.args) {
      if (number && number_ == nullptr && argument.is_number()) number_ = &argument;
    }
    if (!number && !operation.outs.empty()) {
      Extents& shape = program.tensors[operation.outs[0]].geometry.shape;
      if (!shape.empty()) extent_ = &shape[0];
    }
    Add(1);
  }
  ~Change() { Add(-1); }
  bool made() const { return number_ != nullptr || extent_ != nullptr; }

 private:
  void Add(int one) {
    if (number_ != nullptr) number_->number += one;
    if (number_ != nullptr) number_->integer += one;
    if (extent_ != nullptr) *extent_ += one;
  }
  Argument* number_ = nullptr;
  int64_t* extent_ = nullptr;
};

// Another operation, or another tensor of the same kind, in one trace: nothing is claimed at all.
TEST(Mutation, AnotherOperationOrTensorRefusesAll) {
  TraceSet set = Shipped();
  int changes = 0;
  for (int op = 0; op < static_cast<int>(set.base().ops.size()); op += 7) {
    for (Program* program : {&set.ranks[1], &*set.twice}) {
      Operation& operation = program->ops[op];
      const std::string_view name = operation.name;
      operation.name = name == "aten.mul.Tensor" ? "aten.add.Tensor" : "aten.mul.Tensor";
      EXPECT_NE(Refused(set), "") << OperationName(*program, op) << " was " << name;
      operation.name = name;
      if (operation.args.empty() || operation.args[0].kind != Argument::Kind::kTensor) continue;
      const int64_t was = operation.args[0].integer;
      const TensorInfo& tensor = program->tensors[was];
      int64_t other = was;
      while (--other >= 0 && (program->tensors[other].geometry.shape != tensor.geometry.shape ||
                              program->tensors[other].dtype != tensor.dtype ||
                              program->tensors[other].storage == tensor.storage)) {
      }
      if (other < 0) continue;
      operation.args[0].integer = other;
      EXPECT_NE(Refused(set), "") << OperationName(*program, op) << " of another tensor";
      operation.args[0].integer = was;
      ++changes;
    }
  }
  EXPECT_GT(changes, 100);
}

// What is claimed after one change of one trace: nothing, or the same.
TEST(Mutation, IsRefusedOrStillTrue) {
  TraceSet set = Shipped();
  const auto expected = ProveTraces(set).proofs;
  int refused = 0;
  for (int op = 0; op < static_cast<int>(set.base().ops.size()); op += 3) {
    for (int what = 0; what < 4; ++what) {
      Program& program = what % 2 == 0 ? set.ranks[1] : *set.twice;
      const Change change(program, op, what < 2);
      if (!change.made()) continue;
      for (const auto& [param, proof] : ProveTraces(set).proofs) {
        const bool none = proof.outcome == Outcome::kNoStatement;
        refused += none;
        if (none) continue;
        const Proof& known = expected.at(param);
        EXPECT_TRUE(proof.mechanism == known.mechanism && proof.coefficient == known.coefficient)
            << OperationName(program, op) << " change " << what << ": " << param;
      }
    }
  }
  EXPECT_GT(refused, 1000);
}

// Each mask of the vocabulary look-ups is needed: without one nothing is RIGHT any more. But the
// last, of the target's logit, is on the way to the loss's value alone, and every gradient stays
// right.
TEST(OwnRange, AForgottenMaskIsRefused) {
  std::vector<size_t> masks;
  const TraceSet whole = Shipped();
  for (size_t at = 0; at < whole.base().ops.size(); ++at) {
    const Operation& operation = whole.base().ops[at];
    const bool fills = operation.name == "aten.masked_fill_.Scalar";
    if (fills && operation.args[2].number == 0) masks.push_back(at);
  }
  ASSERT_EQ(masks.size(), 4u);
  for (const size_t at : masks) {
    TraceSet set = Shipped();
    for (Program* program : {&set.ranks[0], &set.ranks[1], &*set.twice}) {
      program->ops[at].name = "aten.clone";
      program->ops[at].args.resize(1);
    }
    int right = 0;
    for (const auto& [param, proof] : ProveTraces(set).proofs)
      right += proof.outcome == Outcome::kRight;
    EXPECT_EQ(right == 8, at == masks.back()) << OperationName(set.base(), static_cast<int>(at));
  }
}

std::string ErrorOf(const std::string& text) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/hostile.jsonl");
  std::ofstream(path) << text;
  const auto program = ReadProgram(path);
  return program.ok() ? "" : std::string(program.status().message());
}

TEST(Reader, SaysPlaceValueAndCure) {
  const std::string header =
      R"({"format":"sumonce-trace","version":1,"axis":"tp","size":1,"rank":0,"group":[0],"params":{}})"
      "\n";
  EXPECT_THAT(ErrorOf(""), HasSubstr("no header"));
  EXPECT_THAT(ErrorOf("hello\n"), HasSubstr("hostile.jsonl:1: error: no JSON"));
  EXPECT_THAT(ErrorOf(header), HasSubstr("holds no operation"));
  EXPECT_THAT(ErrorOf(std::string(1 << 20, '[')), HasSubstr("nested more than"));
  EXPECT_THAT(ErrorOf(R"({"format":"other"})"), HasSubstr("expected sumonce-trace"));
  EXPECT_THAT(
      ErrorOf(header +
              R"({"tensor":99999999,"storage":0,"offset":0,"shape":[],"strides":[],"dtype":"f"})"),
      HasSubstr(":2: error: 'tensor'"));
  EXPECT_THAT(
      ErrorOf(
          header +
          R"({"tensor":0,"storage":0,"offset":0,"shape":[1152921504606846976,8],"strides":[8,1],"dtype":"f"})"),
      HasSubstr("name no memory"));
  EXPECT_THAT(ErrorOf(header + R"({"op":"aten.t","args":[{"t":7}],"out":[],"phase":"forward"})"),
              HasSubstr("tensor 7 is not defined above"));
  EXPECT_THAT(ErrorOf(header + R"({"op":"aten.t","args":[],"out":[],"phase":"sideways"})"),
              HasSubstr("expected forward, backward or finalize"));
}

TEST(Reader, ATruncatedFileIsNoShorterTrace) {
  const std::string whole = SUMONCE_TEST_DATA "/traces/lora-replica-fixed/tp2.rank0.jsonl.gz";
  std::ifstream in(whole, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  const std::string path = absl::StrCat(::testing::TempDir(), "/truncated.jsonl.gz");
  std::ofstream(path, std::ios::binary) << bytes.substr(0, bytes.size() / 2);
  const auto program = ReadProgram(path);
  ASSERT_FALSE(program.ok());
  EXPECT_THAT(std::string(program.status().message()), HasSubstr("middle of its gzip stream"));
}

}  // namespace
}  // namespace sumonce::trace
