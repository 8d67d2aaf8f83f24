#include "comm/mpi/session.h"
#include "comm/transport.h"

namespace sumonce {

void RegisterMpi(TransportRegistry& registry) {
  registry.Add({.name = "mpi",
                .probe = ProbeMpi,
                .run = RunOverMpi,
                .executors = {},
                .processes = MpiProcessGroup});
}

}  // namespace sumonce
