// Makes text tables: columns are as wide as their widest cell, and numbers are aligned to the right.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace gradwire::bench {

/// The widest line of a document (tests/repository).
inline constexpr std::size_t kDocumentColumns = 140;

class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header) : header_(std::move(header)) {}
  /// Adds a row, which has as many cells as the header.
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  /// Returns aligned plain text, one line per row.
  [[nodiscard]] std::string to_text() const;
  /// Returns the same as a Markdown table, without blanks around its cells if a line would be wider than
  /// kDocumentColumns.
  [[nodiscard]] std::string to_markdown() const;

 private:
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
};

/// Returns a Markdown document: the lines of `head`, broken at blanks if they are too wide, and the table below.
[[nodiscard]] std::string to_document(const std::string& head, const TextTable& table);

/// Returns `value` with `digits` after the point; "-" for NaN, which stands for "not known".
[[nodiscard]] std::string fixed(double value, int digits);
/// Returns a text such as "3.1e-04"; "0" and "-" for zero and NaN.
[[nodiscard]] std::string scientific(double value);

}  // namespace gradwire::bench
