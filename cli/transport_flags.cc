#include "cli/transport_flags.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "cli/flags.h"

namespace sumonce {
namespace {

std::vector<std::string> TransportNames() {
  std::vector<std::string> names;
  for (const auto& [name, transport] : Transports().all()) names.push_back(name);
  return names;
}

}  // namespace

std::string TransportFlags::Describe() const {
  const Transport& transport = **Transports().Find(name);
  std::string text = name;
  if (!transport.executors.empty()) absl::StrAppend(&text, " ", ToAbsl(Name(executor.kind)));
  if (native_sums) absl::StrAppend(&text, ", native sums");
  return text;
}

RunOptions TransportFlags::Options() const {
  return {.executor = executor, .native_sums = native_sums};
}

void AddTransport(CLI::App& app, TransportFlags& flags) {
  AddChoice(app, "--executor",
            absl::StrCat("How ranks run in this process: fibers or threads (default ",
                         ToAbsl(Name(flags.executor.kind)), ")"),
            {"fibers", "threads"}, [&flags](const std::string& kind) {
              flags.executor.kind =
                  kind == "threads" ? ExecutorKind::kThreads : ExecutorKind::kFibers;
            });
  AddChoice(app, "--comm",
            absl::StrCat("The transport between ranks (default in_process): ",
                         absl::StrJoin(TransportNames(), ", ")),
            TransportNames(), [&flags](const std::string& name) { flags.name = name; });
  AddNumber(app, "--schedule", "Which interleaving of the ranks (fibers); 0 is the first",
            [&flags](uint64_t schedule) { flags.executor.schedule = schedule; });
  app.add_flag("--native-sums", flags.native_sums,
               "The transport's own reductions, in no promised order, where it has such");
}

bool IsFirstProcess(const Transport& transport) {
  if (!transport.processes) return true;
  const absl::StatusOr<ProcessGroup*> processes = transport.processes();
  return !processes.ok() || (*processes)->rank() == 0;
}

CostModel NodeFlags::Over(const CostModel& model) const {
  return ranks > 0 ? WithNodes(model, ranks, latency_us * 1e-6, gigabytes_per_second * 1e9) : model;
}

absl::Status NodeFlags::CheckFilledBy(int world) const {
  if (ranks == 0 || world <= ranks || world % ranks == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--node-ranks ", ranks, ": ", world,
                                                 " ranks do not fill nodes of ", ranks,
                                                 ", expected a divisor of ", world));
}

std::string NodeFlags::Describe() const {
  if (ranks == 0) return "";
  return absl::StrCat(", ", ranks, " a node, nodes joined by ", latency_us, " us and ",
                      gigabytes_per_second, " GB/s");
}

void AddNodes(CLI::App& app, NodeFlags& flags) {
  app.add_option("--node-ranks", flags.ranks,
                 "Predict for nodes of so many ranks, joined by a link of their own")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  app.add_option("--link-latency-us", flags.latency_us, "That link's latency (default 5)")
      ->check(CLI::Range(0.0, 1e6))
      ->type_name("US");
  app.add_option("--link-bandwidth", flags.gigabytes_per_second,
                 "Its bandwidth a rank in GB/s (default 25)")
      ->check(CLI::Range(1e-3, 1e6))
      ->type_name("GB/S");
}

}  // namespace sumonce
