// Whether options make sense, and whether ranks have the same ones.
#pragma once

#include <string>
#include <vector>

#include "gradwire/table.hpp"
#include "table/row_options.hpp"

namespace gradwire::table {

/// Error(invalid_argument), or Error(out_of_memory) for a cache larger than this machine's memory; names the option and
/// the fix.
void check_options(const TableOptions& options);
/// The part of it that is about rows; `copies` are not looked at.
void check_rows(const RowOptions& options);
/// What ranks must agree on, "name = value" lines: of rows, of reads, and of all with the size of the world.
[[nodiscard]] std::string row_lines(const RowOptions& options);
[[nodiscard]] std::string read_lines(std::uint64_t staleness, bool read_own_writes);
[[nodiscard]] std::string agreement_text(const TableOptions& options, int world_size);
/// The options of a session's table where a Table's were given: Error(invalid_argument) for what a session's has not.
[[nodiscard]] SessionTableOptions session_options_of(const TableOptions& options);
[[noreturn]] void refuse_for_session(const std::string& table, const char* option);
/// Error(mismatch) that names the first line in which ranks differ. `texts` by rank.
void compare_agreements(const std::string& table, const std::vector<std::string>& texts);

}  // namespace gradwire::table
