// The page of a job: one HTML file that needs no other files.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "watch/page/summary.hpp"

namespace gradwire::watch::page {

/// The page for a to_json(Summary). Each number has an attribute data-n with its place in that JSON, and data-u with
/// its unit.
[[nodiscard]] std::string to_html(const nlohmann::ordered_json& report);

[[nodiscard]] std::string_view style_sheet();
/// A whole page of this body, with the style sheet in it and a footer that names the version.
[[nodiscard]] std::string page_frame(const std::string& title, const std::string& body, const std::string& version);

struct PageFiles {
  std::filesystem::path html;
  std::filesystem::path json;
};
[[nodiscard]] inline PageFiles files_in(const std::filesystem::path& folder) {
  return {folder / "report.html", folder / "report.json"};
}
/// Throws Error(invalid_argument), which names the file, where one of them exists, is not empty and was not made by
/// write_page(), since it would be lost.
void refuse_foreign(const PageFiles& files);
/// Writes both files, each completely or not at all, and the folders where they are missing.
void write_files(const PageFiles& files, const nlohmann::ordered_json& numbers, const std::string& html);
/// Calls refuse_foreign(), then reads the histories of a job in a folder (see newest_job()) and writes both files,
/// completely or not at all.
/// Remarks for readers of the page are in Summary::notes. Throws an Error that names the file or the folder.
Summary write_page(const std::filesystem::path& folder, const PageFiles& files,
                   const std::optional<std::string>& job = std::nullopt);

}  // namespace gradwire::watch::page
