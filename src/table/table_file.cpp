#include "table/table_file.hpp"

#include <algorithm>
#include <charconv>
#include <set>
#include <span>
#include <string_view>
#include <system_error>

#include "codec/packed_pieces.hpp"
#include "table/hash_ring.hpp"
#include "table/table_file_bytes.hpp"

namespace gradwire::table {
namespace {

constexpr std::string_view kExtension = ".gwtable";

std::string file_name(const std::string& table, int rank, int world_size) {
  return table + "-rank-" + std::to_string(rank) + "-of-" + std::to_string(world_size) + std::string(kExtension);
}

/// The error for a file of `world` that cannot be read.
Error missing_file(const Error& error, int world) {
  if (error.code() != ErrorCode::invalid_argument) {
    return error;
  }
  return {error.code(),
          std::string(error.what()) + "; load() needs the files of all " + std::to_string(world) + " ranks that saved"};
}

/// The size of the world that saved this table in `directory`.
int saved_world(const std::string& table, const std::filesystem::path& directory) {
  std::error_code error;
  std::set<int> worlds;
  const std::string begin = table + "-rank-";
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = current_of(entry->path().filename().string());
    const std::size_t of = name.rfind("-of-");
    int world = 0;
    if (name.starts_with(begin) && name.ends_with(kExtension) && of != std::string::npos &&
        std::from_chars(name.data() + of + 4, name.data() + name.size() - kExtension.size(), world).ec == std::errc() &&
        world > 0) {
      worlds.insert(world);
    }
  }
  if (worlds.size() != 1) {
    throw Error(ErrorCode::invalid_argument,
                directory.string() + ": holds " + (worlds.empty() ? "no" : "more than one world's") +
                    " files of table \"" + table + "\" (" + begin + "R-of-N" + std::string(kExtension) +
                    "); name a directory that one save() wrote to" + (error ? " (" + error.message() + ")" : ""));
  }
  return *worlds.begin();
}

/// The saves of one rank's files, the latest first.
std::vector<SaveId> saves_of(int rank, int world, const std::string& table, const std::filesystem::path& directory) {
  const std::filesystem::path file = directory / file_name(table, rank, world);
  std::vector<SaveId> saves;
  for (const auto& save : {save_in(file), save_in(previous_of(file))}) {
    if (save) {
      saves.push_back(*save);
    }
  }
  return saves;
}

}  // namespace

std::unique_ptr<DurableFile> make_table_file(const FileHead& head, const Shard& rows,
                                             const std::filesystem::path& directory) {
  if (head.packed) {
    codec::require_packing();
  }
  return std::make_unique<DurableFile>(directory, file_name(head.name, head.rank, head.world_size),
                                       [&](std::ostream& stream) { write_file(stream, head, rows); });
}

std::vector<SaveId> own_saves(const FileHead& head, const std::filesystem::path& directory) {
  return saves_of(head.rank, head.world_size, head.name, directory);
}

std::vector<SaveId> saves_in(const FileHead& head, const std::filesystem::path& directory) {
  const int world = saved_world(head.name, directory);
  if (world == head.world_size) {
    return own_saves(head, directory);
  }
  std::vector<SaveId> saves = saves_of(0, world, head.name, directory);
  for (int rank = 1; rank < world && !saves.empty(); ++rank) {
    const std::vector<SaveId> here = saves_of(rank, world, head.name, directory);
    std::erase_if(saves, [&](const SaveId& save) { return std::find(here.begin(), here.end(), save) == here.end(); });
  }
  return saves;
}

FileRows read_table_files(const FileHead& head, const std::filesystem::path& directory,
                          const std::optional<SaveId>& save, const std::function<void(const Shard::Row&)>& take) {
  const int world = saved_world(head.name, directory);
  const bool same = world == head.world_size;
  const HashRing saved(world);
  const HashRing here(head.world_size);
  FileRows result;
  std::vector<std::string> saves;
  for (int rank = same ? head.rank : 0; rank < (same ? head.rank + 1 : world); ++rank) {
    result.path = directory / file_name(head.name, rank, world);
    if (save && save_in(result.path) != save && save_in(previous_of(result.path)) == save) {
      result.path = previous_of(result.path);
    }
    FileHead of_file = head;
    of_file.rank = rank;
    of_file.world_size = world;
    try {
      result.save = read_file(result.path, of_file, saved, [&](std::uint64_t id, std::span<const float> floats) {
        if (here.owner(id) == head.rank) {
          take({.id = id, .values = floats.first(head.width), .accumulators = floats.subspan(head.width)});
        }
      });
    } catch (const Error& error) {
      throw missing_file(error, world);
    }
    saves.push_back(to_text(result.save, result.path));
  }
  compare_saves(saves);
  return result;
}

}  // namespace gradwire::table
