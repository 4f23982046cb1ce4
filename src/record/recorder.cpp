#include "record/recorder.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <ostream>
#include <system_error>

#include "base/durable_file.hpp"
#include "base/own_files.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "gradwire/error.hpp"
#include "record/gradient_folder.hpp"
#include "record/json_of_files.hpp"
#include "record/npy.hpp"

namespace gradwire::record {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostFileNameBytes = 100;

[[noreturn]] void refuse_recording(const fs::path& folder, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, "gradients cannot be recorded in " + folder.string() + ": " + what);
}

void make_folder(const fs::path& folder) {
  std::error_code problem;
  make_own_folders(folder, problem);
  if (problem) {
    refuse_recording(folder, problem.message() + "; name a directory below a folder that can be written");
  }
}

// The folder by a name that stays right where the program changes its directory.
fs::path absolute_folder(const fs::path& folder) {
  std::error_code problem;
  fs::path whole = fs::absolute(folder, problem);
  if (problem) {
    refuse_recording(folder, problem.message() + "; name a directory below a folder that can be written");
  }
  return whole;
}

}  // namespace

std::string safe_file_name(std::string_view name) {
  std::string safe(name.substr(0, kMostFileNameBytes));
  std::replace_if(
      safe.begin(), safe.end(), [](char c) { return !text::is_plain(c); }, '_');
  if (safe.empty()) {
    return "tensor";
  }
  if (safe.front() == '.') {
    safe.front() = '_';
  }
  return safe;
}

void check_recording_folder(const fs::path& folder) {
  std::error_code ignored;
  if (fs::exists(folder / kIndexFile, ignored)) {
    refuse_recording(folder, "it holds gradients of an earlier recording (" + std::string(kIndexFile) +
                                 "); name another directory, or remove this one");
  }
  if (fs::exists(folder, ignored) && !fs::is_directory(folder, ignored)) {
    refuse_recording(folder, "it is a file; name a directory");
  }
  fs::path there = absolute_folder(folder);
  while (!fs::exists(there, ignored) && there.has_relative_path()) {
    there = there.parent_path();
  }
  if (::access(there.c_str(), W_OK) != 0) {
    refuse_recording(folder, text::reason_of(errno) + "; name a directory below a folder that can be written");
  }
}

Recorder::Recorder(const fs::path& folder, int rank, int ranks)
    : folder_(absolute_folder(folder)), rank_(rank), ranks_(ranks) {
  check_recording_folder(folder_);
  make_folder(folder_);
}

const std::string& Recorder::file_of(std::string_view name) {
  const auto found = files_.find(name);
  if (found != files_.end()) {
    return found->second;
  }
  const std::string safe = safe_file_name(name);
  std::string file = safe + ".npy";
  for (int number = 2; !taken_.insert(file).second; ++number) {
    file = safe + "~" + std::to_string(number) + ".npy";
  }
  return files_.emplace(std::string(name), std::move(file)).first->second;
}

void Recorder::add(std::uint64_t step, std::string_view name, ConstView values) {
  const std::string within = "step-" + std::to_string(step);
  const std::string& file = file_of(name);
  if (made_ != step) {
    make_folder(folder_ / within);
    made_ = step;
  }
  write_report_file(folder_ / within / file, [&](std::ostream& out) {
    const std::string header = npy_header(values.dtype, values.count);
    out.write(header.data(), static_cast<std::streamsize>(header.size()));
    out.write(static_cast<const char*>(values.data),
              static_cast<std::streamsize>(values.count * element_bytes(values.dtype)));
  });
  const auto [found, is_new] = index_.try_emplace({step, std::string(name)}, written_.size());
  if (is_new) {
    written_.emplace_back();
  }
  written_[found->second] = {.name = std::string(name),
                             .step = step,
                             .file = within + "/" + file,
                             .dtype = values.dtype,
                             .count = values.count};
}

void Recorder::write_index() const {
  nlohmann::ordered_json index{{"schema", kIndexSchema}, {"rank", rank_}, {"ranks", ranks_}};
  nlohmann::ordered_json& gradients = index["gradients"] = nlohmann::ordered_json::array();
  for (const Written& written : written_) {
    gradients.push_back({{"name", written.name},
                         {"step", written.step},
                         {"file", written.file},
                         {"dtype", to_string(written.dtype)},
                         {"count", written.count}});
  }
  // Bytes of a name that are no UTF-8 are replaced.
  const std::string text = index.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
  if (text.size() > kMostJsonBytes) {
    refuse_recording(folder_, std::string(kIndexFile) + " would have more than " + format_bytes(kMostJsonBytes) +
                                  "; record fewer steps");
  }
  write_report_file(folder_ / kIndexFile, [&](std::ostream& out) { out << text; });
}

}  // namespace gradwire::record
