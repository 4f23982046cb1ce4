// Whether options make sense, and whether ranks have the same ones.
#pragma once

#include <string>
#include <vector>

#include "gradwire/table.hpp"
#include "table/shard.hpp"

namespace gradwire::table {

/// Error(invalid_argument), or Error(out_of_memory) for a cache larger than this machine's memory; names the option and
/// the fix.
void check_options(const TableOptions& options);
[[nodiscard]] Shard::Settings shard_settings(const TableOptions& options) noexcept;
/// What ranks must agree on, "name = value" lines: of the table, and with the size of the world.
[[nodiscard]] std::string option_lines(const TableOptions& options);
[[nodiscard]] std::string agreement_text(const TableOptions& options, int world_size);
/// Error(mismatch) that names the first line in which ranks differ. `texts` by rank.
void compare_agreements(const std::string& table, const std::vector<std::string>& texts);

}  // namespace gradwire::table
