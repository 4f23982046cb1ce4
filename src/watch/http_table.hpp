// What libgradwire_export.so and who loads it have in common. Only what C has: the two may hold C++ runtimes of their
// own. The loader asks for kExportVersion, which changes with anything here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradwire::watch {

inline constexpr std::uint32_t kExportVersion = 1;

struct PlainLabel {
  const char* name;
  const char* value;
};

struct PlainSample {
  const PlainLabel* labels;
  std::size_t label_count;
  double value;  // of a histogram: the sum
  // Of a histogram: how many values lay at or below each bound, and how many there were.
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
/// Adds every family to the page. On a thread of the server; one at a time.
using CollectFamilies = void (*)(void* context, void* page, AddFamily add) noexcept;

/// The address itself cannot be had, whatever the port.
inline constexpr int kAddress = 2;

struct ExportTable {
  std::uint32_t version;  // kExportVersion
  /// Serves /metrics at "127.0.0.1:9464" until the process ends; `context` must last as long. A child that forks off
  /// serves nothing. Returns 0, or why not and that as a text: kAddress where another port would not help.
  int (*serve)(const char* address, CollectFamilies collect, void* context, char* why, std::size_t why_bytes) noexcept;
};

}  // namespace gradwire::watch

/// The one name that the library shows.
extern "C" const gradwire::watch::ExportTable* gradwire_export_functions();
