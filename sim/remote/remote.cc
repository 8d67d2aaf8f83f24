#include "sim/remote/remote.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "base/digest.h"
#include "base/status.h"
#include "sim/remote/calls_codec.h"
#include "sim/remote/job.h"
#include "sim/remote/record_codec.h"

namespace sumonce {
namespace {

constexpr size_t kMaxNamedProcesses = 8;

void AddFile(const std::string& path, Digest& digest) {
  if (path.empty()) return;
  std::ifstream in(path, std::ios::binary);
  std::vector<char> block(1 << 16);
  while (in.read(block.data(), static_cast<std::streamsize>(block.size())), in.gcount() > 0)
    digest.Add(std::string_view(block.data(), static_cast<size_t>(in.gcount())));
}

// What has to be equal for two processes to simulate the same. Paths may differ: another machine
// keeps its files elsewhere.
std::string DigestOf(const Scenario& scenario) {
  Digest digest;
  const MeshSizes& mesh = scenario.mesh;
  for (const int size : {mesh.tp, mesh.cp, mesh.dp, mesh.pp, mesh.ep, mesh.etp})
    digest.Add(static_cast<int64_t>(size));
  digest.Add(static_cast<int64_t>(scenario.seed));
  for (const std::string& path : {scenario.file, scenario.weights_file, scenario.data.from_file})
    AddFile(path, digest);
  return digest.Hex();
}

std::string DigestOf(const Weights& weights) {
  Digest digest;
  for (const auto& [name, weight] : weights) {
    digest.Add(name);
    digest.Add(weight.values());
  }
  return digest.Hex();
}

struct Seen {
  std::string mistakes;
  std::vector<std::pair<std::string, std::string>> scenarios;  // name, digest
};

Seen SeenHere(const RemoteScenarios& remote, const std::string& mistakes) {
  Seen seen{.mistakes = mistakes, .scenarios = {}};
  for (const Scenario* scenario : remote.scenarios)
    seen.scenarios.emplace_back(scenario->name, DigestOf(*scenario));
  return seen;
}

std::string Encode(const Seen& seen) {
  ByteWriter writer;
  writer.Text(seen.mistakes);
  writer.I64(static_cast<int64_t>(seen.scenarios.size()));
  for (const auto& [name, digest] : seen.scenarios) {
    writer.Text(name);
    writer.Text(digest);
  }
  return writer.Take();
}

Seen Decode(const std::string& bytes) {
  ByteReader reader(bytes);
  Seen seen;
  seen.mistakes = reader.Text();
  seen.scenarios.resize(reader.Count(2 * sizeof(int64_t)));
  for (auto& [name, digest] : seen.scenarios) {
    name = reader.Text();
    digest = reader.Text();
  }
  return seen;
}

// What another process sees that process 0 does not; empty if it sees the same.
std::string Difference(const Seen& mine, const Seen& other) {
  if (mine.mistakes != other.mistakes) {
    return other.mistakes.empty() ? std::string("finds none of the mistakes that process 0 finds")
                                  : absl::StrCat("finds: ", other.mistakes);
  }
  if (mine.scenarios.size() != other.scenarios.size()) {
    return absl::StrCat("selects ", other.scenarios.size(), " scenarios, process 0 ",
                        mine.scenarios.size());
  }
  for (size_t i = 0; i < mine.scenarios.size(); ++i) {
    const auto& [name, digest] = mine.scenarios[i];
    const auto& [other_name, other_digest] = other.scenarios[i];
    if (name != other_name)
      return absl::StrCat("selects ", other_name, " where process 0 has ", name);
    if (digest != other_digest) {
      return absl::StrCat("reads other contents of ", name, " or of a file that it names (digest ",
                          other_digest, ", process 0: ", digest, ")");
    }
  }
  return "";
}

absl::StatusOr<std::string> FindDifferences(ProcessGroup& group, const Seen& mine) {
  std::vector<std::string> differences;
  for (int process = 1; process < group.size(); ++process) {
    SUMONCE_ASSIGN_OR_RETURN(const std::string bytes, group.ReceiveFrom(process));
    const std::string difference = Difference(mine, Decode(bytes));
    if (!difference.empty())
      differences.push_back(absl::StrCat(group.Describe(process), " ", difference));
  }
  if (differences.size() > kMaxNamedProcesses) {
    const size_t more = differences.size() - kMaxNamedProcesses;
    differences.resize(kMaxNamedProcesses);
    differences.push_back(absl::StrCat("and ", more, " processes more"));
  }
  return absl::StrJoin(differences, "; ");
}

// One rank's part of a job. A job that this process cannot do fails the run, which all processes
// are in.
SimResult DoJob(const RemoteScenarios& remote, const SimulationJob& job, SimOptions options) {
  options.native_sums = job.native_sums;
  const auto refuse = [&](const absl::Status& why) {
    SimResult result;
    result.status = (*Transports().Find(options.transport))
                        ->run({.world_size = job.world_size, .native_sums = job.native_sums},
                              [&](Communicator&) { return why; });
    return result;
  };
  if (job.scenario < 0 || job.scenario >= static_cast<int>(remote.scenarios.size()))
    return refuse(absl::InternalError(absl::StrCat("no scenario ", job.scenario, " here")));
  const Scenario& scenario = *remote.scenarios[job.scenario];
  Model model(EffectiveModel(scenario));
  const absl::StatusOr<Weights> start = StartWeights(scenario, model.params());
  if (!start.ok()) return refuse(start.status());
  if (DigestOf(*start) != job.start_digest) {
    return refuse(absl::InternalError(absl::StrCat(
        remote.group->Describe(remote.group->rank()),
        " starts from other weights than process 0: do all run the same build of sumonce?")));
  }
  return SimulateHere(scenario, job.edits, *start, options);
}

}  // namespace

absl::Status AgreeOnScenarios(const RemoteScenarios& remote, const std::string& mistakes) {
  ProcessGroup& group = *remote.group;
  const Seen mine = SeenHere(remote, mistakes);
  std::string differences;
  if (group.rank() == 0) {
    SUMONCE_ASSIGN_OR_RETURN(differences, FindDifferences(group, mine));
  } else {
    SUMONCE_RETURN_IF_ERROR(group.SendToRoot(Encode(mine)));
  }
  SUMONCE_RETURN_IF_ERROR(group.Broadcast(differences));
  if (differences.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(differences, "; give every process the same files and the same command line"));
}

SimResult SimulateOverProcesses(const Scenario& scenario, std::span<const Edit> edits,
                                const Weights& start, const SimOptions& options) {
  const RemoteScenarios& remote = *options.remote;
  const auto place = std::find(remote.scenarios.begin(), remote.scenarios.end(), &scenario);
  SUMONCE_CHECK(place != remote.scenarios.end())
      << scenario.name << " is not one of the processes'";
  SimResult result;
  const absl::StatusOr<std::string> job =
      EncodeJob({.scenario = static_cast<int>(place - remote.scenarios.begin()),
                 .world_size = scenario.mesh.world_size(),
                 .edits = {edits.begin(), edits.end()},
                 .native_sums = options.native_sums,
                 .record_calls = options.now_us != nullptr,
                 .start_digest = DigestOf(start),
                 .exit_status = {}});
  result.status = job.status();
  if (!job.ok()) return result;
  std::string message = *job;
  result.status = remote.group->Broadcast(message);
  if (!result.status.ok()) return result;
  SimOptions here = options;
  if (here.now_us) here.calls_begin_us = here.now_us();
  result = SimulateHere(scenario, edits, start, here);
  if (here.now_us) result.calls.resize(result.record.ranks.size());
  for (size_t rank = 1; rank < result.record.ranks.size(); ++rank) {
    const auto receive = [&] { return remote.group->ReceiveFrom(static_cast<int>(rank)); };
    absl::Status received = ReceiveRecords(receive, result.record.ranks[rank]);
    if (received.ok() && here.now_us) received = ReceiveCalls(receive, result.calls[rank]);
    if (received.ok()) continue;
    if (result.status.ok()) result.status = received;
    break;
  }
  return result;
}

absl::Status EndService(ProcessGroup& group, int exit_status) {
  SUMONCE_ASSIGN_OR_RETURN(
      std::string job, EncodeJob({.edits = {}, .start_digest = "", .exit_status = exit_status}));
  return group.Broadcast(job);
}

absl::StatusOr<int> ServeSimulations(const RemoteScenarios& remote, const SimOptions& options) {
  ProcessGroup& group = *remote.group;
  while (true) {
    std::string message;
    SUMONCE_RETURN_IF_ERROR(group.Broadcast(message));
    SUMONCE_ASSIGN_OR_RETURN(const SimulationJob job, DecodeJob(message));
    if (job.exit_status) return *job.exit_status;
    // All have the job at about the same moment: the zero of their clocks.
    SimOptions here = options;
    if (!job.record_calls) here.now_us = nullptr;
    if (here.now_us) here.calls_begin_us = here.now_us();
    SimResult result = DoJob(remote, job, here);
    if (group.rank() >= job.world_size) continue;
    const auto send = [&](const std::string& part) { return group.SendToRoot(part); };
    result.record.ranks.resize(job.world_size);
    SUMONCE_RETURN_IF_ERROR(SendRecords(result.record.ranks[group.rank()], send));
    if (!job.record_calls) continue;
    result.calls.resize(job.world_size);
    SUMONCE_RETURN_IF_ERROR(SendCalls(result.calls[group.rank()], send));
  }
}

}  // namespace sumonce
