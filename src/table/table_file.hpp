// One rank's part of a table as a file; docs/tables.md has the bytes. All files of one save have its id.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/durable_file.hpp"
#include "table/shard.hpp"

namespace gradwire::table {

/// One call of save(), the same in the files of all ranks.
struct SaveId {
  std::uint64_t clock = 0;   // of rank 0
  std::uint64_t number = 0;  // random
  friend bool operator==(const SaveId&, const SaveId&) = default;
};
[[nodiscard]] SaveId new_save_id(std::uint64_t clock);

struct FileHead {
  std::string name;  // of the table
  int rank = 0;
  int world_size = 1;
  std::uint64_t rows = 0;  // of the table
  std::uint32_t width = 0;
  RowOptimizer optimizer = RowOptimizer::sgd;
  SaveId save = {};
};

/// One rank's rows of saved files, with the memory that they lie in.
struct FileRows {
  std::filesystem::path path;  // of one of the files
  SaveId save;                 // theirs
  std::vector<float> memory;
  std::vector<Shard::Row> rows;
};

/// `directory`/NAME-rank-R-of-N.gwtable, under another name until it is committed; the directory is made.
/// Error(invalid_argument) names what cannot be written.
[[nodiscard]] std::unique_ptr<DurableFile> make_table_file(const FileHead& head, const std::vector<Shard::Row>& rows,
                                                           const std::filesystem::path& directory);
/// The saves that this rank could load, the latest first: of its own files, or of those of all ranks of another world.
/// Each file may have a predecessor beside it (previous_of), for where a save was cut off between two ranks.
[[nodiscard]] std::vector<SaveId> saves_in(const FileHead& head, const std::filesystem::path& directory);
/// Of this rank's own files of this world, the latest first.
[[nodiscard]] std::vector<SaveId> own_saves(const FileHead& head, const std::filesystem::path& directory);
/// The rows of rank head.rank in a world of head.world_size: from its own file, or those of all ranks of another world,
/// of which one at a time is in memory. Error(corrupt) for damage, Error(mismatch) for another table's, for files of
/// different saves and for a row that its file's rank does not hold; they name the file. head.save is ignored.
/// `save`: which, of saves_in(); none: whatever lies there.
[[nodiscard]] FileRows read_table_files(const FileHead& head, const std::filesystem::path& directory,
                                        const std::optional<SaveId>& save = std::nullopt);

/// What ranks tell each other of the files that they are about to load, and of the save that they are about to write.
[[nodiscard]] std::string to_text(const SaveId& save, const std::filesystem::path& file = {});
[[nodiscard]] std::string to_text(const std::vector<SaveId>& saves);
/// The first save of texts[0] that all `texts` have.
[[nodiscard]] std::optional<SaveId> common_save(const std::vector<std::string>& texts);
/// `text` is rank `peer`'s.
[[nodiscard]] SaveId save_of(const std::string& text, int peer);
/// Error(mismatch) that names two files of different saves; `texts` are to_text()s.
void compare_saves(const std::vector<std::string>& texts);

}  // namespace gradwire::table
