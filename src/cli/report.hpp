// What the preloaded library writes at the end of a job (GRADWIRE_REPORT), as a table for people.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace gradwire::cli {

struct Report {
  std::uint64_t calls = 0;             // of functions that gradwire handles
  std::uint64_t compressed_calls = 0;  // in a dry run: that would have been
  std::uint64_t ranks = 0;
  bool observed = false;  // no codec was named, so that nothing could be compressed
  bool disabled = false;  // no rank looked at a call; the table says why
  std::string text;       // the table
};

/// Error(corrupt) that names the file where it is no report.
[[nodiscard]] Report read_report(const std::filesystem::path& file);

}  // namespace gradwire::cli
