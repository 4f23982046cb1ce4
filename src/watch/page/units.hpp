// Formats numbers for a page, and texts as HTML.
#pragma once

#include <string>
#include <string_view>

namespace gradwire::watch::page {

enum class Unit { count, seconds, bytes, rate, bits, share, factor, plain };

/// "64 KiB", "1 GiB": for sizes that are powers of two.
[[nodiscard]] std::string binary_size(double bytes);

/// "12,345", "12.3 ms", "1.23 GB", "1.23 GB/s", "240 Mbit/s", "31%", "3.88", "0.0123". "-" for a number that is not
/// finite, or below 0 and no plain one.
[[nodiscard]] std::string shown(Unit unit, double value);
/// "s" for seconds and so on: the mark of a number in the page, by which a test reads it.
[[nodiscard]] std::string_view mark_of(Unit unit);

/// The text escaped, safe between tags and in quoted attributes.
[[nodiscard]] std::string escaped(std::string_view text);

}  // namespace gradwire::watch::page
