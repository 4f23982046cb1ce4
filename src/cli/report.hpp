// Formats the report that the preloaded library writes at the end of a job (GRADWIRE_REPORT) as a table for people.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace gradwire::cli {

inline constexpr std::size_t kMaxReportBytes = std::size_t{256} << 20;  // of a file

struct Report {
  std::uint64_t calls = 0;             // of functions that gradwire handles
  std::uint64_t compressed_calls = 0;  // in a dry run: calls that would have been compressed
  std::uint64_t ranks = 0;
  std::uint64_t dense_bytes = 0;  // that an uncompressed algorithm would send for them
  std::uint64_t sent_bytes = 0;
  bool observed = false;     // no codec was named, so that nothing could be compressed
  bool has_session = false;  // the job itself uses the library, whose messages are not in the table
  bool disabled = false;     // the drop-in was disabled on all ranks; the table says why
  std::string text;          // the table
};

/// Reads a report; Error(corrupt), which names the file, where it is none.
[[nodiscard]] Report read_report(const std::filesystem::path& file);

}  // namespace gradwire::cli
