#include "table/options.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string_view>

#include "base/units.hpp"
#include "memory/store_folder.hpp"
#include "table/row_cache.hpp"
#include "table/row_codec.hpp"

namespace gradwire::table {
namespace {

constexpr std::uint32_t kMostWidth = 4096;

[[noreturn]] void reject(const std::string& table, const std::string& what, ErrorCode code) {
  throw Error(code, "table \"" + table + "\": " + what);
}

std::uint64_t physical_memory() {
  const auto pages = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES));
  return pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

bool is_file_name(const std::string& name) {
  constexpr std::string_view kFit = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  return !name.empty() && name.size() <= 128 && name.find_first_not_of(kFit) == std::string::npos;
}

std::string exact(float value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

void check_cache(const TableOptions& options) {
  const std::uint64_t row = RowCache::bytes_per_row(options.width);
  if (options.cache_bytes != 0 && options.cache_bytes < row) {
    reject(options.name,
           "cache_bytes = " + std::to_string(options.cache_bytes) + " holds no row, which takes " +
               std::to_string(row) + " bytes; give more, or 0 for no cache",
           ErrorCode::invalid_argument);
  }
  if (options.cache_bytes > physical_memory()) {
    reject(options.name,
           "cache_bytes = " + format_bytes(options.cache_bytes) + ", but this machine has " +
               format_bytes(physical_memory()) + " of memory; give less",
           ErrorCode::out_of_memory);
  }
}

void check_store(const RowOptions& options) {
  if (options.store.empty() && options.memory != 0) {
    reject(options.name,
           "memory = " + format_bytes(options.memory) + " needs a store for the other rows; set store = \"file:DIR\"",
           ErrorCode::invalid_argument);
  }
  if (!options.store.empty() && options.memory == 0) {
    reject(options.name, "store = \"" + options.store + "\" needs the bytes of memory that rows may take; set memory",
           ErrorCode::invalid_argument);
  }
  try {
    static_cast<void>(options.store.empty() ? "" : store_folder(options.store));
  } catch (const Error& error) {
    reject(options.name, error.what(), error.code());
  }
}

}  // namespace

std::filesystem::path store_folder(const std::string& store) {
  const std::optional<std::filesystem::path> folder = memory::store_folder(store);
  if (!folder) {
    throw Error(ErrorCode::invalid_argument,
                "store = \"" + store + "\" is unknown; write \"file:DIR\" with a directory on a local disk");
  }
  return *folder;
}

void check_rows(const RowOptions& options) {
  constexpr ErrorCode kInvalid = ErrorCode::invalid_argument;
  if (!is_file_name(options.name)) {
    reject(options.name, "a name has 1 to 128 letters, digits, '.', '_' or '-', since files are named after it",
           kInvalid);
  }
  if (options.rows == 0 || options.width == 0 || options.width > kMostWidth) {
    reject(options.name,
           "rows = " + std::to_string(options.rows) + ", width = " + std::to_string(options.width) +
               "; give at least one row, and a width of 1 to " + std::to_string(kMostWidth),
           kInvalid);
  }
  if (!std::isfinite(options.learning_rate) || !(options.epsilon >= 0) || !(options.initial_scale >= 0) ||
      !std::isfinite(options.epsilon) || !std::isfinite(options.initial_scale)) {
    reject(options.name, "learning_rate must be finite, epsilon and initial_scale finite and not below 0", kInvalid);
  }
  check_store(options);
  try {
    static_cast<void>(RowCodec(options.codec, options.width));
    static_cast<void>(RowCodec(options.gradient_codec, options.width));
  } catch (const Error& error) {
    reject(options.name, error.what(), error.code());
  }
}

void check_options(const TableOptions& options) {
  check_rows(row_options(options));
  if (options.timeout.count() <= 0) {
    reject(options.name, "the timeout is " + std::to_string(options.timeout.count()) + " ms; it must be above 0",
           ErrorCode::invalid_argument);
  }
  check_cache(options);
}

std::string row_lines(const RowOptions& options) {
  std::ostringstream text;
  text << "name = " << options.name << "\nrows = " << options.rows << "\nwidth = " << options.width
       << "\noptimizer = " << name_of(options.optimizer) << "\nlearning_rate = " << exact(options.learning_rate)
       << "\nepsilon = " << exact(options.epsilon) << "\ninitial_scale = " << exact(options.initial_scale)
       << "\nseed = " << options.seed << "\ncodec = " << options.codec.to_string()
       << "\ngradient_codec = " << options.gradient_codec.to_string() << "\n";
  return text.str();
}

std::string read_lines(std::uint64_t staleness, bool read_own_writes) {
  return "staleness = " + (staleness == TableOptions::kUnbounded ? "unbounded" : std::to_string(staleness)) +
         "\nread_own_writes = " + (read_own_writes ? "true" : "false") + "\n";
}

std::string agreement_text(const TableOptions& options, int world_size) {
  return "world size = " + std::to_string(world_size) + "\n" + row_lines(row_options(options)) +
         read_lines(options.staleness, options.read_own_writes);
}

SessionTableOptions session_options_of(const TableOptions& options) {
  check_options(options);
  const TableOptions plain;
  const char* other = options.staleness != plain.staleness               ? "staleness"
                      : options.cache_bytes != plain.cache_bytes         ? "cache_bytes"
                      : options.read_own_writes != plain.read_own_writes ? "read_own_writes"
                                                                         : nullptr;
  if (other != nullptr) {
    refuse_for_session(options.name, other);
  }
  SessionTableOptions result = row_options(options);
  result.copies = options.copies;
  return result;
}

void refuse_for_session(const std::string& table, const char* option) {
  reject(table,
         std::string(option) +
             " is for a Table of its own: rows of a session's table are those behind the last step, on every rank; "
             "leave it out, or make a gradwire::Table",
         ErrorCode::invalid_argument);
}

void compare_agreements(const std::string& table, const std::vector<std::string>& texts) {
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    std::istringstream first(texts[0]);
    std::istringstream other(texts[rank]);
    std::string here;
    std::string there;
    while (std::getline(first, here) && std::getline(other, there)) {
      if (here != there) {
        throw Error(ErrorCode::mismatch, "table \"" + table + "\": rank 0 has " + here + ", rank " +
                                             std::to_string(rank) + " has " + there + "; use the same on every rank");
      }
    }
  }
}

}  // namespace gradwire::table
