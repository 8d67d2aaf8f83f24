// The safetensors reader: any bytes are refused with a message, or every tensor can be read.
#include "base/safetensors.h"
#include "tests/fuzz/file_of.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const sumonce::fuzz::FileOf file(data, size);
  const auto reader = sumonce::SafetensorsReader::Open(file.path());
  if (!reader.ok()) return reader.status().message().empty() ? std::abort(), 0 : 0;
  for (const auto& [name, info] : reader->tensors()) {
    const auto values = reader->Read(name);
    if (values.ok() && static_cast<int64_t>(values->size()) != info.count()) __builtin_trap();
  }
  return 0;
}
