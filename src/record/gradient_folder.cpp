#include "record/gradient_folder.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/read_file.hpp"
#include "base/text.hpp"
#include "gradwire/error.hpp"
#include "record/json_of_files.hpp"

namespace gradwire::record {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::size_t kMostFiles = 1'000'000;
constexpr std::string_view kStepPrefix = "step-";

[[noreturn]] void refuse_folder(const fs::path& file, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, file.string() + ": " + what);
}

// Whether the file lies below the folder; a name in an index must not lead elsewhere.
bool lies_below(const fs::path& file) {
  return !file.empty() && file.is_relative() &&
         std::none_of(file.begin(), file.end(), [](const fs::path& part) { return part == ".."; });
}

StoredGradient read_entry(const fs::path& folder, const json& entry, const std::string& place) {
  const auto text_of = [&](const char* key) -> std::string {
    const auto found = entry.is_object() ? entry.find(key) : entry.end();
    if (found == entry.end() || !found->is_string()) {
      refuse_folder(folder / kIndexFile, place + ": " + key + " is missing, or no string; record the gradients again");
    }
    return found->get<std::string>();
  };
  const auto number_of = [&](const char* key) -> std::uint64_t {
    const auto found = entry.is_object() ? entry.find(key) : entry.end();
    if (found == entry.end() || !found->is_number_unsigned()) {
      refuse_folder(folder / kIndexFile,
                    place + ": " + key + " is missing, or no number from 0 on; record the gradients again");
    }
    return found->get<std::uint64_t>();
  };
  const fs::path file = text_of("file");
  if (!lies_below(file)) {
    refuse_folder(folder / kIndexFile, place + ": the file " + text::quote(file.string()) +
                                           " does not lie in this folder; record the gradients again");
  }
  std::vector<StoredGradient> found = list_file(folder / file).gradients;
  if (found.size() != 1 || found.front().count != number_of("count") ||
      to_string(found.front().dtype) != text_of("dtype")) {
    refuse_folder(folder / kIndexFile, place + ": the file " + text::quote(file.string()) +
                                           " does not hold what the index says; record the gradients again");
  }
  found.front().name = text_of("name");
  found.front().step = number_of("step");
  return std::move(found.front());
}

Listing list_index(const fs::path& folder) {
  const fs::path file = folder / kIndexFile;
  const json index = parse_shallow(read_file(file, kMostJsonBytes, "index of gradients"));
  if (!index.is_object() || !index.contains("schema") || index["schema"] != kIndexSchema ||
      !index.contains("gradients") || !index["gradients"].is_array()) {
    refuse_folder(file, "is no index of recorded gradients (" + std::string(kIndexSchema) +
                            "); name the files themselves, or record the gradients again");
  }
  Listing listing;
  for (const json& entry : index["gradients"]) {
    listing.gradients.push_back(
        read_entry(folder, entry, "gradients, entry " + std::to_string(listing.gradients.size())));
  }
  return listing;
}

std::vector<fs::path> sorted_entries(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code problem;
  for (fs::directory_iterator entry(folder, problem), end; !problem && entry != end; entry.increment(problem)) {
    entries.push_back(entry->path());
    if (entries.size() > kMostFiles) {
      refuse_folder(folder, "holds more than " + std::to_string(kMostFiles) + " files; name some of them");
    }
  }
  if (problem) {
    refuse_folder(folder, "cannot be read (" + problem.message() + ")");
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

bool has_format(const fs::path& file) { return file.extension() == ".npy" || file.extension() == ".safetensors"; }

void append(Listing& all, Listing more, std::uint64_t step) {
  for (StoredGradient& gradient : more.gradients) {
    gradient.step = step;
  }
  std::move(more.gradients.begin(), more.gradients.end(), std::back_inserter(all.gradients));
  std::move(more.left_out.begin(), more.left_out.end(), std::back_inserter(all.left_out));
}

std::optional<std::uint64_t> step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  std::uint64_t step = 0;
  if (!name.starts_with(kStepPrefix)) {
    return std::nullopt;
  }
  const char* const end = name.data() + name.size();
  const auto [at, error] = std::from_chars(name.data() + kStepPrefix.size(), end, step);
  return error == std::errc() && at == end ? std::optional(step) : std::nullopt;
}

}  // namespace

Listing list_folder(const fs::path& folder, std::optional<DType> raw) {
  std::error_code ignored;
  Listing listing;
  if (fs::exists(folder / kIndexFile, ignored)) {
    listing = list_index(folder);
  } else {
    for (const fs::path& entry : sorted_entries(folder)) {
      const bool is_folder = fs::is_directory(entry, ignored);
      if (const auto step = step_of(entry); is_folder && step) {
        for (const fs::path& file : sorted_entries(entry)) {
          if (has_format(file)) {
            append(listing, list_file(file), *step);
          }
        }
      } else if (!is_folder && (has_format(entry) || raw)) {
        append(listing, list_file(entry, raw), 0);
      }
    }
  }
  if (listing.gradients.empty()) {
    refuse_folder(folder,
                  "holds no gradients; gradwire run --record-gradients records some, and .npy and .safetensors files "
                  "are read");
  }
  std::stable_sort(listing.gradients.begin(), listing.gradients.end(),
                   [](const StoredGradient& a, const StoredGradient& b) { return a.step < b.step; });
  return listing;
}

}  // namespace gradwire::record
