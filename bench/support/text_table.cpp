#include "bench/support/text_table.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <sstream>

namespace gradwire::bench {
namespace {

std::string print(const char* format, int digits, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, digits, value);
  return text;
}

bool starts_like_number(const std::string& cell) {
  const char first = cell.empty() ? ' ' : cell[0];
  return std::isdigit(static_cast<unsigned char>(first)) != 0 || first == '-' || first == '+' || first == '.';
}

}  // namespace

std::string fixed(double value, int digits) { return std::isnan(value) ? "-" : print("%.*f", digits, value); }

std::string scientific(double value) {
  if (std::isnan(value)) {
    return "-";
  }
  return value == 0 ? "0" : print("%.*e", 1, value);
}

std::string TextTable::to_text() const {
  std::vector<std::size_t> widths;
  for (std::size_t column = 0; column < header_.size(); ++column) {
    std::size_t width = header_[column].size();
    for (const auto& row : rows_) {
      width = std::max(width, row[column].size());
    }
    widths.push_back(width);
  }
  std::string text;
  const auto line = [&](const std::vector<std::string>& cells, const std::vector<std::string>& like) {
    for (std::size_t column = 0; column < cells.size(); ++column) {
      const std::string gap(widths[column] - cells[column].size(), ' ');
      text +=
          (column == 0 ? "" : "  ") + (starts_like_number(like[column]) ? gap + cells[column] : cells[column] + gap);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  };
  line(header_, rows_.empty() ? header_ : rows_.front());
  for (const auto& row : rows_) {
    line(row, row);
  }
  return text;
}

std::string TextTable::to_markdown() const {
  const auto line = [](const std::vector<std::string>& cells, const std::string& blank) {
    std::string text;
    for (const auto& cell : cells) {
      text += "|" + blank + cell + blank;
    }
    return text + "|\n";
  };
  const auto too_wide = [&](const std::vector<std::string>& cells) {
    return line(cells, " ").size() > kDocumentColumns + 1;
  };
  const bool narrow = too_wide(header_) || std::any_of(rows_.begin(), rows_.end(), too_wide);
  const std::string blank = narrow ? "" : " ";
  std::string text = line(header_, blank) + line(std::vector<std::string>(header_.size(), "---"), blank);
  for (const auto& row : rows_) {
    text += line(row, blank);
  }
  return text;
}

std::string to_document(const std::string& head, const TextTable& table) {
  std::string text;
  std::istringstream lines(head);
  for (std::string line; std::getline(lines, line);) {
    while (line.size() > kDocumentColumns) {
      const std::size_t end = line.rfind(' ', kDocumentColumns);
      if (end == std::string::npos || end == 0) {
        break;
      }
      text += line.substr(0, end) + "\n";
      line.erase(0, end + 1);
    }
    text += line + "\n";
  }
  return text + "\n" + table.to_markdown();
}

}  // namespace gradwire::bench
