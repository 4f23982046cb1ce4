// The bytes of a table's file: how its head and rows are written, checked and read. docs/explanation/tables.md has
// them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <ostream>
#include <span>

#include "table/hash_ring.hpp"
#include "table/table_file.hpp"

namespace gradwire::table {

/// Writes all rows of a shard.
void write_file(std::ostream& stream, const FileHead& head, const Shard& rows);

/// The save that a file belongs to, by its head alone; no value if it is no such file or cannot be read.
[[nodiscard]] std::optional<SaveId> save_in(const std::filesystem::path& file);

/// Passes each row of a file, whose head must fit `expected`, to visit(id, its floats), and returns the file's save.
/// `expected` has the rank and the world size of the rank that saved it, and `shares` are the rows of all ranks of that
/// world. The whole file is checked before the first row is passed. Throws what read_table_files() throws for a file.
SaveId read_file(const std::filesystem::path& path, const FileHead& expected, const HashRing& shares,
                 const std::function<void(std::uint64_t id, std::span<const float> floats)>& visit);

}  // namespace gradwire::table
