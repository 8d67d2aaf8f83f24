#include "comm/core_affinity.h"

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif

namespace sumonce {

#if defined(__linux__)

std::vector<int> AllowedCores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::vector<int> cores;
  if (pthread_getaffinity_np(pthread_self(), sizeof(allowed), &allowed) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  }
  return cores;
}

void PinThread(int core) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(core, &only);
  pthread_setaffinity_np(pthread_self(), sizeof(only), &only);
}

#else

std::vector<int> AllowedCores() { return {}; }
void PinThread(int) {}

#endif

}  // namespace sumonce
