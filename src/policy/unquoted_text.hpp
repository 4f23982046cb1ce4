// Finds the most common mistake in a TOML file, which the parser's own messages do not name: codec = int8.
#pragma once

#include <string_view>

namespace gradwire::policy {

/// The value at this place of a text that is not TOML, if it is text that lacks its quotes: `int8`, `64KiB`,
/// `topk(1%)+int8`; otherwise empty. Line and column count from 1; the column may be the one behind the value.
[[nodiscard]] std::string_view unquoted_text(std::string_view text, int line, int column);

}  // namespace gradwire::policy
