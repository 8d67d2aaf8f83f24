// Matching and suggesting names: globs of parameters and scenarios, "did you mean".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sumonce {

// Whether the whole of `name` matches `pattern`: '*' is any run of characters (dots and slashes
// too, also none), '?' any one, "{a,b}" either of the alternatives, which may hold wildcards and
// further braces. A brace without its partner stands for itself. Case matters.
bool GlobMatches(std::string_view pattern, std::string_view name);

// The choice nearest to `word` by edits (swaps of neighbours are one; case aside), for "did you
// mean"; the first of equals. Empty if none is near: more than a third of the longer word's letters
// (but at least one) would have to change.
std::string Closest(std::string_view word, const std::vector<std::string>& choices);

// `text` as a terminal may show it: control characters but the line's end and tabs are written as
// \xNN, so that a name from a file or an argument cannot move the cursor or change colours.
std::string Printable(std::string_view text);

}  // namespace sumonce
