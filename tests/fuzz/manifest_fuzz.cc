// A manifest in JSON: refused with all its mistakes, or read.
#include <string>

#include "capture/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto manifest = sumonce::capture::ParseManifestJson(text, "fuzz");
  if (!manifest.ok() && manifest.status().message().empty()) __builtin_trap();
  return 0;
}
