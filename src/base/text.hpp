// Small pieces of text that plans, reports and messages print.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gradwire::text {

/// In double quotes; control bytes, quotes and backslashes escaped, so that it stays on one line.
[[nodiscard]] std::string quote(std::string_view text);

/// Columns as wide as their widest cell, two spaces apart; the first row is the head. `right` holds 'r' for each column
/// that is right-aligned, else 'l'.
[[nodiscard]] std::string table(const std::vector<std::vector<std::string>>& rows, std::string_view alignment);

}  // namespace gradwire::text
