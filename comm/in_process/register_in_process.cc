#include "comm/in_process/in_process_communicator.h"
#include "comm/transport.h"

namespace sumonce {

void RegisterInProcess(TransportRegistry& registry) {
  registry.Add({.name = "in_process",
                .probe = [] { return absl::OkStatus(); },
                .run = RunInProcess,
                .executors = {ExecutorKind::kFibers, ExecutorKind::kThreads},
                .sums_in_any_order = true});
}

}  // namespace sumonce
