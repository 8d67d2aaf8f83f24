// What this build was made with, and what it runs with.
#pragma once

#include <string>
#include <vector>

namespace sumonce {

struct LibraryVersion {
  std::string name;   // "protobuf"
  std::string build;  // of the headers: "3.21.12"
  std::string
      run_time;  // of what is loaded: "libprotobuf.so.32.0.12", "inside the program", "libc 2.36"
};

std::vector<LibraryVersion> LibraryVersions();

// "GNU 12.2.0, C++20, Release"
std::string CompilerText();

// "sumonce 0.1.0", the compiler, and a line per library.
std::string VersionText();

}  // namespace sumonce
