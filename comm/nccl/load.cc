#include "comm/nccl/load.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "comm/nccl/module/module.h"

namespace sumonce::nccl {
namespace {

constexpr char kFileName[] = "sumonce_comm_nccl.so";

// Where it is said to be, else beside the program, where it is installed, or where it was built.
std::vector<std::string> NcclModulePaths() {
  namespace fs = std::filesystem;
  if (const char* set = std::getenv("SUMONCE_NCCL_MODULE"); set != nullptr && set[0] != '\0')
    return {set};
  std::error_code ignored;
  const fs::path folder = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  return {(folder / kFileName).string(), (folder / SUMONCE_MODULE_FROM_BIN / kFileName).string(),
          absl::StrCat(SUMONCE_BUILT_MODULES, "/", kFileName)};
}

absl::StatusOr<Api> LoadOnce() {
  const std::vector<std::string> paths = NcclModulePaths();
  std::string path;
  for (const std::string& candidate : paths) {
    std::error_code ignored;
    if (path.empty() && std::filesystem::exists(candidate, ignored)) path = candidate;
  }
  if (path.empty()) {
    return absl::UnavailableError(absl::StrCat(
        "this program was built without NCCL (no ", paths.front(),
        "); configure and build again where the CUDA toolkit, nccl.h and libnccl are, with "
        "-D SUMONCE_WITH_NCCL=ON to have what is missing named, or set SUMONCE_NCCL_MODULE"));
  }
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return absl::UnavailableError(absl::StrCat("the NCCL library cannot be loaded: ", dlerror(),
                                               "; have libnccl where the loader finds it"));
  }
  // It stays loaded: CUDA does not like to be unloaded.
  const auto entry = reinterpret_cast<ModuleEntry>(dlsym(handle, kModuleEntry));
  const Module* module = entry == nullptr ? nullptr : entry(kModuleVersion);
  if (module != nullptr) return module->api;
  return absl::UnavailableError(
      absl::StrCat(path, " is of another build than this program; build again"));
}

}  // namespace

absl::StatusOr<Api> Load() {
  static const auto& loaded = *new absl::StatusOr<Api>(LoadOnce());
  return loaded;
}

absl::Status ProbeApi(Api api) {
  int driver = 0;
  const int driver_code = api.cuda.DriverGetVersion(&driver);
  if (driver_code != kCudaSuccess || driver == 0) {
    return absl::UnavailableError(
        "no NVIDIA driver here (libcuda.so.1): run on a machine with one, in a container with "
        "--gpus all");
  }
  int devices = 0;
  const int code = api.cuda.GetDeviceCount(&devices);
  if (code == kCudaErrorNoDevice || (code == kCudaSuccess && devices == 0)) {
    return absl::UnavailableError(
        "the NVIDIA driver shows no GPU: see nvidia-smi, and CUDA_VISIBLE_DEVICES");
  }
  if (code != kCudaSuccess) {
    return absl::UnavailableError(
        absl::StrCat("cudaGetDeviceCount: ", api.cuda.GetErrorString(code), " (",
                     api.cuda.GetErrorName(code), "), with a driver for CUDA ", driver / 1000, ".",
                     driver % 1000 / 10, "; install one for the runtime's version"));
  }
  return absl::OkStatus();
}

absl::Status Probe() {
  SUMONCE_ASSIGN_OR_RETURN(const Api api, Load());
  return ProbeApi(api);
}

int DeviceCount() {
  const absl::StatusOr<Api> api = Load();
  int devices = 0;
  if (!api.ok() || !ProbeApi(*api).ok()) return 0;
  return api->cuda.GetDeviceCount(&devices) == kCudaSuccess ? devices : 0;
}

}  // namespace sumonce::nccl
