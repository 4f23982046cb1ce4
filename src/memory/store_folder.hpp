// Reads the place that policies and options name for bytes beyond memory.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

namespace gradwire::memory {

/// Returns DIR of "file:DIR", and no value for any other text.
[[nodiscard]] inline std::optional<std::filesystem::path> store_folder(std::string_view store) {
  constexpr std::string_view kFile = "file:";
  if (!store.starts_with(kFile) || store.size() == kFile.size()) {
    return std::nullopt;
  }
  return store.substr(kFile.size());
}

}  // namespace gradwire::memory
