#include "session/state/state_file.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/durable_file.hpp"
#include "base/log.hpp"
#include "base/regular_file.hpp"
#include "gradwire/error.hpp"

namespace gradwire::session {

std::string state_file_name(int rank, int world_size) {
  return "rank-" + std::to_string(rank) + "-of-" + std::to_string(world_size) + ".gradwire";
}

namespace {

[[noreturn]] void fail_io(const std::filesystem::path& path, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, path.string() + ": " + what);
}

SavedState read_state_file(const std::filesystem::path& file, RowSink* rows, const ResidualSpills& spills) {
  RegularFileStream stream(file, "state");
  return read_state(stream, file.string(), rows, spills);
}

// Returns nothing if the file does not exist, is no state, or cannot be read without waiting, such as a pipe.
std::optional<std::uint64_t> step_of(const std::filesystem::path& file) {
  try {
    RegularFileStream stream(file, "state");
    return read_step(stream);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Returns the step of the last save of which every rank has a file: the step of the current files if all have the same,
// or else the latest step that all ranks have. Returns nothing if there is none, or if the files of other ranks are not
// here, as on a node's own disk.
std::optional<std::uint64_t> complete_step(const std::filesystem::path& directory, int world_size) {
  std::set<std::uint64_t> complete;
  auto current = step_of(directory / state_file_name(0, world_size));  // set as long as all ranks so far have it
  for (int rank = 0; rank < world_size; ++rank) {
    const std::filesystem::path file = directory / state_file_name(rank, world_size);
    const auto now = step_of(file);
    std::set<std::uint64_t> both;
    for (const auto& step : {now, step_of(previous_of(file))}) {
      if (step && (rank == 0 || complete.contains(*step))) {
        both.insert(*step);
      }
    }
    complete = std::move(both);
    if (complete.empty()) {
      return std::nullopt;
    }
    if (now != current) {
      current.reset();
    }
  }
  return current ? current : *complete.rbegin();
}

// Returns the world sizes of the states in a directory.
std::set<int> worlds_in(const std::filesystem::path& directory) {
  std::error_code error;
  std::set<int> worlds;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = current_of(entry->path().filename().string());
    const std::size_t of = name.find("-of-");
    if (name.starts_with("rank-") && name.ends_with(".gradwire") && of != std::string::npos) {
      int world = 0;
      const char* begin = name.data() + of + 4;
      const auto [rest, failure] = std::from_chars(begin, name.data() + name.size(), world);
      if (failure == std::errc() && std::string_view(rest) == ".gradwire" && world > 0) {
        worlds.insert(world);
      }
    }
  }
  if (error) {
    fail_io(directory, "cannot be read (" + error.message() + ")");
  }
  return worlds;
}

}  // namespace

void write_state_file(const SavedState& state, const std::filesystem::path& directory,
                      const std::optional<KnownFiles>& known) {
  const std::string name = state_file_name(state.rank, state.world_size);
  DurableFile file(directory, name, [&](std::ostream& stream) { write_state(state, stream); });
  // A save of which all ranks have a file must stay until all ranks have the new one. If the current file is of another
  // step, it is from another run or from a save that not all ranks wrote. Then the previous file is kept, if there is
  // one.
  const auto before = step_of(directory / name);
  const bool whole = known && known->directory == directory ? before == known->step : before < state.step;
  const bool keeps = whole || !step_of(previous_of(directory / name));
  file.commit(before && before != state.step && keeps ? DurableFile::Old::kept : DurableFile::Old::replaced);
}

std::vector<SavedState> read_state_files(const std::filesystem::path& directory, int rank, int world_size,
                                         RowSink* rows, const ResidualSpills& spills) {
  const std::set<int> worlds = worlds_in(directory);
  if (worlds.empty()) {
    fail_io(directory, "holds no state (rank-R-of-N.gradwire); name the directory that save() wrote to");
  }
  if (worlds.size() > 1) {
    std::string sizes;
    for (const int world : worlds) {
      sizes += (sizes.empty() ? "" : " and ") + std::to_string(world);
    }
    fail_io(directory, "holds states of worlds of " + sizes + " ranks; remove the files of the older ones");
  }
  const int saved = *worlds.begin();
  const auto complete = complete_step(directory, saved);
  std::vector<SavedState> states;
  const bool own = saved == world_size && rows == nullptr;
  for (int r = own ? rank : 0; r < (own ? rank + 1 : saved); ++r) {
    std::filesystem::path file = directory / state_file_name(r, saved);
    if (complete && step_of(file) != complete) {
      file = previous_of(file);
      log(LogLevel::warning, "load: " + directory.string() + ": the last save is not complete; step " +
                                 std::to_string(*complete) + " is the last of which every rank has a file");
    }
    states.push_back(read_state_file(file, rows, spills));
    const SavedState& state = states.back();
    if (state.rank != r || state.world_size != saved) {
      throw Error(ErrorCode::mismatch, file.string() + ": is the state of rank " + std::to_string(state.rank) + " of " +
                                           std::to_string(state.world_size) + "; it was renamed");
    }
    if (state.step != states.front().step) {
      throw Error(ErrorCode::mismatch, file.string() + ": is of step " + std::to_string(state.step) + ", rank 0's of " +
                                           std::to_string(states.front().step) +
                                           "; use files that were saved after one step");
    }
    if (!std::ranges::equal(state.tables, states.front().tables, {}, &table::SavedTable::layout,
                            &table::SavedTable::layout)) {
      throw Error(ErrorCode::corrupt, file.string() +
                                          ": rows of tables lay on other ranks than when rank 0's file was "
                                          "written; some may be in none of the files: use another save");
    }
    if (saved == world_size && r != rank) {  // this file was read only for the rows of tables
      states.back().residuals = {};
      states.back().sync_modes.anchors = {};
      states.back().sync_modes.results = {};
    }
  }
  if (saved == world_size && rows != nullptr) {
    std::swap(states.front(), states[static_cast<std::size_t>(rank)]);
  }
  return states;
}

}  // namespace gradwire::session
