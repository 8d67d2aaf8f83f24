// One rank's file of a capture, audited alone and against itself: refused, or judged for what it
// holds.
#include <cstdlib>
#include <filesystem>
#include <string>

#include "capture/audit/audit.h"
#include "tests/fuzz/file_of.h"

namespace {

namespace fs = std::filesystem;

// A capture of one step and rank, whose file is the bytes at hand.
class FolderOf {
 public:
  explicit FolderOf(const std::string& file) {
    fs::remove(link());
    fs::create_symlink(file, link());
  }
  const std::string& path() const { return Root(); }

 private:
  static const std::string& Root() {
    static const std::string& root = *new std::string([] {
      std::string pattern = fs::temp_directory_path().string() + "/audit_fuzz_XXXXXX";
      if (mkdtemp(pattern.data()) == nullptr) std::abort();
      fs::create_directories(pattern + "/step-0001");
      return pattern;
    }());
    return root;
  }
  static std::string link() { return Root() + "/step-0001/rank-0.safetensors"; }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const sumonce::fuzz::FileOf file(data, size);
  const FolderOf folder(file.path());
  for (const std::string& against : {std::string(), folder.path()}) {
    const auto audit =
        sumonce::capture::AuditCapture(folder.path(), {.against = against, .threads = 1});
    if (!audit.ok() && audit.status().message().empty()) __builtin_trap();
  }
  return 0;
}
