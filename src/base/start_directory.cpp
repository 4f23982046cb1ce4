#include "base/start_directory.hpp"

#include <filesystem>
#include <system_error>

namespace gradwire {
namespace {

std::string current_directory() {
  std::error_code error;
  return std::filesystem::current_path(error).string();  // empty where it was removed
}

const std::string& start_directory() {
  static const std::string& directory = *new std::string(current_directory());  // never destroyed, for late calls
  return directory;
}

// This runs when the library is loaded.
const bool g_noted = !start_directory().empty();

}  // namespace

std::string from_start_directory(const std::string& path) {
  const bool relative = !path.empty() && path.front() != '/' && g_noted;
  return relative ? start_directory() + "/" + path : path;
}

}  // namespace gradwire
