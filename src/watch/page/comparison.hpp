// Two runs on one page: the table and the curves of both.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "watch/page/charts.hpp"
#include "watch/page/page.hpp"

namespace gradwire::watch::page {

/// `a`, `b`: to_json() of the runs. The result has them as "runs".
[[nodiscard]] Json comparison(const Json& a, const Json& b);
/// Returns what is missing of the runs of a comparison(), each note after the name of its run, "A: " or "B: ".
[[nodiscard]] std::vector<std::string> comparison_notes(const Json& root);
/// The page for a comparison().
[[nodiscard]] std::string comparison_html(const Json& root);

struct RunPlace {
  std::filesystem::path folder;
  std::optional<std::string> job;  // none: the one that began last
};
/// Reads both runs and writes page and numbers, as write_page() does. Returns the numbers, in which each run has its
/// notes on what is missing.
Json write_comparison(const RunPlace& a, const RunPlace& b, const PageFiles& files);

}  // namespace gradwire::watch::page
