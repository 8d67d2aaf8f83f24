#include "comm/mpi/session.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "comm/mpi/processes.h"
#include "comm/mpi/world_run.h"

namespace sumonce {
namespace {

constexpr char kModule[] = "sumonce_comm_mpi.so";

// Beside the program, where it is installed, or where it was built.
std::vector<std::string> ModulePaths() {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path folder = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  return {(folder / kModule).string(), (folder / SUMONCE_MODULE_FROM_BIN / kModule).string(),
          absl::StrCat(SUMONCE_BUILT_MODULES, "/", kModule)};
}

absl::Status NotBuilt() {
  return absl::UnavailableError(
      "this program was built without MPI; install libopenmpi-dev and openmpi-bin (Debian and "
      "Ubuntu; ./dev --with mpi build does it), configure and build again");
}

// The module's entry. Loaded globally: Open MPI's own plug-ins look for its symbols there.
absl::StatusOr<OpenWire> LoadModule() {
  std::string path;
  for (const std::string& candidate : ModulePaths()) {
    std::error_code ignored;
    if (path.empty() && std::filesystem::exists(candidate, ignored)) path = candidate;
  }
  if (path.empty()) return NotBuilt();
  void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (module == nullptr) {
    return absl::UnavailableError(absl::StrCat("the MPI library cannot be loaded: ", dlerror(),
                                               "; install openmpi-bin (Debian, Ubuntu)"));
  }
  void* symbol = dlsym(module, kOpenWireSymbol);
  if (symbol == nullptr) {
    return absl::UnavailableError(
        absl::StrCat(path, " is of another build than this program; build again"));
  }
  return reinterpret_cast<OpenWire>(symbol);
}

const absl::StatusOr<OpenWire>& Module() {
  static const auto& module = *new absl::StatusOr<OpenWire>(LoadModule());
  return module;
}

absl::StatusOr<std::unique_ptr<Processes>> OpenProcesses() {
  SUMONCE_RETURN_IF_ERROR(Module().status());
  std::string error;
  std::unique_ptr<Wire> wire((*Module())(&error));
  if (wire == nullptr) return absl::UnavailableError(absl::StrCat("mpi: ", error));
  return Processes::Open(std::move(wire));
}

void CloseProcesses(int status, void* processes) {
  static_cast<Processes*>(processes)->Close(status);
}

// One for the life of the program: MPI starts once.
absl::StatusOr<Processes*> TheProcesses() {
  static const auto& processes = *[] {
    auto* opened = new absl::StatusOr<std::unique_ptr<Processes>>(OpenProcesses());
    if (opened->ok()) on_exit(CloseProcesses, (*opened)->get());
    return opened;
  }();
  SUMONCE_RETURN_IF_ERROR(processes.status());
  return processes->get();
}

}  // namespace

absl::Status ProbeMpi() { return Module().status(); }

absl::StatusOr<ProcessGroup*> MpiProcessGroup() {
  SUMONCE_ASSIGN_OR_RETURN(Processes* const processes, TheProcesses());
  return processes;
}

absl::Status RunOverMpi(const RunOptions& options, const RankBody& body) {
  SUMONCE_ASSIGN_OR_RETURN(Processes* const processes, TheProcesses());
  if (options.world_size < 1 || options.world_size > processes->size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("mpi: world of ", options.world_size, " ranks, expected 1 to ",
                     processes->size(), ", the number of processes; mpirun -np N starts more"));
  }
  return WorldRun(*processes, options).Execute(body);
}

}  // namespace sumonce
