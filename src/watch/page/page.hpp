// The page of a job: one HTML file that needs nothing else.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "watch/page/summary.hpp"

namespace gradwire::watch::page {

/// Of to_json(Summary). Each number has an attribute data-n with its place in that JSON, and data-u with its unit.
[[nodiscard]] std::string to_html(const nlohmann::ordered_json& report);

[[nodiscard]] std::string_view style_sheet();

struct PageFiles {
  std::filesystem::path html;
  std::filesystem::path json;
};
[[nodiscard]] inline PageFiles files_in(const std::filesystem::path& folder) {
  return {folder / "report.html", folder / "report.json"};
}
/// Error(invalid_argument) that names the file where one of them is there, holds something and was not made by
/// write_page(): it would be lost.
void refuse_foreign(const PageFiles& files);
/// refuse_foreign(); then reads the histories of a folder and writes both files, whole or not at all. What a reader of
/// the page should know before is in Summary::notes. Error that names the file or the folder.
Summary write_page(const std::filesystem::path& folder, const PageFiles& files);

}  // namespace gradwire::watch::page
