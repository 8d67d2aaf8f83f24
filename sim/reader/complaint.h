// What the text parser complains about, in the user's words, and how to go on behind it.
#pragma once

#include <cstddef>
#include <string>

namespace sumonce {

struct Complaint {
  size_t offset = 0;  // where the parser stood: at the mistake or just behind it
  std::string said;
};

struct Understood {
  size_t at = 0;  // where the mistake is
  std::string message;
  // The text without the mistake, all else in its place; empty: nothing can be said about the rest.
  std::string mended;
};

// `text`: as it was parsed.
Understood Understand(const std::string& text, const Complaint& complaint);

}  // namespace sumonce
