// The interface between libgradwire_export.so and its loader. It uses only types of C, since the two may have C++
// runtimes of their own. The loader requires kExportVersion, which changes with any change here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradwire::watch {

inline constexpr std::uint32_t kExportVersion = 2;

struct PlainLabel {
  const char* name;
  const char* value;
};

struct PlainSample {
  const PlainLabel* labels;
  std::size_t label_count;
  double value;  // for a histogram: the sum
  // For a histogram: the number of values at or below each bound, and the number of all.
  const double* bounds;
  const std::uint64_t* below;
  std::size_t bound_count;
  std::uint64_t count;
};

struct PlainFamily {
  const char* name;
  const char* help;
  std::int32_t type;  // 0: counter, 1: gauge, 2: histogram
  const PlainSample* samples;
  std::size_t sample_count;
};

/// Takes a copy of a family into a page.
using AddFamily = void (*)(void* page, const PlainFamily* family) noexcept;
/// Adds every family to the page. Called on a thread of the server, one at a time.
using CollectFamilies = void (*)(void* context, void* page, AddFamily add) noexcept;

/// The address cannot be used with any port.
inline constexpr int kAddress = 2;

struct ExportTable {
  std::uint32_t version;  // kExportVersion
  /// Serves /metrics at "127.0.0.1:9464" until the process ends; `context` must live as long. A forked child serves
  /// nothing. Requests need the bearer token `token`, unless that is empty. Returns 0, or the kind of a failure, with
  /// its text in `why`: kAddress where another port would not help.
  int (*serve)(const char* address, const char* token, CollectFamilies collect, void* context, char* why,
               std::size_t why_bytes) noexcept;
};

}  // namespace gradwire::watch

/// The only name that the library exports.
extern "C" const gradwire::watch::ExportTable* gradwire_export_functions();
