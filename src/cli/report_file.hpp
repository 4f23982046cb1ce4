// The file or directory where the ranks of `gradwire run` write their reports.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/temporary.hpp"

namespace gradwire::cli {

/// The file (".json") or directory that the user named, or a file in a temporary folder of our own. A script may start
/// several jobs; "%p" in the name then keeps them apart. Histories and reports of replaced calls that an earlier job
/// left there are removed. A page stays until there is a new one.
class ReportFile {
 public:
  /// `option`: from the command line; without it GRADWIRE_REPORT is used. Throws an Error where it cannot be written.
  ReportFile(const std::optional<std::string>& option, bool for_script);
  ReportFile(const ReportFile&) = delete;
  ReportFile& operator=(const ReportFile&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return file_; }
  [[nodiscard]] bool named() const noexcept { return folder_ == nullptr; }
  /// The value of GRADWIRE_REPORT for the ranks.
  [[nodiscard]] std::string variable() const { return directory_ ? directory_->string() : file_.string(); }
  /// The directory that the user named, which gets the page.
  [[nodiscard]] const std::optional<std::filesystem::path>& directory() const noexcept { return directory_; }
  /// Removes the files that the job has written so far, before it starts again.
  void forget() const;
  [[nodiscard]] bool has_histories() const;
  /// The reports that are there, in the order in which jobs ended.
  [[nodiscard]] std::vector<std::filesystem::path> written() const;

 private:
  const std::filesystem::path& make_folder();
  void clear_away();
  void use_directory(const std::filesystem::path& directory, const std::string& calls);

  std::unique_ptr<TemporaryFolder> folder_;  // none: the user named the file
  std::filesystem::path file_;
  std::optional<std::filesystem::path> directory_;
  std::vector<std::filesystem::path> foreign_;  // files that were there before, and are no reports
};

}  // namespace gradwire::cli
