// Text laid out for a terminal: aligned tables and wrapped lists. Widths are counted in UTF-8
// characters.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "verify/verdict.h"

namespace sumonce {

// One row of cells per entry; columns padded to their widest cell and two blanks apart. `left`
// columns from the left are aligned to the left, the others to the right. Each line starts with
// `indent` blanks, has no trailing ones and ends with a newline.
std::string AlignedRows(const std::vector<std::vector<std::string>>& rows, int indent, int left);

// A table of tensor by rank: title, columns, rows.
std::string RankTableText(const RankTable& table, int indent);

// A table of words: title, columns, rows.
std::string TextTableText(const TextTable& table, int indent);

// The items three blanks apart, as many on a line as fit into 100 columns; every line indented.
std::string WrappedItems(std::span<const std::string> items, int indent);

}  // namespace sumonce
