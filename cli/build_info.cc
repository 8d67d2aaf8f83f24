#include "cli/build_info.h"

#include <gnu/libc-version.h>
#include <google/protobuf/stubs/common.h>
#include <link.h>

#include <boost/version.hpp>
#include <filesystem>

#include "CLI/Version.hpp"
#include "absl/strings/str_cat.h"
#include "report/text_table.h"
#include "report/version.h"

namespace sumonce {
namespace {

std::vector<std::string> LoadedObjects() {
  std::vector<std::string> paths;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        static_cast<std::vector<std::string>*>(data)->push_back(info->dlpi_name);
        return 0;
      },
      &paths);
  return paths;
}

// The full file name of the loaded object whose name starts with `stem`, links resolved.
std::string Loaded(const std::string& stem) {
  for (const std::string& path : LoadedObjects()) {
    const std::filesystem::path object(path);
    if (object.filename().string().rfind(stem, 0) != 0) continue;
    std::error_code error;
    const auto real = std::filesystem::canonical(object, error);
    return (error ? object : real).filename().string();
  }
  return "inside the program";
}

std::string Protobuf() {
  return absl::StrCat(GOOGLE_PROTOBUF_VERSION / 1000000, ".", GOOGLE_PROTOBUF_VERSION / 1000 % 1000,
                      ".", GOOGLE_PROTOBUF_VERSION % 1000);
}

std::string Boost() {
  return absl::StrCat(BOOST_VERSION / 100000, ".", BOOST_VERSION / 100 % 1000, ".",
                      BOOST_VERSION % 100);
}

}  // namespace

std::vector<LibraryVersion> LibraryVersions() {
  return {{"protobuf", Protobuf(), Loaded("libprotobuf.")},
          {"abseil", SUMONCE_ABSEIL_VERSION, Loaded("libabsl_status.")},
          {"boost.context", Boost(), Loaded("libboost_context.")},
          {"sleef", SUMONCE_SLEEF_VERSION, Loaded("libsleef.")},
          {"CLI11", CLI11_VERSION, "inside the program"},
          {"libc", absl::StrCat(__GLIBC__, ".", __GLIBC_MINOR__), gnu_get_libc_version()}};
}

std::string CompilerText() {
  return absl::StrCat(SUMONCE_COMPILER, ", C++", __cplusplus / 100 % 100, ", ", SUMONCE_BUILD_TYPE);
}

std::string VersionText() {
  std::vector<std::vector<std::string>> rows = {{"library", "build", "run time"}};
  for (const LibraryVersion& library : LibraryVersions())
    rows.push_back({library.name, library.build, library.run_time});
  std::string text =
      absl::StrCat("sumonce ", Version(), "\n", CompilerText(), "\n", AlignedRows(rows, 0, 3));
  text.pop_back();  // the last newline is whoever prints it
  return text;
}

}  // namespace sumonce
