// The command line as its user meets it: arguments in; status, stdout and stderr out. The engine is
// a double where a test needs an outcome that no sound scenario has (an internal error, an
// interruption); tests/cli runs the real one.
#include "cli/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace sumonce {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kScenario[] = R"(# proto-file: proto/scenario.proto
# proto-message: sumonce.proto.Scenario
# What this scenario is about.
mesh { tp: 2 }
model { layer { self_attention { } } }
lora { target: "linear_proj" }
finalizer: "megatron_core_0_16"
)";

void IgnoreSignal(int) {}  // a handler that was there before

struct Call {
  int status = -1;
  std::string out;
  std::string err;
};

class CommandLine : public ::testing::Test {
 protected:
  CommandLine() {
    fs::create_directories(root_ / "area");
    Write("area/one.textproto", kScenario);
    Write("area/two.textproto", kScenario);
    engine_.run = [this](const Scenario& scenario, const RunnerOptions& options) {
      ran_.push_back(scenario);
      options_.push_back(options);
      return std::vector<ScenarioResult>{Result(scenario)};
    };
    engine_.prove = [this](const Scenario& scenario) {
      ran_.push_back(scenario);
      return std::vector<ScenarioResult>{Result(scenario)};
    };
  }
  ~CommandLine() override { fs::remove_all(root_); }

  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(root_ / name) << text;
  }
  std::string Read(const std::string& name) const {
    std::ifstream file(root_ / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string Path(const std::string& name) const { return (root_ / name).string(); }

  ScenarioResult Result(const Scenario& scenario) const {
    ScenarioResult result = result_;
    result.name = scenario.name;
    result.mesh = scenario.mesh;
    result.scenario = &scenario;
    return result;
  }

  Call Sumonce(std::vector<std::string> arguments) {
    std::ostringstream out, err;
    Io io{out, err};
    io.err_is_terminal = err_is_terminal_;
    io.out_is_terminal = out_is_terminal_;
    io.no_color = no_color_;
    arguments.insert(arguments.begin(), "sumonce");
    const int status = RunCommandLine(arguments, io, engine_);
    return {status, out.str(), err.str()};
  }

  std::vector<std::string> RanNames() const {
    std::vector<std::string> names;
    for (const Scenario& scenario : ran_) names.push_back(scenario.name);
    return names;
  }

  fs::path root_ = fs::path(::testing::TempDir()) /
                   (std::string("sumonce_cli_") +
                    ::testing::UnitTest::GetInstance()->current_test_info()->name());
  Engine engine_;
  ScenarioResult result_;  // what the double answers, but for name and mesh
  std::vector<Scenario> ran_;
  std::vector<RunnerOptions> options_;
  bool err_is_terminal_ = false;
  bool out_is_terminal_ = false;
  bool no_color_ = false;
};

TEST_F(CommandLine, PassIsZeroAndTheLastLineCounts) {
  const Call call = Sumonce({"run", root_.string()});
  EXPECT_EQ(call.status, 0) << call.err;
  EXPECT_EQ(call.out,
            "PASS  area/one  tp=2  0 us\nPASS  area/two  tp=2  0 us\n"
            "sumonce: 2 passed, 0 failed, 0 skipped\n");
  EXPECT_EQ(call.err, "");
}

TEST_F(CommandLine, FailureIsOne) {
  result_.outcome = RunOutcome::kFail;
  EXPECT_EQ(Sumonce({"run", root_.string()}).status, 1);
  EXPECT_EQ(Sumonce({"prove", root_.string()}).status, 1);
}

TEST_F(CommandLine, InternalErrorIsThreeEvenBesideFailures) {
  result_.outcome = RunOutcome::kFail;
  result_.internal_error = true;
  EXPECT_EQ(Sumonce({"run", root_.string()}).status, 3);
}

TEST_F(CommandLine, ExceptionIsThreeWithItsMessage) {
  engine_.run = [](const Scenario&, const RunnerOptions&) -> std::vector<ScenarioResult> {
    throw std::runtime_error("out of reach");
  };
  const Call call = Sumonce({"run", root_.string()});
  EXPECT_EQ(call.status, 3);
  EXPECT_EQ(call.err, "sumonce: internal error: out of reach\n");
}

TEST_F(CommandLine, AllSkippedIsSeventySeven) {
  result_.outcome = RunOutcome::kSkip;
  EXPECT_EQ(Sumonce({"run", root_.string()}).status, 77);
}

// A real model's size: 40 layers of hidden size 4096. It is not begun, and the others run.
TEST_F(CommandLine, ASimulationBeyondTheMemoryLimitIsASkip) {
  std::string large = "# A real size.\nmesh { tp: 2 }\nmodel { vocab: 32000 hidden: 4096 ";
  for (int i = 0; i < 40; ++i)
    large += "layer { self_attention { num_heads: 32 head_dim: 128 } mlp { ffn: 16384 } }\n";
  Write("area/two.textproto", large + "}\nfinalizer: \"megatron_core_0_16\"\n");
  const Call call = Sumonce({"run", root_.string(), "--memory-limit", "16G"});
  EXPECT_EQ(call.status, 0) << call.err;
  EXPECT_THAT(RanNames(), ElementsAre("area/one"));
  EXPECT_THAT(call.out, HasSubstr("SKIP  area/two  its simulation would take about "));
  EXPECT_THAT(call.out, HasSubstr("more than the limit of 16 GiB (--memory-limit): sumonce prove "
                                  "judges it without numbers"));
  EXPECT_THAT(call.out, EndsWith("sumonce: 1 passed, 0 failed, 1 skipped\n"));
  EXPECT_EQ(Sumonce({"run", Path("area/two.textproto"), "--memory-limit", "16G"}).status, 77);
  EXPECT_EQ(Sumonce({"run", Path("area/two.textproto"), "--memory-limit", "1000000G"}).status, 0);
  EXPECT_EQ(Sumonce({"run", root_.string(), "--memory-limit", "much"}).status, 4);
  EXPECT_EQ(Sumonce({"prove", Path("area/two.textproto")}).status, 0);
}

// What a capture cannot say is told, and the last line counts it; nothing saved at all is a skip.
TEST_F(CommandLine, CapturesThatCannotBeSavedAreCounted) {
  Write("area/one.textproto",
        "# Fewer key-value groups than ranks.\nmesh { tp: 4 }\nmodel { layer { self_attention { "
        "num_heads: 4 num_query_groups: 2 } } }\nfinalizer: \"megatron_core_0_16\"\n");
  const std::string saved = Path("saved");
  const Call both = Sumonce({"run", Path("area"), "--save-capture", saved});
  EXPECT_EQ(both.status, 0) << both.err;
  EXPECT_THAT(both.err, HasSubstr("area/one is not saved: "));
  EXPECT_THAT(both.err, HasSubstr("2 ranks of tp hold the same slice"));
  EXPECT_THAT(both.out, EndsWith("sumonce: 2 passed, 0 failed, 0 skipped, 1 capture saved, 1 not "
                                 "saved\n"));
  EXPECT_TRUE(fs::exists(saved + "/area/two/step-0001/rank-00001.safetensors"));
  EXPECT_EQ(Sumonce({"run", Path("area/one.textproto"), "--save-capture", saved}).status, 77);
}

// The engine records calls only for a report that shows them; a proof has none.
TEST_F(CommandLine, CallsAreRecordedForATraceOnly) {
  EXPECT_EQ(Sumonce({"run", root_.string(), "--format", "json"}).status, 0);
  EXPECT_FALSE(options_.back().record_calls);
  const Call call = Sumonce({"run", root_.string(), "--format", "trace:" + Path("t.json")});
  EXPECT_EQ(call.status, 0) << call.err;
  EXPECT_TRUE(options_.back().record_calls);
  EXPECT_THAT(Read("t.json"), HasSubstr("\"traceEvents\""));
  const Call proof = Sumonce({"prove", root_.string(), "--format", "trace"});
  EXPECT_EQ(proof.status, 4);
  EXPECT_THAT(proof.err, HasSubstr("a proof runs no ranks and has no calls to show"));
}

// The scenario that runs is finished and reported, the next does not begin, and the handlers are
// the old ones again.
TEST_F(CommandLine, InterruptFinishesTheScenarioAndIsTwo) {
  const auto run = engine_.run;
  for (const int signal : {SIGINT, SIGTERM}) {
    ran_.clear();
    std::signal(signal, IgnoreSignal);
    engine_.run = [&](const Scenario& scenario, const RunnerOptions& options) {
      std::raise(signal);
      return run(scenario, options);
    };
    const Call call = Sumonce({"run", root_.string()});
    EXPECT_EQ(call.status, 2);
    EXPECT_THAT(RanNames(), ElementsAre("area/one"));
    EXPECT_THAT(call.out, StartsWith("PASS  area/one"));
    EXPECT_THAT(call.out, EndsWith("\nsumonce: 1 passed, 0 failed, 0 skipped\n"));
    EXPECT_EQ(std::signal(signal, SIG_DFL), IgnoreSignal);
  }
}

// A background job of a shell ignores SIGINT: what is typed at the terminal is for others.
TEST_F(CommandLine, IgnoredSignalStaysIgnored) {
  const auto run = engine_.run;
  std::signal(SIGINT, SIG_IGN);
  engine_.run = [&](const Scenario& scenario, const RunnerOptions& options) {
    std::raise(SIGINT);
    return run(scenario, options);
  };
  EXPECT_EQ(Sumonce({"run", root_.string()}).status, 0);
  EXPECT_EQ(ran_.size(), 2u);
  EXPECT_EQ(std::signal(SIGINT, SIG_DFL), SIG_IGN);
}

TEST_F(CommandLine, NothingSelectedIsFiveWithASuggestion) {
  const Call call = Sumonce({"run", root_.string(), "--filter", "area/oen"});
  EXPECT_EQ(call.status, 5);
  EXPECT_THAT(call.err,
              HasSubstr("'area/oen' matches none of 2 scenarios; did you mean 'area/one'?"));
  fs::create_directories(root_ / "empty");
  EXPECT_EQ(Sumonce({"run", Path("empty")}).status, 5);
}

// All mistakes of all files, before anything runs.
TEST_F(CommandLine, MistakesOfAllFilesArePrintedAndNothingRuns) {
  Write("area/one.textproto", "mesh { tp: 0 }\nsteps: -1\n");
  Write("area/three.textproto", "meh { }\n");
  for (const char* verb : {"run", "prove", "validate"}) {
    const Call call = Sumonce({verb, root_.string(), Path("gone")});
    EXPECT_EQ(call.status, 4) << verb;
    EXPECT_THAT(call.err, HasSubstr("area/one.textproto:1:")) << verb;
    EXPECT_THAT(call.err, HasSubstr("area/one.textproto:2:")) << verb;
    EXPECT_THAT(call.err, HasSubstr("area/three.textproto:1:1: error: ")) << verb;
    EXPECT_THAT(call.err, HasSubstr("gone: error: ")) << verb;
    EXPECT_EQ(call.out, "") << verb;
  }
  EXPECT_THAT(ran_, IsEmpty());
}

// A file's or an argument's escape sequences do not reach the terminal.
TEST_F(CommandLine, ControlCharactersAreWrittenOut) {
  const Call call = Sumonce({"run", root_.string(), "--filter", "\x1b[31m"});
  EXPECT_EQ(call.status, 5);
  EXPECT_THAT(call.err, HasSubstr("--filter '\\x1b[31m' matches none"));
  EXPECT_THAT(call.err, ::testing::Not(HasSubstr("\x1b")));
}

TEST_F(CommandLine, ValidFilesAreCounted) {
  const Call call = Sumonce({"validate", root_.string()});
  EXPECT_EQ(call.status, 0) << call.err;
  EXPECT_EQ(call.out, "sumonce: 2 valid, no mistakes\n");
}

TEST_F(CommandLine, ListShowsNameAndFirstSentence) {
  Write("area/three.textproto",
        "# proto-file: x\n# A sentence of 0.12 that\n# goes on. And another.\nmesh { }");
  Write("area/two.textproto", "mesh { }");
  const Call call = Sumonce({"list", root_.string()});
  EXPECT_EQ(call.status, 0);
  EXPECT_EQ(call.out,
            "area/one    What this scenario is about.\n"
            "area/three  A sentence of 0.12 that goes on.\narea/two\n");
}

TEST_F(CommandLine, UnknownWordsAreUsageErrorsWithSuggestions) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"runn"}, "unknown verb 'runn'; did you mean 'run'?"},
      {{"--versoin"}, "unknown flag '--versoin'; did you mean '--version'?"},
      {{"run", "--fliter", "x"}, "unknown flag '--fliter'; did you mean '--filter'?"},
      {{"run", "--fliter=x"}, "unknown flag '--fliter'; did you mean '--filter'?"},
      {{"run", "--executor", "fibres"}, "did you mean 'fibers'?"},
      {{"run", "--comm", "in_proces"}, "did you mean 'in_process'?"},
      {{"run", "--timeout", "0"}, "0: expected 1 to 86400 seconds"},
      {{"run", "--reruns", "100001"}, "100001: expected at most 100000"},
      {{"run", "--format", "jsom"}, "did you mean 'json'?"},
      {{"run", "--color", "allways"}, "did you mean 'always'?"},
      {{"run", "--tp", "2,x"}, "'2,x': expected sizes from 1, like 4 or 2,4,8"},
      {{"run", "--tp", "0"}, "'0': expected sizes from 1"},
      {{"run", "--seed", "-1"}, "'-1': expected a number from 0"},
      {{"run", "--schedule", "x"}, "--schedule: 'x': expected a number"},
      {{"run", "--schedule", "3", "--executor", "threads"}, "expected --executor fibers"},
      {{"run", "--format", "json:"}, "a path after ':'"},
      {{"run", "--format", "json", "--format", "console"}, "only one report fits on stdout"},
      {{"run", "--filter"}, "--filter"},
      {{}, "a verb is missing"},
  };
  for (const auto& [arguments, message] : cases) {
    const Call call = Sumonce(arguments);
    EXPECT_EQ(call.status, 4) << message;
    EXPECT_THAT(call.err, HasSubstr(message));
    EXPECT_EQ(call.out, "") << message;
  }
  EXPECT_THAT(ran_, IsEmpty());
}

TEST_F(CommandLine, HelpStartsWithTwoExamples) {
  for (const char* verb :
       {"", "run", "prove", "list", "validate", "lint", "inspect", "diff", "doctor"}) {
    const Call call = Sumonce(*verb == '\0' ? std::vector<std::string>{"--help"}
                                            : std::vector<std::string>{verb, "--help"});
    EXPECT_EQ(call.status, 0) << verb;
    EXPECT_THAT(call.out, StartsWith("Examples:\n  sumonce ")) << verb;
    EXPECT_THAT(call.out.substr(11), HasSubstr("\n  sumonce ")) << verb;
    EXPECT_EQ(call.err, "") << verb;
  }
  EXPECT_THAT(Sumonce({"run", "--help"}).out, HasSubstr("--schedule"));
}

TEST_F(CommandLine, VersionNamesBuildAndRunTimeLibraries) {
  const Call call = Sumonce({"--version"});
  EXPECT_EQ(call.status, 0);
  EXPECT_THAT(call.out, StartsWith("sumonce "));
  for (const char* library : {"protobuf", "abseil", "boost.context", "sleef"})
    EXPECT_THAT(call.out, ::testing::ContainsRegex(std::string(library) + " +[^ ]*[0-9]\\.?[0-9]"));
  EXPECT_THAT(Sumonce({"doctor"}).out, ::testing::ContainsRegex("in_process +can run here"));
}

// Sizes multiply, the name says which, and the scenario that is run has them.
TEST_F(CommandLine, AxisFlagsRunTheProductOfTheirSizes) {
  const Call call = Sumonce({"run", Path("area/one.textproto"), "--tp", "2,4", "--dp", "1,2"});
  EXPECT_EQ(call.status, 0) << call.err;
  EXPECT_THAT(RanNames(), ElementsAre("area/one[tp=2,dp=1]", "area/one[tp=2,dp=2]",
                                      "area/one[tp=4,dp=1]", "area/one[tp=4,dp=2]"));
  EXPECT_EQ(ran_[3].mesh.tp, 4);
  EXPECT_EQ(ran_[3].mesh.dp, 2);
  EXPECT_EQ(ran_[3].data.sequence, ran_[0].data.sequence);
}

TEST_F(CommandLine, OneAxisHasSizesFromOneFlag) {
  for (const std::vector<std::string>& both :
       {std::vector<std::string>{"--at", "tp=2", "--tp", "4"},
        {"--tp", "4", "--at", "tp=2"},
        {"--at", "tp=2,tp=4"}}) {
    std::vector<std::string> arguments = {"prove", Path("area/one.textproto")};
    arguments.insert(arguments.end(), both.begin(), both.end());
    const Call call = Sumonce(arguments);
    EXPECT_EQ(call.status, 4);
    EXPECT_THAT(call.err, HasSubstr("tp has a size already"));
    EXPECT_TRUE(ran_.empty());
  }
}

TEST_F(CommandLine, FlagsReachTheRunner) {
  const std::string file = Path("area/one.textproto");
  Sumonce({"run", file, "--seed", "18446744073709551615", "--executor", "threads", "--export-dir",
           "there", "--force"});
  ASSERT_EQ(options_.size(), 1u);
  EXPECT_EQ(ran_[0].seed, 18446744073709551615u);
  EXPECT_EQ(options_[0].executor.kind, ExecutorKind::kThreads);
  EXPECT_EQ(options_[0].export_dir, "there");
  EXPECT_TRUE(options_[0].overwrite);
}

// Pasting the replay line of a failure runs the same scenario in the same way.
TEST_F(CommandLine, ReplayLineRunsTheSame) {
  result_.outcome = RunOutcome::kFail;
  const std::string file = Path("area/one.textproto");
  const Call first =
      Sumonce({"run", file, "--tp", "4", "--seed", "9", "--schedule", "3", "--comm", "fake_nccl"});
  const size_t at = first.out.find("  reproduce: sumonce ");
  ASSERT_NE(at, std::string::npos) << first.out;
  std::istringstream words(first.out.substr(at + 21, first.out.find('\n', at) - at - 21));
  const std::vector<std::string> arguments{std::istream_iterator<std::string>(words), {}};
  EXPECT_THAT(arguments, ElementsAre("run", file, "--tp", "4", "--seed", "9", "--schedule", "3",
                                     "--comm", "fake_nccl"));
  EXPECT_EQ(Sumonce(arguments).out, first.out);
}

TEST_F(CommandLine, ReplayLineQuotesWhatAShellWouldSplit) {
  result_.outcome = RunOutcome::kFail;
  Write("area/it's one.textproto", kScenario);
  const Call call = Sumonce({"run", Path("area/it's one.textproto")});
  EXPECT_THAT(call.out, HasSubstr("run '" + Path("area/it'\\''s one.textproto") + "' --seed 7"));
}

// Found before anything runs, not after the second report would have replaced the first.
TEST_F(CommandLine, OneFileForTwoReportsIsAUsageError) {
  const std::string same = "json:" + Path("report.json");
  const Call call = Sumonce({"run", root_.string(), "--format", same, "--format", same});
  EXPECT_EQ(call.status, 4);
  EXPECT_THAT(call.err, HasSubstr("report.json is named twice"));
  EXPECT_THAT(RanNames(), IsEmpty());
}

TEST_F(CommandLine, ReportNeverTakesThePlaceOfItsScenario) {
  const std::string file = Path("area/one.textproto");
  const std::string before = Read("area/one.textproto");
  const Call call = Sumonce({"run", file, "--format", "json:" + file, "--force"});
  EXPECT_EQ(call.status, 4);
  EXPECT_THAT(call.err, HasSubstr("area/one.textproto: is a scenario of this run"));
  EXPECT_EQ(Read("area/one.textproto"), before);
  EXPECT_THAT(ran_, IsEmpty());
}

TEST_F(CommandLine, ReportFileIsNeverOverwrittenWithoutForce) {
  const std::string file = Path("area/one.textproto");
  Write("report.json", "mine");
  const Call refused = Sumonce({"run", file, "--format", "json:" + Path("report.json")});
  EXPECT_EQ(refused.status, 4);
  EXPECT_THAT(refused.err, HasSubstr("report.json: is there already"));
  EXPECT_EQ(Read("report.json"), "mine");
  EXPECT_THAT(ran_, IsEmpty());

  EXPECT_EQ(Sumonce({"run", file, "--format", "json:" + Path("report.json"), "--force"}).status, 0);
  EXPECT_EQ(nlohmann::json::parse(Read("report.json"))["passed"], 1);
  EXPECT_FALSE(fs::exists(Path("report.json.partial")));
}

TEST_F(CommandLine, ReportThatCannotBeWrittenIsKnownBeforeAnythingRuns) {
  for (const std::string& path : {root_.string(), Path("no/such/folder.json")}) {
    const Call call = Sumonce({"run", root_.string(), "--format", "json:" + path});
    EXPECT_EQ(call.status, 4);
    EXPECT_THAT(call.err, HasSubstr(path + ": "));
  }
  EXPECT_THAT(ran_, IsEmpty());
}

// A file that appeared while scenarios ran is somebody else's.
TEST_F(CommandLine, ReportDoesNotReplaceAFileThatAppearedMeanwhile) {
  const auto run = engine_.run;
  engine_.run = [&](const Scenario& scenario, const RunnerOptions& options) {
    Write("report.json", "mine");
    return run(scenario, options);
  };
  const Call call =
      Sumonce({"run", Path("area/one.textproto"), "--format", "json:" + Path("report.json")});
  EXPECT_EQ(call.status, 4);
  EXPECT_EQ(Read("report.json"), "mine");
  EXPECT_FALSE(fs::exists(Path("report.json.partial")));
}

TEST_F(CommandLine, SeveralReportsAtOnceAndStdoutHoldsOnlyData) {
  const Call both =
      Sumonce({"run", root_.string(), "--format", "json", "--format", "console:" + Path("text")});
  EXPECT_EQ(both.status, 0) << both.err;
  EXPECT_EQ(nlohmann::json::parse(both.out)["scenarios"].size(), 2u);
  EXPECT_THAT(Read("text"), EndsWith("sumonce: 2 passed, 0 failed, 0 skipped\n"));
  EXPECT_EQ(both.err, "sumonce: 2 passed, 0 failed, 0 skipped\n");
}

TEST_F(CommandLine, ColorOnATerminalUnlessToldOtherwise) {
  const std::string file = Path("area/one.textproto");
  EXPECT_THAT(Sumonce({"run", file}).out, Not(HasSubstr("\033[")));
  EXPECT_THAT(Sumonce({"run", file, "--color", "always"}).out, HasSubstr("\033["));
  out_is_terminal_ = true;
  EXPECT_THAT(Sumonce({"run", file}).out, HasSubstr("\033["));
  EXPECT_THAT(Sumonce({"run", file, "--color", "never"}).out, Not(HasSubstr("\033[")));
  no_color_ = true;
  EXPECT_THAT(Sumonce({"run", file}).out, Not(HasSubstr("\033[")));
  EXPECT_THAT(Sumonce({"run", file, "--color", "always"}).out, HasSubstr("\033["));
}

TEST_F(CommandLine, ProgressIsShownOnATerminalAndGoneAtTheEnd) {
  err_is_terminal_ = true;
  const Call call = Sumonce({"run", root_.string()});
  EXPECT_THAT(call.err, HasSubstr("[1/2] area/one"));
  EXPECT_THAT(call.err, EndsWith("\r\033[K"));
  EXPECT_THAT(call.err, Not(HasSubstr("\n")));
}

TEST_F(CommandLine, StdoutThatCannotBeWrittenIsAnError) {
  std::ostringstream out, err;
  out.setstate(std::ios::badbit);
  Io io{out, err};
  EXPECT_EQ(RunCommandLine({"sumonce", "run", root_.string()}, io, engine_), 4);
  EXPECT_EQ(err.str(), "sumonce: error: cannot write to standard output\n");
}

}  // namespace
}  // namespace sumonce
