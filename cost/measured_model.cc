#include "cost/measured_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "cost/traffic.h"
#include "nlohmann/json.hpp"

namespace sumonce {
namespace {

constexpr int64_t kMainGradBytes = 4;  // float32
constexpr int kFileVersion = 1;

constexpr char kExpected[] = "; expected a cost model of sumonce bench --model-out: make it anew";

using Json = nlohmann::json;

// What the file must have under `key`; std::invalid_argument names it.
template <typename T>
T Get(const Json& json, const char* key) {
  if (!json.is_object() || !json.contains(key))
    throw std::invalid_argument(absl::StrCat("\"", key, "\" is missing"));
  try {
    return json[key].get<T>();
  } catch (const Json::exception&) {
    throw std::invalid_argument(
        absl::StrCat("\"", key, "\": ", json[key].type_name(), " is of another kind"));
  }
}

std::string AlgorithmWord(CostAlgorithm algorithm) { return std::string(Name(algorithm)); }

using Key = std::tuple<StepPhase, CallKind, std::string>;

std::map<Key, TrafficLine> ByKey(std::vector<TrafficLine> lines) {
  std::map<Key, TrafficLine> by_key;
  for (TrafficLine& line : lines) by_key[{line.phase, line.call, line.group}] = std::move(line);
  return by_key;
}

CostEstimate CostOfCall(const TrafficLine& line, int64_t elements, const CostModel& model,
                        int ranks) {
  return Predict(model, ranks > 0 ? ranks : line.ranks, elements * kMainGradBytes);
}

// Calls of other sizes that take each other's place: what differs is the transfer, and the error is
// that of the difference.
void Replace(const CostEstimate& old_call, const CostEstimate& new_call, CureCost& cost) {
  const double difference = new_call.seconds - old_call.seconds;
  cost.seconds += difference;
  if (new_call.seconds > 0)
    cost.error += std::abs(difference) * (new_call.high / new_call.seconds - 1);
}

// `added`: calls that only the cured run makes; `removed`: that only the other makes.
void AddLine(const TrafficLine& line, const std::vector<int64_t>& added,
             const std::vector<int64_t>& removed, const CostModel& model, int ranks,
             CureCost& cost) {
  for (size_t i = 0; i < std::max(added.size(), removed.size()); ++i) {
    CostEstimate now, before;
    if (i < added.size()) {
      now = CostOfCall(line, added[i], model, ranks);
      cost.bytes += added[i] * kMainGradBytes;
      ++cost.calls;
    }
    if (i < removed.size()) {
      before = CostOfCall(line, removed[i], model, ranks);
      cost.bytes -= removed[i] * kMainGradBytes;
      --cost.calls;
    }
    cost.extrapolated |= now.extrapolated || before.extrapolated;
    if (i < added.size() && i < removed.size()) {
      Replace(before, now, cost);
    } else {
      cost.seconds += now.seconds - before.seconds;
      cost.error += std::max(now.high - now.seconds, before.high - before.seconds);
    }
  }
}

// Takes equal sizes out of both.
void Cancel(std::vector<int64_t>& a, std::vector<int64_t>& b) {
  std::multiset<int64_t> in_a(a.begin(), a.end()), in_b(b.begin(), b.end());
  a.clear();
  for (const int64_t size : in_a) {
    const auto twin = in_b.find(size);
    if (twin == in_b.end()) {
      a.push_back(size);
    } else {
      in_b.erase(twin);
    }
  }
  b.assign(in_b.begin(), in_b.end());
}

Json LinkToJson(const LinkCost& link) {
  return {{"seconds_per_step", link.seconds_per_step},
          {"knots", link.knots},
          {"seconds_per_byte", link.seconds_per_byte}};
}

LinkCost LinkFromJson(const Json& json) {
  LinkCost link{.seconds_per_step = Get<double>(json, "seconds_per_step"),
                .knots = Get<std::vector<int64_t>>(json, "knots"),
                .seconds_per_byte = Get<std::vector<double>>(json, "seconds_per_byte")};
  const bool positive = link.seconds_per_step >= 0 &&
                        std::all_of(link.seconds_per_byte.begin(), link.seconds_per_byte.end(),
                                    [](double seconds) { return seconds >= 0; });
  if (!positive || link.seconds_per_byte.size() != link.knots.size() + 1 ||
      !std::is_sorted(link.knots.begin(), link.knots.end()))
    throw std::invalid_argument(
        "\"link\": expected rising knots, one seconds_per_byte more than knots, nothing negative");
  return link;
}

}  // namespace

HeldOut CheckHeldOut(CallKind call, std::span<const CostPoint> points) {
  std::set<int64_t> distinct;
  for (const CostPoint& point : points) distinct.insert(point.bytes);
  const std::vector<int64_t> sizes(distinct.begin(), distinct.end());
  const auto left_out = [&](const CostPoint& point) {
    const auto at = std::lower_bound(sizes.begin(), sizes.end(), point.bytes) - sizes.begin();
    return at % 3 == 1 && at + 1 < static_cast<int64_t>(sizes.size());
  };
  std::vector<CostPoint> fitted;
  for (const CostPoint& point : points) {
    if (!left_out(point)) fitted.push_back(point);
  }
  HeldOut held;
  const absl::StatusOr<CostModel> model = FitCostModel(call, fitted);
  if (!model.ok()) return held;
  std::vector<double> errors;
  for (const CostPoint& point : points) {
    if (!left_out(point)) continue;
    const CostEstimate estimate = Predict(*model, point.ranks, point.bytes);
    errors.push_back(std::abs(estimate.seconds / point.seconds - 1));
    held.inside += estimate.low <= point.seconds && point.seconds <= estimate.high;
  }
  held.points = static_cast<int>(errors.size());
  std::sort(errors.begin(), errors.end());
  if (!errors.empty()) held.median_error = errors[errors.size() / 2];
  return held;
}

absl::StatusOr<CostModel> Calibrate(const Transport& transport, const RunOptions& options,
                                    int ranks) {
  CollectiveBench bench{.seconds_per_repeat = 1e-3};
  for (int64_t bytes = 4; bytes <= (int64_t{16} << 20); bytes *= 4) bench.bytes.push_back(bytes);
  std::vector<CostPoint> points;
  for (const int world : std::set<int>{2, std::max(ranks, 2)}) {
    RunOptions of_world = options;
    of_world.world_size = world;
    SUMONCE_ASSIGN_OR_RETURN(const std::vector<BenchRow> rows,
                             RunCollectiveBench(transport, of_world, bench));
    for (const BenchRow& row : rows) points.push_back({world, row.bytes, row.seconds});
  }
  if (points.empty()) return CostModel();  // a process that holds no rank of these worlds
  return FitCostModel(bench.call, points);
}

std::string CostModelToJson(const CostModel& model, const std::string& transport) {
  return Json{{"sumonce_cost_model", kFileVersion}, {"transport", transport},
              {"call", Name(model.call)},           {"algorithm", Name(model.algorithm)},
              {"link", LinkToJson(model.link)},     {"ranks", model.ranks},
              {"least_bytes", model.least_bytes},   {"most_bytes", model.most_bytes},
              {"residual", model.residual},         {"bar", model.bar},
              {"rank_error", model.rank_error}}
             .dump(2) +
         "\n";
}

absl::StatusOr<CostModel> CostModelFromJson(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    if (Get<int>(json, "sumonce_cost_model") != kFileVersion) {
      throw std::invalid_argument(absl::StrCat(
          "\"sumonce_cost_model\": another version, this program reads ", kFileVersion));
    }
    const auto algorithm = Get<std::string>(json, "algorithm");
    if (algorithm != AlgorithmWord(CostAlgorithm::kRing) &&
        algorithm != AlgorithmWord(CostAlgorithm::kTree))
      throw std::invalid_argument("\"algorithm\": expected ring or tree");
    if (Get<std::string>(json, "call") != Name(CallKind::kAllReduce))
      throw std::invalid_argument("\"call\": expected AllReduce, what cures are made of");
    return CostModel{.algorithm = algorithm == AlgorithmWord(CostAlgorithm::kRing)
                                      ? CostAlgorithm::kRing
                                      : CostAlgorithm::kTree,
                     .link = LinkFromJson(Get<Json>(json, "link")),
                     .between = {},
                     .ranks = Get<std::vector<int>>(json, "ranks"),
                     .least_bytes = Get<int64_t>(json, "least_bytes"),
                     .most_bytes = Get<int64_t>(json, "most_bytes"),
                     .residual = Get<double>(json, "residual"),
                     .bar = Get<double>(json, "bar"),
                     .rank_error = Get<double>(json, "rank_error")};
  } catch (const Json::parse_error& error) {
    return absl::InvalidArgumentError(absl::StrCat("byte ", error.byte, ": no JSON", kExpected));
  } catch (const std::invalid_argument& error) {
    return absl::InvalidArgumentError(absl::StrCat(error.what(), kExpected));
  }
}

CureCost CostOfCure(const Scenario& scenario, std::span<const Edit> before,
                    std::span<const Edit> after, const CostModel& model, int ranks) {
  std::map<Key, TrafficLine> had = ByKey(TrafficOf(scenario, before));
  std::map<Key, TrafficLine> has = ByKey(TrafficOf(scenario, after));
  for (const auto& [key, line] : had)
    has.try_emplace(key, TrafficLine{line.phase, line.call, line.group, line.ranks, {}});
  CureCost cost;
  for (auto& [key, line] : has) {
    TrafficLine& other = had[key];
    Cancel(line.elements, other.elements);
    AddLine(line, line.elements, other.elements, model, ranks, cost);
  }
  return cost;
}

}  // namespace sumonce
