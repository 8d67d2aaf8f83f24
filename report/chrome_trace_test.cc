// The trace of runs: what Perfetto needs of it (valid JSON, slices that nest, arrows with both ends
// inside slices), and that it holds every call of every rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "report/formats.h"
#include "sim/scenario_reader.h"
#include "sim/simulator.h"
#include "spmd/abstract_tape.h"

namespace sumonce {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAreArray;

Scenario ReadShipped(const std::string& name) {
  ReadResult read =
      ReadScenario(absl::StrCat(SUMONCE_SOURCE_DIR, "/scenarios/", name, ".textproto"), name, {});
  EXPECT_TRUE(read.ok());
  return read.scenario;
}

// A clock that counts its readings: on fibers the whole trace repeats.
std::vector<RankCalls> CallsOfRun(const Scenario& scenario, std::span<const Edit> edits,
                                  ExecutorKind executor = ExecutorKind::kFibers) {
  Model model(EffectiveModel(scenario));
  const absl::StatusOr<Weights> start = StartWeights(scenario, model.params());
  EXPECT_TRUE(start.ok()) << start.status();
  std::atomic<int64_t> ticks = 0;
  SimOptions options;
  options.executor.kind = executor;
  options.now_us = [&ticks] { return static_cast<double>(ticks++); };
  return Simulate(scenario, edits, *start, options).calls;
}

ScenarioResult ResultWith(const std::string& name, std::vector<RankCalls> calls) {
  ScenarioResult result;
  result.name = name;
  result.calls = std::make_shared<const std::vector<RankCalls>>(std::move(calls));
  return result;
}

std::string TraceText(const std::vector<ScenarioResult>& results) {
  std::ostringstream out;
  const auto reporter = FindReportFormat("trace")->make(out, {});
  reporter->Begin(static_cast<int>(results.size()));
  for (const ScenarioResult& result : results) reporter->OnResult(result);
  reporter->End({});
  return out.str();
}

json EventsOf(const std::vector<ScenarioResult>& results) {
  return json::parse(TraceText(results))["traceEvents"];
}

using Track = std::pair<int, int>;  // pid, tid
Track TrackOf(const json& event) { return {event["pid"], event["tid"]}; }
// Times have three decimals: whole nanoseconds.
int64_t Nanoseconds(const json& us) { return std::llround(us.get<double>() * 1000); }

struct Interval {
  int64_t begin = 0;
  int64_t end = 0;
};
std::map<Track, std::vector<Interval>> SlicesOf(const json& events) {
  std::map<Track, std::vector<Interval>> slices;
  for (const json& event : events) {
    if (event["ph"] != "X") continue;
    const int64_t begin = Nanoseconds(event["ts"]);
    slices[TrackOf(event)].push_back({begin, begin + Nanoseconds(event["dur"])});
  }
  return slices;
}

void ExpectNothingOverlaps(const json& events) {
  for (auto& [track, slices] : SlicesOf(events)) {
    std::vector<Interval> sorted = slices;
    std::sort(sorted.begin(), sorted.end(),
              [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
    for (size_t i = 0; i + 1 < sorted.size(); ++i) {
      EXPECT_LT(sorted[i].begin, sorted[i].end);
      EXPECT_LE(sorted[i].end, sorted[i + 1].begin)
          << "track " << track.first << "," << track.second;
    }
  }
}

// Every arrow has one begin, one end, and each of its points lies inside a slice, in time's order.
// Returns how many arrows there are, by number of points.
std::map<size_t, int> ExpectArrowsConnect(const json& events) {
  const auto slices = SlicesOf(events);
  std::map<int, std::vector<json>> flows;
  for (const json& event : events) {
    if (event["ph"] == "s" || event["ph"] == "t" || event["ph"] == "f")
      flows[event["id"]].push_back(event);
  }
  std::map<size_t, int> by_points;
  for (const auto& [id, points] : flows) {
    ++by_points[points.size()];
    EXPECT_GE(points.size(), 2u);
    std::set<Track> tracks;
    for (size_t i = 0; i < points.size(); ++i) {
      EXPECT_EQ(points[i]["ph"], i == 0 ? "s" : i + 1 == points.size() ? "f" : "t");
      EXPECT_EQ(points[i]["name"], points[0]["name"]);
      const int64_t at = Nanoseconds(points[i]["ts"]);
      if (i > 0) EXPECT_LE(Nanoseconds(points[i - 1]["ts"]), at);
      int inside = 0;
      for (const Interval& slice : slices.at(TrackOf(points[i])))
        inside += slice.begin <= at && at < slice.end;
      EXPECT_EQ(inside, 1) << points[i];
      tracks.insert(TrackOf(points[i]));
    }
    EXPECT_EQ(tracks.size(), points.size()) << "a point for each rank";
  }
  return by_points;
}

// Each collective has a slice on every member of its group, with the same arguments.
void ExpectEveryMemberIsThere(const json& events) {
  std::map<std::tuple<std::string, int64_t>, std::vector<json>> parts;
  for (const json& event : events) {
    if (event["ph"] == "X")
      parts[{event["args"]["group"], event["args"]["ordinal"]}].push_back(event);
  }
  for (const auto& [key, slices] : parts) {
    const std::string& group = std::get<0>(key);
    const auto members = std::count(group.begin(), group.end(), ' ');
    EXPECT_EQ(static_cast<int64_t>(slices.size()), members) << group;
    std::set<int> processes;
    for (const json& slice : slices) {
      processes.insert(slice["pid"].get<int>());
      for (const char* field : {"count", "bytes", "dtype", "reduction", "status"})
        EXPECT_EQ(slice["args"].value(field, json()), slices[0]["args"].value(field, json()));
      EXPECT_EQ(slice["name"], slices[0]["name"]);
      EXPECT_EQ(slice["args"]["status"], "OK");
    }
    EXPECT_EQ(processes.size(), slices.size());
  }
}

TEST(ChromeTrace, HoldsRealRunsSoundly) {
  for (const char* name : {"lora/row_flag_missing", "gdn/gamma_flagged_dp2", "dp/mean_of_cells",
                           "transport/wrong_group", "transport/late_rank"}) {
    const Scenario scenario = ReadShipped(name);
    for (ExecutorKind executor : {ExecutorKind::kFibers, ExecutorKind::kThreads}) {
      SCOPED_TRACE(name);
      const auto calls = CallsOfRun(scenario, scenario.defects, executor);
      const json events = EventsOf({ResultWith(name, calls)});
      ExpectNothingOverlaps(events);
      const auto arrows = ExpectArrowsConnect(events);
      EXPECT_FALSE(arrows.empty());
      if (std::string_view(name) != "transport/wrong_group") ExpectEveryMemberIsThere(events);
    }
  }
}

// The labels of every call that the simulation makes of a sound scenario on each rank: one per
// group, per communication of the model in each direction, per call of the finalizer.
std::vector<std::string> ExpectedLabels(const Scenario& scenario) {
  const Mesh mesh = *Mesh::Create(scenario.mesh);
  std::vector<std::string> labels;
  for (const Group& group : {mesh.GroupOf(Axis::kTp), mesh.GroupOf(Axis::kDp),
                             mesh.GroupOf({Axis::kDp, Axis::kTp}, "tp_dp")}) {
    if (mesh.size(group) > 1) labels.push_back(group.name);
  }
  Model model(EffectiveModel(scenario));
  AbstractTape tape(mesh);
  const BatchInputs inputs = {.sequence = scenario.data.sequence,
                              .batch = scenario.data.micro_batch * scenario.mesh.dp};
  tape.Backward(model.Forward(tape, inputs, Scale()));
  const auto moves = [](Map map) {
    return map == Map::kSum || map == Map::kAvg || map == Map::kMax || map == Map::kAllGather ||
           map == Map::kReduceScatter || map == Map::kAllToAll;
  };
  for (int microbatch = 0; microbatch < scenario.data.microbatches; ++microbatch) {
    for (const Tape::Node& node : tape.nodes()) {
      if (node.kind != Tape::Kind::kCollective || mesh.size(node.collective.group) == 1) continue;
      if (moves(node.collective.forward.map)) labels.push_back(node.name);
      if (node.needs_grad && moves(node.collective.backward.map))
        labels.push_back(node.name + " backward");
    }
  }
  const FinalizePreset preset = *Finalizers().Find(scenario.finalizer);
  for (const FinalizeStep& step : preset.steps) {
    for (const FinalizeCall& call :
         CallsOf(step, EffectiveFinalizeConfig(scenario), mesh, model.params().all()))
      labels.push_back(call.label);
  }
  return labels;
}

TEST(ChromeTrace, HoldsEveryCallOfTheSimulation) {
  for (const char* name : {"transport/dropped_activation", "transport/late_rank",
                           "lora/row_flag_missing", "accumulation/lost_microbatch"}) {
    const Scenario scenario = ReadShipped(name);
    const std::vector<std::string> expected = ExpectedLabels(scenario);
    EXPECT_GT(expected.size(), 5u);
    std::map<int, std::vector<std::string>> labels;
    for (const json& event : EventsOf({ResultWith(name, CallsOfRun(scenario, {}))})) {
      if (event["ph"] == "X") labels[event["pid"]].push_back(event["name"]);
    }
    EXPECT_EQ(labels.size(), static_cast<size_t>((*Mesh::Create(scenario.mesh)).world_size()));
    for (const auto& [rank, made] : labels)
      EXPECT_THAT(made, UnorderedElementsAreArray(expected)) << name << ", rank " << rank;
  }
}

// SUMONCE_WRITE_TRACE=<path> writes the file anew.
TEST(ChromeTrace, EqualsTheRecordedOne) {
  const Scenario scenario = ReadShipped("transport/dropped_contribution");
  const std::string text =
      TraceText({ResultWith(scenario.name, CallsOfRun(scenario, scenario.defects))});
  if (const char* path = std::getenv("SUMONCE_WRITE_TRACE")) std::ofstream(path) << text;
  std::ifstream in(SUMONCE_TEST_DATA "/trace/dropped_contribution.json");
  std::stringstream recorded;
  recorded << in.rdbuf();
  EXPECT_EQ(text, recorded.str());
}

RecordedCall CallAt(CallKind kind, double start_us, double end_us, int64_t ordinal, int root = 0) {
  RecordedCall call;
  call.kind = kind;
  call.label = absl::StrCat("call at ", start_us);
  call.count = 3;
  call.bytes = 24;
  call.root = root;
  call.ordinal = ordinal;
  call.start_us = start_us;
  call.end_us = end_us;
  call.started = static_cast<int64_t>(start_us);
  return call;
}

std::vector<RankCalls> TwoRanks() {
  const RecordedGroup world = {.id = "world", .name = "world", .world_ranks = {0, 1}};
  return {{.rank = 0, .groups = {world}, .calls = {}}, {.rank = 1, .groups = {world}, .calls = {}}};
}

// A message's arrow goes from where its Send began to where its Recv ended, though that began
// first.
TEST(ChromeTrace, MessagesPointFromSendToRecv) {
  std::vector<RankCalls> ranks = TwoRanks();
  ranks[0].calls = {CallAt(CallKind::kSend, 10, 20, 0, 1), CallAt(CallKind::kSend, 30, 40, 1, 1)};
  ranks[1].calls = {CallAt(CallKind::kRecv, 5, 15, 0, 0), CallAt(CallKind::kRecv, 31, 41, 1, 0)};
  const json events = EventsOf({ResultWith("messages", ranks)});
  EXPECT_EQ(ExpectArrowsConnect(events), (std::map<size_t, int>{{2, 2}}));
  std::vector<std::pair<int, double>> points;
  for (const json& event : events) {
    if (event["ph"] == "s" || event["ph"] == "f")
      points.push_back({event["pid"], event["ts"].get<double>()});
  }
  EXPECT_EQ(points,
            (std::vector<std::pair<int, double>>{{0, 10}, {1, 14.999}, {0, 30}, {1, 40.999}}));
}

// Calls in flight at once lie on tracks of their own; one that Start refused has no arrow.
TEST(ChromeTrace, OverlappingCallsLieSideBySide) {
  std::vector<RankCalls> ranks = TwoRanks();
  for (RankCalls& rank : ranks) {
    rank.calls = {CallAt(CallKind::kBarrier, 1, 9, 0), CallAt(CallKind::kBarrier, 2, 7, 1),
                  CallAt(CallKind::kBarrier, 8, 10, 2), CallAt(CallKind::kBarrier, 12, 13, -1)};
    rank.calls.back().status = absl::InvalidArgumentError("said \"no\"\n");
  }
  const json events = EventsOf({ResultWith("overlap", ranks)});
  ExpectNothingOverlaps(events);
  EXPECT_EQ(ExpectArrowsConnect(events), (std::map<size_t, int>{{2, 3}}));
  std::set<std::string> tracks;
  std::string status;
  for (const json& event : events) {
    if (event["name"] == "thread_name") tracks.insert(event["args"]["name"].get<std::string>());
    if (event["ph"] == "X") status = event["args"]["status"].get<std::string>();
  }
  EXPECT_EQ(tracks, (std::set<std::string>{"world [0 1]", "world [0 1] #2"}));
  EXPECT_THAT(status, HasSubstr("said \"no\"\n"));
}

// Scenarios lie one behind the other on processes of their own; without calls there is nothing.
TEST(ChromeTrace, RunsFollowEachOther) {
  std::vector<RankCalls> ranks = TwoRanks();
  for (RankCalls& rank : ranks) rank.calls = {CallAt(CallKind::kBarrier, 1, 9, 0)};
  ranks[1].dropped = 17;
  ScenarioResult without;
  without.name = "proved only";
  const json events = EventsOf({ResultWith("first", ranks), without, ResultWith("second", ranks)});
  std::map<int, double> begins;
  std::map<int, std::string> names;
  for (const json& event : events) {
    if (event["ph"] == "X") begins[event["pid"]] = event["ts"];
    if (event["name"] == "process_name") names[event["pid"]] = event["args"]["name"];
  }
  EXPECT_EQ(begins, (std::map<int, double>{{0, 1}, {1, 1}, {2, 1010}, {3, 1010}}));
  EXPECT_EQ(names[1], "first, rank 1 (17 calls beyond the limit are not shown)");
  EXPECT_EQ(names[2], "second, rank 0");
  EXPECT_EQ(json::parse(TraceText({}))["traceEvents"], json::array());
}

// A run that ends early shows how far each rank came, and with what each call ended.
TEST(ChromeTrace, AFailedRunShowsItsEnd) {
  const Scenario scenario = ReadShipped("transport/killed_rank");
  const json events = EventsOf({ResultWith("killed", CallsOfRun(scenario, scenario.defects))});
  ExpectNothingOverlaps(events);
  ExpectArrowsConnect(events);
  int ended = 0;
  for (const json& event : events) {
    if (event["ph"] == "X" && event["args"]["status"] != "OK") {
      EXPECT_THAT(event["args"]["status"].get<std::string>(), HasSubstr("world rank 2 ended"));
      ++ended;
    }
  }
  EXPECT_GE(ended, 1);
}

}  // namespace
}  // namespace sumonce
