// Reads the text of metrics that src/export writes: Prometheus' format without what gradwire does not use of it.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gradwire::watch::live {

struct TextSample {
  std::string name;
  std::vector<std::pair<std::string, std::string>> labels;
  double value = 0;

  /// Empty where there is none.
  [[nodiscard]] std::string_view label(std::string_view wanted) const;
};

/// In the order of the text. Error(invalid_argument) "line 3: ..." for what is no such text, or does not end with
/// "# EOF".
[[nodiscard]] std::vector<TextSample> parse_metrics(std::string_view text);

}  // namespace gradwire::watch::live
