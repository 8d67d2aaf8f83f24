#include "cost/cost_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "cost/least_squares.h"

namespace sumonce {
namespace {

constexpr int kMostKnots = 2;
constexpr size_t kLeastSizes = 4;
constexpr double kCovered = 0.9;  // of the left-out points lie inside the bar

// Where the time per byte may change. Knots are offered at measured sizes.
using Knots = std::vector<int64_t>;

// The bytes of a message that lie between one knot and the next.
std::vector<double> BytesBySegment(const Knots& knots, int64_t bytes) {
  std::vector<double> parts;
  int64_t from = 0;
  for (size_t i = 0; i <= knots.size(); ++i) {
    const int64_t to = i < knots.size() ? knots[i] : std::numeric_limits<int64_t>::max();
    parts.push_back(static_cast<double>(std::clamp(bytes, from, to) - from));
    from = to;
  }
  return parts;
}

// A way to fit, and the points it is for.
struct Shape {
  CallKind call;
  CostAlgorithm algorithm;
  Knots knots;
};

std::vector<double> Features(const Shape& shape, const CostPoint& point) {
  std::vector<double> features = {Steps(shape.call, shape.algorithm, point.ranks)};
  const double wire = WireBytesPerByte(shape.call, shape.algorithm, point.ranks);
  for (const double part : BytesBySegment(shape.knots, point.bytes))
    features.push_back(wire * part);
  return features;
}

CostModel FitShape(const Shape& shape, std::span<const CostPoint> points) {
  std::vector<std::vector<double>> rows;
  for (const CostPoint& point : points) {
    rows.push_back(Features(shape, point));
    for (double& feature : rows.back()) feature /= point.seconds;  // relative errors
  }
  const std::vector<double> solution =
      NonNegativeLeastSquares(rows, std::vector<double>(rows.size(), 1.0));
  CostModel model{.call = shape.call, .algorithm = shape.algorithm};
  model.link.seconds_per_step = solution[0];
  model.link.knots = shape.knots;
  model.link.seconds_per_byte.assign(solution.begin() + 1, solution.end());
  return model;
}

double RelativeError(const CostModel& model, const CostPoint& point) {
  return std::abs(Predict(model, point.ranks, point.bytes).seconds / point.seconds - 1.0);
}

// By what factor the time is off, less 1, whichever way: what a bar has to be to reach it.
double FactorError(const CostModel& model, const CostPoint& point) {
  const double ratio = Predict(model, point.ranks, point.bytes).seconds / point.seconds;
  return std::max(ratio, 1.0 / ratio) - 1.0;
}

// The value that `share` of the sorted values do not exceed, on the safe side.
double Quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = std::ceil(share * static_cast<double>(values.size() + 1)) - 1;
  return values[static_cast<size_t>(std::clamp(at, 0.0, static_cast<double>(values.size() - 1)))];
}

// The errors on points that the fit did not see: each size in turn, with all its rank counts.
template <typename KeyOf, typename ErrorOf>
std::vector<double> LeftOutErrors(const Shape& shape, const std::vector<CostPoint>& points,
                                  KeyOf key_of, ErrorOf error_of) {
  std::set<int64_t> keys;
  for (const CostPoint& point : points) keys.insert(key_of(point));
  std::vector<double> errors;
  for (const int64_t key : keys) {
    std::vector<CostPoint> kept;
    for (const CostPoint& point : points) {
      if (key_of(point) != key) kept.push_back(point);
    }
    const CostModel model = FitShape(shape, kept);
    for (const CostPoint& point : points) {
      if (key_of(point) == key) errors.push_back(error_of(model, point));
    }
  }
  return errors;
}

int64_t BytesOf(const CostPoint& point) { return point.bytes; }
int64_t RanksOf(const CostPoint& point) { return point.ranks; }

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// No knots, each size, each pair of sizes. A knot next to an end would have one point on its side.
std::vector<Knots> KnotChoices(const std::vector<int64_t>& sizes) {
  std::vector<Knots> choices = {{}};
  const size_t last = sizes.size() >= 2 ? sizes.size() - 2 : 0;
  for (size_t i = 1; i < last; ++i) {
    choices.push_back({sizes[i]});
    for (size_t j = i + 1; j < last && kMostKnots > 1; ++j) choices.push_back({sizes[i], sizes[j]});
  }
  return choices;
}

absl::Status CheckPoints(const std::vector<CostPoint>& points, const std::set<int64_t>& sizes) {
  for (const CostPoint& point : points) {
    if (point.ranks < 2 || point.bytes < 0 || !(point.seconds > 0) ||
        !std::isfinite(point.seconds)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a cost point of ", point.ranks, " ranks, ", point.bytes, " bytes and ",
                       point.seconds, " seconds: expected 2 ranks or more, and a time"));
    }
  }
  if (sizes.size() < kLeastSizes) {
    return absl::InvalidArgumentError(absl::StrCat("a cost model needs ", kLeastSizes,
                                                   " sizes or more, got ", sizes.size(),
                                                   "; widen the range of sizes"));
  }
  return absl::OkStatus();
}

double TwoLevelSeconds(const CostModel& model, int ranks, int64_t bytes) {
  const int inside = std::min(ranks, model.node_ranks);
  const int nodes = (ranks + inside - 1) / inside;
  const auto level = [&](const LinkCost& link, int size, int64_t part) {
    return Steps(model.call, model.algorithm, size) * link.seconds_per_step +
           link.Transfer(WireBytesPerByte(model.call, model.algorithm, size), part);
  };
  return level(model.link, inside, bytes) + level(model.between, nodes, bytes / inside);
}

}  // namespace

std::string_view Name(CostAlgorithm algorithm) {
  return algorithm == CostAlgorithm::kRing ? "ring" : "tree";
}

double Steps(CallKind call, CostAlgorithm algorithm, int ranks) {
  if (ranks < 2) return 0;
  const double once = algorithm == CostAlgorithm::kRing
                          ? ranks - 1
                          : std::ceil(std::log2(static_cast<double>(ranks)));
  return call == CallKind::kAllReduce ? 2 * once : once;
}

double WireBytesPerByte(CallKind call, CostAlgorithm algorithm, int ranks) {
  if (ranks < 2) return 0;
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (call) {
    case CallKind::kAllReduce:
      return algorithm == CostAlgorithm::kRing ? 2 * others : 2;
    case CallKind::kBroadcast:
      return 1;
    default:
      return others;
  }
}

double LinkCost::Transfer(double wire, int64_t bytes) const {
  const std::vector<double> parts = BytesBySegment(knots, bytes);
  double seconds = 0;
  for (size_t i = 0; i < parts.size(); ++i) seconds += wire * parts[i] * seconds_per_byte[i];
  return seconds;
}

absl::StatusOr<CostModel> FitCostModel(CallKind call, std::vector<CostPoint> points) {
  std::set<int64_t> distinct;
  std::set<int> ranks;
  for (const CostPoint& point : points) {
    distinct.insert(point.bytes);
    ranks.insert(point.ranks);
  }
  SUMONCE_RETURN_IF_ERROR(CheckPoints(points, distinct));
  const std::vector<int64_t> sizes(distinct.begin(), distinct.end());
  Shape best{call, CostAlgorithm::kRing, {}};
  double least = std::numeric_limits<double>::infinity();
  for (const CostAlgorithm algorithm : {CostAlgorithm::kRing, CostAlgorithm::kTree}) {
    for (const Knots& knots : KnotChoices(sizes)) {
      const Shape shape{call, algorithm, knots};
      const double error = Mean(LeftOutErrors(shape, points, BytesOf, RelativeError));
      // A knot more has to earn its place.
      if (error < 0.98 * least) {
        least = error;
        best = shape;
      }
    }
  }
  CostModel model = FitShape(best, points);
  model.ranks.assign(ranks.begin(), ranks.end());
  model.least_bytes = sizes.front();
  model.most_bytes = sizes.back();
  std::vector<double> residuals;
  for (const CostPoint& point : points) residuals.push_back(RelativeError(model, point));
  model.residual = Quantile(residuals, 0.5);
  model.bar = Quantile(LeftOutErrors(best, points, BytesOf, FactorError), kCovered);
  if (ranks.size() >= 3)
    model.rank_error = Quantile(LeftOutErrors(best, points, RanksOf, FactorError), kCovered);
  return model;
}

CostEstimate Predict(const CostModel& model, int ranks, int64_t bytes) {
  if (ranks < 2) return {};
  CostEstimate estimate;
  if (model.node_ranks > 0) {
    estimate.seconds = TwoLevelSeconds(model, ranks, bytes);
  } else {
    estimate.seconds =
        Steps(model.call, model.algorithm, ranks) * model.link.seconds_per_step +
        model.link.Transfer(WireBytesPerByte(model.call, model.algorithm, ranks), bytes);
  }
  const bool measured_ranks =
      std::find(model.ranks.begin(), model.ranks.end(), ranks) != model.ranks.end();
  estimate.extrapolated = !measured_ranks || bytes < model.least_bytes || bytes > model.most_bytes;
  const double bar =
      measured_ranks ? model.bar : std::max(model.bar, std::max(model.rank_error, 0.0));
  // A time is off by a factor, not by an amount: twice as long is as far as half.
  estimate.low = estimate.seconds / (1.0 + bar);
  estimate.high = estimate.seconds * (1.0 + bar);
  return estimate;
}

CostModel WithNodes(CostModel model, int node_ranks, double latency_seconds, double bandwidth) {
  SUMONCE_CHECK(node_ranks > 0 && bandwidth > 0) << node_ranks << " ranks a node, " << bandwidth;
  model.node_ranks = node_ranks;
  model.between = {
      .seconds_per_step = latency_seconds, .knots = {}, .seconds_per_byte = {1.0 / bandwidth}};
  return model;
}

}  // namespace sumonce
