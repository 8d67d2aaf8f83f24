// The registry of transports: a way to run the ranks of a world with a communicator between them.
// One folder each (in_process, later mpi, nccl), entered by its register_<name>.cc.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "comm/communicator.h"
#include "comm/executor.h"
#include "comm/process_group.h"

namespace sumonce {

struct RunOptions {
  int world_size = 1;
  ExecutorOptions executor;  // transports with a process per rank ignore it
  // Transports that have a faster reduction without a promised order use it (Properties tells).
  bool native_sums = false;
};

// Called once per rank that lives in this process, with its world communicator.
using RankBody = std::function<absl::Status(Communicator& world)>;

struct Transport {
  std::string name;
  // OK, or the reason why this machine cannot run it now (Unavailable, with what would change
  // that).
  std::function<absl::Status()> probe;
  // Runs all ranks; the first failure ends all and is returned.
  std::function<absl::Status(const RunOptions&, const RankBody&)> run;
  int max_world_size = 1024;
  // Ranks that this machine can hold now, where that may be fewer (GPUs); 0 if probe fails. Empty:
  // max_world_size.
  std::function<int()> capacity;
  std::vector<ExecutorKind> executors;  // those that it honours
  bool sums_in_any_order = false;       // looks at Call::any_order
  // Of transports with one rank per process: those processes. `run` is then collective over them:
  // each runs the body for its own rank, those beyond the world for none. Empty: all ranks live in
  // this process.
  std::function<absl::StatusOr<ProcessGroup*>()> processes;
};

// Unavailable, with what would change that, if the transport cannot run so many ranks here now.
absl::Status CanRun(const Transport& transport, int world_size);

class TransportRegistry {
 public:
  void Add(Transport transport);
  // NotFound lists the names there are.
  absl::StatusOr<const Transport*> Find(const std::string& name) const;
  const std::map<std::string, Transport>& all() const { return transports_; }

 private:
  std::map<std::string, Transport> transports_;
};

// Generated: calls every folder's Register function.
void RegisterAllTransports(TransportRegistry& registry);
// The registry of this build, filled on first use.
const TransportRegistry& Transports();

}  // namespace sumonce
