// One rank's part of a table as a file; docs/explanation/tables.md has the bytes. All files of one save have its id.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/durable_file.hpp"
#include "table/shard.hpp"
#include "wire/bytes.hpp"

namespace gradwire::table {

/// One call of save(), the same in the files of all ranks.
struct SaveId {
  std::uint64_t clock = 0;   // of rank 0
  std::uint64_t number = 0;  // random
  friend bool operator==(const SaveId&, const SaveId&) = default;
};
[[nodiscard]] SaveId new_save_id(std::uint64_t clock);
[[nodiscard]] SaveId read_save(wire::ByteReader& in);

struct FileHead {
  std::string name;  // of the table
  int rank = 0;
  int world_size = 1;
  std::uint64_t rows = 0;  // of the table
  std::uint32_t width = 0;
  RowOptimizer optimizer = RowOptimizer::sgd;
  SaveId save = {};
  bool packed = false;  // the rows of the file are packed by libzstd; ignored for files that are read
};

/// The saved files of which read_table_files() has passed the rows.
struct FileRows {
  std::filesystem::path path;  // of one of the files
  SaveId save;                 // theirs
};

/// Writes all rows of a shard to `directory`/NAME-rank-R-of-N.gwtable, under another name until it is committed; makes
/// the directory. Throws Error(invalid_argument) that names a path which cannot be written, Error(unsupported) if the
/// file is to be packed and there is no libzstd, and what Shard::visit() throws.
[[nodiscard]] std::unique_ptr<DurableFile> make_table_file(const FileHead& head, const Shard& rows,
                                                           const std::filesystem::path& directory);
/// The saves that this rank could load, the latest first: those of its own files, or of the files of all ranks of
/// another world. Each file may have a predecessor (previous_of), in case a save was interrupted between two ranks.
[[nodiscard]] std::vector<SaveId> saves_in(const FileHead& head, const std::filesystem::path& directory);
/// The saves of this rank's own files of this world, the latest first.
[[nodiscard]] std::vector<SaveId> own_saves(const FileHead& head, const std::filesystem::path& directory);
/// Passes the rows of rank head.rank in a world of head.world_size to take(row), each valid during the call: from its
/// own file, or from those of all ranks of another world. A file is checked before its rows are passed. Throws
/// Error(corrupt) for damage, Error(mismatch) for another table's file, for files of different saves and for a row that
/// its file's rank does not hold; the texts name the file. head.save is ignored. `save` is one of saves_in(); without a
/// value, any save is loaded.
[[nodiscard]] FileRows read_table_files(const FileHead& head, const std::filesystem::path& directory,
                                        const std::optional<SaveId>& save,
                                        const std::function<void(const Shard::Row&)>& take);

/// The text that ranks exchange about the files that they will load, and the save that they will write.
[[nodiscard]] std::string to_text(const SaveId& save, const std::filesystem::path& file = {});
[[nodiscard]] std::string to_text(const std::vector<SaveId>& saves);
/// The first save of texts[0] that all `texts` have.
[[nodiscard]] std::optional<SaveId> common_save(const std::vector<std::string>& texts);
/// `text` is rank `peer`'s.
[[nodiscard]] SaveId save_of(const std::string& text, int peer);
/// Throws Error(mismatch) that names two files of different saves; `texts` are results of to_text().
void compare_saves(const std::vector<std::string>& texts);

}  // namespace gradwire::table
