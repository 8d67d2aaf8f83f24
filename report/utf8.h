// Text as protobuf and JSON demand it.
#pragma once

#include <string>
#include <string_view>

namespace sumonce {

// `text` with '?' for each byte that is not part of a well-formed UTF-8 character (RFC 3629).
std::string ToUtf8(std::string_view text);

}  // namespace sumonce
