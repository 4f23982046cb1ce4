// The file by which processes find a job that they join: a line for each of the job's processes, with a secret. Only
// its owner may read it (mode 0600).
#pragma once

#include <filesystem>
#include <vector>

#include "transport/tcp/tcp_introduction.hpp"

namespace gradwire::transport::tcp {

/// Of process 0 at the start. Error(invalid_argument) where the folder is missing, the file is another one, or a
/// process in it answers: then another job has it.
void check_join_file_is_free(const std::filesystem::path& file);
/// In place of what was there. Error(invalid_argument) where it cannot be written.
void write_join_file(const std::filesystem::path& file, const std::vector<Acquaintance>& processes);
/// Adds one who joined; a warning where that is not possible.
void append_to_join_file(const std::filesystem::path& file, const Acquaintance& process);
/// Error(invalid_argument) where there is none, Error(mismatch) where it is of another version. Names are empty.
[[nodiscard]] std::vector<Acquaintance> read_join_file(const std::filesystem::path& file);

}  // namespace gradwire::transport::tcp
