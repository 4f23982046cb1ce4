#include "session/parts/checkpoints/checkpoint_folder.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/durable_file.hpp"
#include "base/log.hpp"
#include "base/own_files.hpp"
#include "gradwire/error.hpp"

namespace gradwire::session {
namespace {

constexpr std::string_view kUnusable = ".unusable";
constexpr std::size_t kUnderWay =
    3;  // steps; ranks write one at a time, and begin the next but one only once all have written this one

bool is_complete(const std::filesystem::path& folder, const CheckpointName& name) {
  std::error_code ignored;
  bool all = std::filesystem::exists(folder / kParametersFile, ignored);
  for (int rank = 0; all && rank < name.world_size; ++rank) {
    all = std::filesystem::exists(folder / state_file_name(rank, name.world_size), ignored);
  }
  return all;
}

struct Found {
  CheckpointName name;
  std::filesystem::path folder;
  bool complete = false;
  std::filesystem::file_time_type written = {};  // meaningful only if complete

  [[nodiscard]] bool is_unusable() const { return folder.string().ends_with(kUnusable); }
};

// Returns the first of its files that is missing.
std::string missing_in(const Found& found) {
  std::error_code ignored;
  for (int rank = 0; rank < found.name.world_size; ++rank) {
    std::string file = state_file_name(rank, found.name.world_size);
    if (!std::filesystem::exists(found.folder / file, ignored)) {
      return file;
    }
  }
  return std::string(kParametersFile);
}

void remove_folder(const std::filesystem::path& folder) {
  std::error_code error;
  gradwire::remove_folder(folder, std::string(kParametersFile), error);  // without this file it is incomplete
  if (error) {
    log(LogLevel::warning, "checkpoint: " + folder.string() + " cannot be removed: " + error.message());
  }
}

// Returns all checkpoints, the newest first, including those set aside, which are never complete.
std::vector<Found> find_all(const std::filesystem::path& directory) {
  std::vector<Found> all;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    std::string text = entry->path().filename().string();
    const bool unusable = text.ends_with(kUnusable);
    text.resize(text.size() - (unusable ? kUnusable.size() : 0));
    if (const auto name = CheckpointName::parse(text)) {
      Found found{*name, entry->path(), !unusable && is_complete(entry->path(), *name)};
      std::error_code ignored;
      found.written = std::filesystem::last_write_time(found.folder / kParametersFile, ignored);
      all.push_back(std::move(found));
    }
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw Error(ErrorCode::invalid_argument, directory.string() + ": cannot be read (" + error.message() + ")");
  }
  std::sort(all.begin(), all.end(), [](const Found& a, const Found& b) {
    return a.name.step != b.name.step ? a.name.step > b.name.step : a.written > b.written;
  });
  return all;
}

template <class Number>
bool take_number(std::string_view& text, Number& number, int base = 10) {
  const auto [rest, failure] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  return failure == std::errc();
}

bool take(std::string_view& text, std::string_view prefix) {
  const bool there = text.starts_with(prefix);
  text.remove_prefix(there ? prefix.size() : 0);
  return there;
}

}  // namespace

std::string CheckpointName::text() const {
  char text[96];
  std::snprintf(text, sizeof text, "step-%012llu-of-%d-%016llx", static_cast<unsigned long long>(step), world_size,
                static_cast<unsigned long long>(hash));
  return text;
}

std::optional<CheckpointName> CheckpointName::parse(const std::string& text) {
  CheckpointName name;
  std::string_view rest = text;
  const bool good = take(rest, "step-") && take_number(rest, name.step) && take(rest, "-of-") &&
                    take_number(rest, name.world_size) && take(rest, "-") && take_number(rest, name.hash, 16) &&
                    rest.empty() && name.world_size > 0 && name.text() == text;
  return good ? std::optional(name) : std::nullopt;
}

void write_checkpoint_state(const std::filesystem::path& directory, const CheckpointName& name,
                            const SavedState& state) {
  unlink_link(directory / name.text());  // this job must not write to the target of a link
  DurableFile(directory / name.text(), state_file_name(state.rank, state.world_size), [&](std::ostream& stream) {
    write_state(state, stream);
  }).commit();
  sync_directory(directory);  // the folder may be new
}

void rotate_checkpoints(const std::filesystem::path& directory, int keep) {
  std::optional<std::uint64_t> oldest;  // the oldest step of a kept checkpoint
  std::set<std::uint64_t> newer;        // steps of newer checkpoints
  for (const Found& found : find_all(directory)) {
    const bool given_up = !found.complete && !found.is_unusable() && newer.size() >= kUnderWay;
    newer.insert(found.name.step);
    if (found.complete && keep > 0) {
      oldest = found.name.step;
      --keep;
    } else if (found.complete || given_up || (keep == 0 && found.name.step < oldest)) {
      if (given_up && found.name.step > oldest.value_or(0)) {
        log(LogLevel::warning, "checkpoint: " + found.folder.string() +
                                   " never became complete, and is removed: " + missing_in(found) +
                                   " did not come; do all ranks see this directory, and hold the same parameters?");
      }
      remove_folder(found.folder);
    }
  }
}

std::vector<CheckpointName> complete_checkpoints(const std::filesystem::path& directory) {
  std::vector<CheckpointName> names;
  for (const Found& found : find_all(directory)) {
    if (found.complete) {
      names.push_back(found.name);
    }
  }
  return names;
}

std::uint64_t latest_checkpoint_step(const std::filesystem::path& directory) {
  for (const Found& found : find_all(directory)) {
    if (!found.is_unusable()) {
      return found.name.step;
    }
  }
  return 0;
}

void set_aside_later_checkpoints(const std::filesystem::path& directory, std::uint64_t step) {
  for (const Found& found : find_all(directory)) {
    if (found.name.step <= step || found.is_unusable()) {
      continue;
    }
    const std::string to = found.folder.string() + std::string(kUnusable);
    std::error_code error;
    std::filesystem::remove_all(to, error);
    std::filesystem::rename(found.folder, to, error);
    log(LogLevel::warning, "restore: " + found.folder.string() + " is " +
                               (found.complete ? "damaged" : "not complete: a file is missing") +
                               (error ? ", and cannot be renamed: " + error.message() : "; it is " + to + " now"));
  }
}

}  // namespace gradwire::session
