// Reads the text of metrics that gradwire writes: the part of Prometheus' format that it uses.
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

/// The samples in the order of the text. Error(invalid_argument) "line 3: ..." for any other text, or one that does not
/// end with "# EOF".
[[nodiscard]] std::vector<TextSample> parse_metrics(std::string_view text);

}  // namespace gradwire::watch::live
