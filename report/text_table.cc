#include "report/text_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "report/describe.h"

namespace sumonce {
namespace {

constexpr size_t kLineWidth = 100;

size_t Width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;  // not a UTF-8 continuation
  }));
}

std::vector<size_t> ColumnWidths(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  return widths;
}

void TrimRight(std::string& line) { line.erase(line.find_last_not_of(' ') + 1); }

}  // namespace

std::string AlignedRows(const std::vector<std::vector<std::string>>& rows, int indent, int left) {
  const std::vector<size_t> widths = ColumnWidths(rows);
  std::string text;
  for (const auto& row : rows) {
    std::string line(static_cast<size_t>(indent), ' ');
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - Width(row[i]), ' ');
      if (i > 0) line += "  ";
      line += static_cast<int>(i) < left ? row[i] + padding : padding + row[i];
    }
    TrimRight(line);
    text += line + '\n';
  }
  return text;
}

std::string RankTableText(const RankTable& table, int indent) {
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> head = {""};
  head.insert(head.end(), table.columns.begin(), table.columns.end());
  rows.push_back(std::move(head));
  for (const RankTable::Row& row : table.rows) {
    std::vector<std::string> cells = {row.name};
    for (const double value : row.values) cells.push_back(NumberText(value));
    rows.push_back(std::move(cells));
  }
  return absl::StrCat(std::string(static_cast<size_t>(indent), ' '), table.title, "\n",
                      AlignedRows(rows, indent + 2, 1));
}

std::string TextTableText(const TextTable& table, int indent) {
  std::vector<std::vector<std::string>> rows = {table.columns};
  rows.insert(rows.end(), table.rows.begin(), table.rows.end());
  return absl::StrCat(std::string(static_cast<size_t>(indent), ' '), table.title, "\n",
                      AlignedRows(rows, indent + 2, static_cast<int>(table.columns.size())));
}

std::string WrappedItems(std::span<const std::string> items, int indent) {
  const std::string blanks(static_cast<size_t>(indent), ' ');
  std::string text, line;
  for (const std::string& item : items) {
    if (!line.empty() && Width(line) + 3 + Width(item) > kLineWidth) {
      text += line + '\n';
      line.clear();
    }
    line += (line.empty() ? blanks : "   ") + item;
  }
  if (!line.empty()) text += line + '\n';
  return text;
}

}  // namespace sumonce
