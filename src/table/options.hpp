// Checks options, and that ranks have the same ones.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "gradwire/table.hpp"
#include "table/row_options.hpp"

namespace gradwire::table {

/// Throws Error(invalid_argument), or Error(out_of_memory) for a cache larger than this machine's memory; the text
/// names the option and the fix.
void check_options(const TableOptions& options);
/// Checks only the options of rows, without `copies`.
void check_rows(const RowOptions& options);
/// The directory of a store, "file:DIR". Throws Error(invalid_argument) for another text.
[[nodiscard]] std::filesystem::path store_folder(const std::string& store);
/// The options that ranks must agree on, as lines "name = value": of rows, of reads, and all with the size of the
/// world.
[[nodiscard]] std::string row_lines(const RowOptions& options);
[[nodiscard]] std::string read_lines(std::uint64_t staleness, bool read_own_writes);
[[nodiscard]] std::string agreement_text(const TableOptions& options, int world_size);
/// Converts a Table's options to those of a session's table. Throws Error(invalid_argument) for an option that a
/// session's table does not have.
[[nodiscard]] SessionTableOptions session_options_of(const TableOptions& options);
[[noreturn]] void refuse_for_session(const std::string& table, const char* option);
/// Throws Error(mismatch) that names the first line in which ranks differ. `texts` are by rank.
void compare_agreements(const std::string& table, const std::vector<std::string>& texts);

}  // namespace gradwire::table
