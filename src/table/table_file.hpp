// One rank's part of a table as a file; docs/tables.md has the bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "table/shard.hpp"

namespace gradwire::table {

struct FileHead {
  std::string name;  // of the table
  int rank = 0;
  int world_size = 1;
  std::uint64_t rows = 0;  // of the table
  std::uint32_t width = 0;
  RowOptimizer optimizer = RowOptimizer::sgd;
};

/// The rows of a file, with the memory that they lie in.
struct FileRows {
  std::vector<float> memory;
  std::vector<Shard::Row> rows;
};

/// `directory`/NAME-rank-R-of-N.gwtable, under another name until it is complete; the directory is made.
/// Error(invalid_argument) names what cannot be written.
void write_table_file(const FileHead& head, const std::vector<Shard::Row>& rows,
                      const std::filesystem::path& directory);
/// What rank head.rank of a world of head.world_size needs: its own file, or those of all ranks of another world.
/// Error(corrupt) for damage, Error(mismatch) for another table's; both name the file.
[[nodiscard]] std::vector<FileRows> read_table_files(const FileHead& head, const std::filesystem::path& directory);

}  // namespace gradwire::table
