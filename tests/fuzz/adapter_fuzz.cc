// An adapter's two files: four bytes with the length of adapter_config.json, that, and the rest as
// adapter_model.safetensors. Refused by name, or inspected.
#include <stdlib.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "capture/inspect/inspect.h"

namespace {

// Of this process, removed with it.
class AdapterFolder {
 public:
  AdapterFolder() {
    std::string pattern = std::filesystem::temp_directory_path() / "adapter_fuzz_XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~AdapterFolder() { std::filesystem::remove_all(path_); }
  void Write(const char* name, std::string_view bytes) const {
    std::ofstream(path_ + "/" + name, std::ios::binary | std::ios::trunc) << bytes;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const AdapterFolder folder;
  uint32_t length = 0;
  if (size < sizeof(length)) return 0;
  std::memcpy(&length, data, sizeof(length));
  const std::string_view rest(reinterpret_cast<const char*>(data) + sizeof(length),
                              size - sizeof(length));
  folder.Write("adapter_config.json", rest.substr(0, length));
  folder.Write("adapter_model.safetensors", rest.substr(std::min<size_t>(length, rest.size())));
  const auto report = sumonce::inspect::InspectAdapter(folder.path());
  if (!report.ok() && report.status().message().empty()) __builtin_trap();
  if (report.ok()) static_cast<void>(sumonce::inspect::ToResult(*report));
  return 0;
}
