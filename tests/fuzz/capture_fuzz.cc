// A rank's file of a capture, header and metadata: refused with all mistakes, or a manifest.
#include "capture/manifest.h"
#include "tests/fuzz/file_of.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const sumonce::fuzz::FileOf file(data, size);
  const auto manifests = sumonce::capture::LoadManifests(file.path());
  if (!manifests.ok() && manifests.status().message().empty()) __builtin_trap();
  return 0;
}
