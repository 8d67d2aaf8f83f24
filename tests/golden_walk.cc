// Which tensors of the golden files no test has read. Arguments: the folder of the files, the list
// of those that wait, the log that tests/golden.h wrote. A line for each tensor that is missing;
// exit 1 then, or when the list names what is not there.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <sstream>
#include <vector>

#include "base/safetensors.h"
#include "base/text.h"

namespace sumonce {
namespace {

constexpr char kSuffix[] = ".f64.safetensors";

using Tensors = std::set<std::string>;
using Files = std::map<std::string, Tensors>;

struct Waiting {
  std::string file, tensor, what;  // globs; what they wait for
};

// "file tensor": what was read.
Files ReadLog(const char* path) {
  std::ifstream log(path);
  Files files;
  for (std::string file, tensor; log >> file >> tensor;) files[file].insert(tensor);
  return files;
}

std::vector<Waiting> ReadWaiting(const char* path) {
  std::ifstream list(path);
  std::vector<Waiting> waiting;
  for (std::string line; std::getline(list, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    Waiting entry;
    words >> entry.file >> entry.tensor >> std::ws;
    std::getline(words, entry.what);
    waiting.push_back(entry);
  }
  return waiting;
}

Files Stored(const char* folder) {
  Files files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (!name.ends_with(kSuffix)) continue;
    const auto reader = SafetensorsReader::Open(entry.path());
    if (!reader.ok()) {
      std::cerr << reader.status() << "\n";
      std::exit(1);
    }
    Tensors& tensors = files[name.substr(0, name.size() + 1 - sizeof kSuffix)];
    for (const auto& [tensor, info] : reader->tensors()) tensors.insert(tensor);
  }
  return files;
}

const Waiting* WaitsFor(const std::vector<Waiting>& waiting, const std::string& file,
                        const std::string& tensor) {
  for (const Waiting& entry : waiting) {
    if (GlobMatches(entry.file, file) && GlobMatches(entry.tensor, tensor)) return &entry;
  }
  return nullptr;
}

int Walk(const char* folder, const char* list, const char* log) {
  const std::vector<Waiting> waiting = ReadWaiting(list);
  const Files read = ReadLog(log);
  std::map<const Waiting*, int> seen;
  int missing = 0, consumed = 0;
  const Files stored = Stored(folder);
  for (const auto& [file, tensors] : stored) {
    const auto found = read.find(file);
    for (const std::string& tensor : tensors) {
      if (const Waiting* entry = WaitsFor(waiting, file, tensor)) {
        ++seen[entry];
      } else if (found != read.end() && found->second.contains(tensor)) {
        ++consumed;
      } else {
        ++missing;
        std::cout << "no test reads " << file << " " << tensor << "\n";
      }
    }
  }
  for (const Waiting& entry : waiting) {
    if (seen[&entry] > 0) continue;
    ++missing;
    std::cout << list << " names " << entry.file << " " << entry.tensor << ", which is not there\n";
  }
  int waits = 0;
  for (const auto& [entry, count] : seen) waits += count;
  std::cout << stored.size() << " files: " << consumed << " tensors read, " << waits << " waiting, "
            << missing << " missing\n";
  return missing == 0 ? 0 : 1;
}

}  // namespace
}  // namespace sumonce

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: golden_walk FOLDER WAITING LOG\n";
    return 4;
  }
  return sumonce::Walk(argv[1], argv[2], argv[3]);
}
