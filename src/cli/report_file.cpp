#include "cli/report_file.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "base/own_files.hpp"
#include "base/read_file.hpp"
#include "base/report_place.hpp"
#include "base/text.hpp"
#include "gradwire/error.hpp"
#include "watch/page/page.hpp"
#include "watch/textfile.hpp"

namespace gradwire::cli {

namespace page = watch::page;

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kProcess = "%p";
constexpr std::size_t kMostBytes = std::size_t{256} << 20;

[[noreturn]] void refuse_report(const std::string& what) { throw Error(ErrorCode::invalid_argument, what); }

// The reason why a folder cannot be written to; empty: it can.
std::string why_not_writable(const fs::path& folder) {
  return ::access(folder.c_str(), W_OK) == 0 ? "" : text::reason_of(errno);
}

bool is_history(const fs::path& file) {
  const std::string name = file.filename().string();
  std::error_code ignored;
  return watch::is_rank_file(name, ".history") && fs::is_regular_file(file, ignored);
}

void remove_histories(const fs::path& directory) {
  std::error_code problem;
  for (fs::directory_iterator entry(directory, problem), end; !problem && entry != end; entry.increment(problem)) {
    std::error_code ignored;
    if (is_history(entry->path())) {
      fs::remove(entry->path(), ignored);
    }
  }
}

/// Whether the file is a report of replaced calls: a file of another program must not be removed.
bool is_report(const fs::path& file) {
  try {
    const auto root = nlohmann::json::parse(read_file(file, kMostBytes, "report"), nullptr, false);
    return root.is_object() && root.contains("gradwire") && root.contains("classes") && root.contains("totals");
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

ReportFile::ReportFile(const std::optional<std::string>& option, bool for_script) {
  if (option && option->empty()) {
    refuse_report("--report has an empty name; name a directory, or a file that ends in .json");
  }
  const std::optional<ReportPlace> place =
      option ? report_place(fs::absolute(*option).string()) : report_place_of_environment();
  if (place && place->directory) {
    use_directory(*place->directory, place->calls);
  } else {
    file_ = place ? fs::path(place->calls) : make_folder() / (for_script ? "report-%p.json" : "report.json");
    if (const std::string why = fs::is_directory(file_) ? "it is a folder" : why_not_writable(file_.parent_path());
        !why.empty()) {
      refuse_report("the report " + file_.string() + " cannot be written (" + why +
                    "); name a file in a folder that is there");
    }
  }
  clear_away();
}

// Removes files of earlier jobs, which would be taken for this job's.
void ReportFile::clear_away() {
  for (const fs::path& earlier : written()) {
    std::error_code ignored;
    if (is_report(earlier)) {
      fs::remove(earlier, ignored);
    } else if (earlier == file_ && fs::file_size(earlier, ignored) != 0) {
      refuse_report(earlier.string() + " is no report of gradwire, and would be lost; name another file, or remove it");
    } else {
      foreign_.push_back(earlier);
    }
  }
}

void ReportFile::use_directory(const fs::path& directory, const std::string& calls) {
  std::error_code problem;
  if (fs::exists(directory, problem) && !fs::is_directory(directory, problem)) {
    refuse_report("the report " + directory.string() + " is a file; name a directory, or a file that ends in .json");
  }
  make_own_folders(directory, problem);
  if (const std::string why = problem ? problem.message() : why_not_writable(directory); !why.empty()) {
    refuse_report("the report's directory " + directory.string() + " cannot be written (" + why +
                  "); name one below a folder that can");
  }
  page::refuse_foreign(page::files_in(directory));  // checked before the job, which may take long
  directory_ = directory;
  file_ = calls;
  remove_histories(directory);
}

void ReportFile::forget() const {
  for (const fs::path& earlier : written()) {
    std::error_code ignored;
    fs::remove(earlier, ignored);
  }
  if (directory_) {
    remove_histories(*directory_);
  }
}

bool ReportFile::has_histories() const {
  std::error_code problem;
  if (directory_) {
    for (fs::directory_iterator entry(*directory_, problem), end; !problem && entry != end; entry.increment(problem)) {
      if (entry->path().extension() == ".history") {
        return true;
      }
    }
  }
  return false;
}

std::vector<fs::path> ReportFile::written() const {
  const std::string name = file_.filename().string();
  const std::size_t mark = name.find(kProcess);
  std::error_code ignored;
  if (mark == std::string::npos) {
    return fs::exists(file_, ignored) ? std::vector{file_} : std::vector<fs::path>();
  }
  const std::string end = name.substr(mark + kProcess.size());
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(file_.parent_path(), ignored)) {
    const std::string other = entry.path().filename().string();
    const std::size_t digits = other.find_first_not_of("0123456789", std::min(mark, other.size()));
    if (other.substr(0, mark) == name.substr(0, mark) && digits != mark && other.size() > mark &&
        other.substr(std::min(digits, other.size())) == end &&
        std::find(foreign_.begin(), foreign_.end(), entry.path()) == foreign_.end()) {
      found.push_back(entry.path());
    }
  }
  std::sort(found.begin(), found.end(), [&](const fs::path& a, const fs::path& b) {
    return fs::last_write_time(a, ignored) < fs::last_write_time(b, ignored);
  });
  return found;
}

const fs::path& ReportFile::make_folder() {
  folder_ = std::make_unique<TemporaryFolder>();
  return folder_->path();
}

}  // namespace gradwire::cli
