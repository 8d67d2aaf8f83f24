// sumonce bench: what a collective costs on a transport, in the columns of nccl-tests, and a model
// of it for other sizes and more ranks.
#include <algorithm>
#include <fstream>
#include <memory>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "cli/exit_code.h"
#include "cli/flags.h"
#include "cli/output_file.h"
#include "cli/transport_flags.h"
#include "cli/verb.h"
#include "cost/measured_model.h"
#include "nlohmann/json.hpp"
#include "report/text_table.h"

namespace sumonce {
namespace {

constexpr int64_t kMostBytes = int64_t{64} << 30;

struct BenchFlags {
  TransportFlags transport;
  std::vector<int> ranks = {2, 4};
  CollectiveBench bench;
  int64_t least = 4;
  int64_t most = int64_t{64} << 20;
  int factor = 4;
  std::vector<int> predict;
  NodeFlags nodes;
  bool json = false;
  std::string model_out;
  bool force = false;
};

// What was measured at one rank count.
struct Measured {
  int ranks = 0;
  std::vector<BenchRow> rows;
};

std::vector<std::string> Titles() {
  return {"size", "count", "type", "redop", "time", "algbw", "busbw", "#wrong"};
}

std::string BenchTable(const BenchFlags& flags, const Measured& measured) {
  const CollectiveBench& bench = flags.bench;
  const bool reduces = bench.call == CallKind::kAllReduce || bench.call == CallKind::kReduceScatter;
  std::vector<std::vector<std::string>> rows = {
      Titles(), {"(B)", "(elements)", "", "", "(us)", "(GB/s)", "(GB/s)", ""}};
  for (const BenchRow& row : measured.rows) {
    rows.push_back(
        {absl::StrCat(row.bytes), absl::StrCat(row.count), std::string(Name(bench.dtype)),
         reduces ? std::string(Name(bench.op)) : "none", absl::StrFormat("%.2f", row.seconds * 1e6),
         absl::StrFormat("%.2f", row.algbw() * 1e-9),
         absl::StrFormat("%.2f", row.algbw() * 1e-9 * BusFactor(bench.call, measured.ranks)),
         absl::StrCat(row.wrong)});
  }
  return absl::StrCat(ToAbsl(Name(bench.call)), " on ", flags.transport.Describe(), ", ",
                      measured.ranks, " ranks; median of ", bench.repeats, "\n",
                      AlignedRows(rows, 2, 0));
}

nlohmann::json BenchJson(const BenchFlags& flags, const std::vector<Measured>& all) {
  nlohmann::json json{{"call", Name(flags.bench.call)},
                      {"dtype", Name(flags.bench.dtype)},
                      {"redop", Name(flags.bench.op)},
                      {"transport", flags.transport.Describe()},
                      {"rows", nlohmann::json::array()}};
  for (const Measured& measured : all) {
    for (const BenchRow& row : measured.rows) {
      json["rows"].push_back(
          {{"ranks", measured.ranks},
           {"bytes", row.bytes},
           {"count", row.count},
           {"time_us", row.seconds * 1e6},
           {"fastest_us", row.fastest * 1e6},
           {"slowest_us", row.slowest * 1e6},
           {"algbw_gb_s", row.algbw() * 1e-9},
           {"busbw_gb_s", row.algbw() * 1e-9 * BusFactor(flags.bench.call, measured.ranks)},
           {"wrong", row.wrong}});
    }
  }
  return json;
}

std::string ModelText(const CostModel& model, const HeldOut& held) {
  std::string text =
      absl::StrFormat("model: %s, %.3g us a step", std::string(Name(model.algorithm)),
                      model.link.seconds_per_step * 1e6);
  for (size_t i = 0; i < model.link.seconds_per_byte.size(); ++i) {
    absl::StrAppendFormat(&text, ", %.3g ns/KiB", model.link.seconds_per_byte[i] * 1024e9);
    if (i < model.link.knots.size()) absl::StrAppend(&text, " up to ", model.link.knots[i], " B");
  }
  absl::StrAppendFormat(&text, "\n  fitted points are off by %.1f %% (median); bar +- %.0f %%\n",
                        model.residual * 100, model.bar * 100);
  if (held.points > 0) {
    absl::StrAppendFormat(&text,
                          "  sizes held out of a fit: off by %.1f %% (median), %d of %d inside its "
                          "bar\n",
                          held.median_error * 100, held.inside, held.points);
  }
  if (model.rank_error >= 0) {
    absl::StrAppendFormat(
        &text,
        "  rank counts held out: nine of ten within %.0f %% (more ranks than cores "
        "follow no such model)\n",
        model.rank_error * 100);
  }
  return text;
}

std::string PredictionText(const BenchFlags& flags, const CostModel& model) {
  std::string text;
  for (const int ranks : flags.predict) {
    absl::StrAppend(&text, "predicted for ", ranks, " ranks", flags.nodes.Describe(), "\n");
    std::vector<std::vector<std::string>> rows = {{"size (B)", "time (us)", "from", "to"}};
    for (const int64_t bytes : flags.bench.bytes) {
      const CostEstimate estimate = Predict(model, ranks, bytes);
      rows.push_back({absl::StrCat(bytes), absl::StrFormat("%.2f", estimate.seconds * 1e6),
                      absl::StrFormat("%.2f", estimate.low * 1e6),
                      absl::StrFormat("%.2f", estimate.high * 1e6)});
    }
    absl::StrAppend(&text, AlignedRows(rows, 2, 0));
  }
  return text;
}

int Refuse(Context& context, const absl::Status& status, int code) {
  context.io.err << "sumonce bench: " << FromAbsl(status.message()) << '\n';
  return code;
}

// Fits and prints the model; the status is that of the file.
absl::Status ReportModel(const BenchFlags& flags, const std::vector<Measured>& all,
                         Context& context) {
  std::vector<CostPoint> points;
  for (const Measured& measured : all) {
    for (const BenchRow& row : measured.rows) {
      if (row.bytes > 0 && measured.ranks > 1)
        points.push_back({measured.ranks, row.bytes, row.seconds});
    }
  }
  absl::StatusOr<CostModel> model = FitCostModel(flags.bench.call, points);
  if (!model.ok()) {
    if (!flags.model_out.empty() || !flags.predict.empty()) return model.status();
    return absl::OkStatus();  // a short table needs no model
  }
  std::ostream& out = flags.json ? context.io.err : context.io.out;
  out << ModelText(*model, CheckHeldOut(flags.bench.call, points))
      << PredictionText(flags, flags.nodes.Over(*model));
  if (flags.model_out.empty()) return absl::OkStatus();
  SUMONCE_ASSIGN_OR_RETURN(const auto file, OutputFile::Open(flags.model_out, flags.force));
  file->stream() << CostModelToJson(*model, flags.transport.Describe());
  return file->Commit();
}

int Bench(const BenchFlags& given, Context& context) {
  BenchFlags flags = given;
  const Transport& transport = **Transports().Find(flags.transport.name);
  if (const absl::Status there = transport.probe(); !there.ok())
    return Refuse(context, there, kAllSkipped);
  if (flags.least > flags.most)
    return Refuse(context, absl::InvalidArgumentError("--min is more than --max"), kUsage);
  const int64_t element = SizeOf(flags.bench.dtype);
  if (flags.least < element) {
    return Refuse(context,
                  absl::InvalidArgumentError(
                      absl::StrCat("--min ", flags.least, " is less than one ",
                                   ToAbsl(Name(flags.bench.dtype)), "; take ", element)),
                  kUsage);
  }
  for (const int ranks : flags.predict) {
    if (const absl::Status filled = flags.nodes.CheckFilledBy(ranks); !filled.ok())
      return Refuse(context, filled, kUsage);
  }
  for (const int ranks : flags.ranks) {
    if (const absl::Status can = CanRun(transport, ranks); !can.ok())
      return Refuse(context, can, kUsage);
  }
  for (int64_t bytes = flags.least; bytes <= flags.most; bytes *= flags.factor)
    flags.bench.bytes.push_back(bytes);
  std::vector<Measured> all;
  bool wrong = false;
  for (const int ranks : flags.ranks) {
    RunOptions options = flags.transport.Options();
    options.world_size = ranks;
    absl::StatusOr<std::vector<BenchRow>> rows =
        RunCollectiveBench(transport, options, flags.bench);
    if (!rows.ok())
      return Refuse(context, rows.status(),
                    rows.status().code() == absl::StatusCode::kInvalidArgument ? kUsage : kDiffers);
    for (const BenchRow& row : *rows) wrong |= row.wrong > 0;
    all.push_back({ranks, *std::move(rows)});
    if (!flags.json && IsFirstProcess(transport))
      context.io.out << BenchTable(flags, all.back()) << std::flush;
  }
  if (IsFirstProcess(transport)) {
    if (flags.json) context.io.out << BenchJson(flags, all).dump(2) << '\n';
    const absl::Status reported = ReportModel(flags, all, context);
    if (!reported.ok()) return Refuse(context, reported, kUsage);
  }
  return wrong ? kDiffers : kAsExpected;
}

void AddMeasured(CLI::App& app, BenchFlags& flags) {
  AddSizes(app, "--ranks", "Ranks, each measured (default 2,4)", flags.ranks);
  AddChoice(app, "--call", "The collective: all_reduce (the default), ...",
            {"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast"},
            [&flags](const std::string& word) {
              flags.bench.call = word == "reduce_scatter" ? CallKind::kReduceScatter
                                 : word == "all_gather"   ? CallKind::kAllGather
                                 : word == "all_to_all"   ? CallKind::kAllToAll
                                 : word == "broadcast"    ? CallKind::kBroadcast
                                                          : CallKind::kAllReduce;
            });
  AddChoice(app, "--type", "Elements: float32 (the default), ...",
            {"float64", "float32", "bfloat16", "int64", "int32"},
            [&flags](const std::string& word) { flags.bench.dtype = *DTypeNamed(word); });
  AddChoice(app, "--redop", "Reduction: sum (the default), avg, max", {"sum", "avg", "max"},
            [&flags](const std::string& word) {
              flags.bench.op = word == "avg"   ? ReduceOp::kAvg
                               : word == "max" ? ReduceOp::kMax
                                               : ReduceOp::kSum;
            });
  AddBytes(app, "--min", "Smallest size (default 4)", kMostBytes, flags.least);
  AddBytes(app, "--max", "Largest size (default 64M)", kMostBytes, flags.most);
  app.add_option("--factor", flags.factor, "From a size to the next (default 4)")
      ->check(CLI::Range(2, 1 << 20))
      ->type_name("N");
  app.add_option("--repeats", flags.bench.repeats, "Whose median counts (default 11)")
      ->check(CLI::Range(1, 100000))
      ->type_name("N");
}

}  // namespace

VerbAction DeclareBench(CLI::App& app) {
  auto flags = std::make_shared<BenchFlags>();
  flags->transport.executor.kind = ExecutorKind::kThreads;
  AddTransport(app, flags->transport);
  AddMeasured(app, *flags);
  AddSizes(app, "--predict", "Also what the fitted model says for so many ranks", flags->predict);
  AddNodes(app, flags->nodes);
  app.add_option("--model-out", flags->model_out, "Write the fitted model, for run --cost-model")
      ->type_name("FILE");
  app.add_flag("--json", flags->json, "JSON on stdout, the model on stderr");
  app.add_flag("--force", flags->force, "Overwrite files that are there");
  return [flags](Context& context) { return Bench(*flags, context); };
}

}  // namespace sumonce
