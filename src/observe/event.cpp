#include "observe/event.hpp"

#include <array>

namespace gradwire::observe {

std::string_view to_string(EventKind kind) noexcept {
  static constexpr std::array<std::string_view, kEventKinds> kNames{
      "step_begin", "step_end", "bucket_begin", "bucket_end", "encode",     "reduce", "decode",
      "native",     "wait",     "send",         "receive",    "all_reduce", "pull",   "push",
      "choice",     "compare",  "save",         "load",       "replaced",   "passed", "error"};
  const auto place = static_cast<std::size_t>(kind);
  return place < kNames.size() ? kNames[place] : "unknown";
}

}  // namespace gradwire::observe
