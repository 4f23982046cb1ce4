// Libraries of gradwire that are linked nowhere and loaded only where a job needs them, so that other jobs need none of
// the outside libraries that they bring: the HTTP server of metrics, and cryptography.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace gradwire {

struct CompanionLibrary {
  const char* file_name;    // "libgradwire_export.so"
  const char* function;     // the only function that it exports
  std::string_view needed;  // how messages begin: what needs the library
  std::string_view advice;  // how they end: what to install or do instead
  /// Whether the library's references are resolved among its own dependencies first, whatever libraries with the same
  /// symbols the process has loaded for all to see. Not under a sanitizer, which must see every call.
  bool isolated = false;
};

/// The places where a companion may lie, seen from the library or program that contains this code: beside it; for a
/// program in a folder bin or libexec/gradwire also in the folder of libraries beside bin or libexec; for the module
/// for Python also two folders up. No other places are searched, since a file that is found runs at once.
[[nodiscard]] std::vector<std::string> companion_places(const std::string& file_name, const std::filesystem::path& code,
                                                        bool program);

/// Loads the library, for ever, and returns its function. `file` empty: from these places, if only this user, root and
/// the owner of this code could have put it there, or from where the loader looks. Error(unsupported) says why it
/// cannot be used, and what to install.
[[nodiscard]] void* load_companion(const CompanionLibrary& library, const std::string& file = {});

/// Throws that Error(unsupported): "`needed` needs FILE_NAME, WHY; `advice`".
[[noreturn]] void refuse_companion(const CompanionLibrary& library, const std::string& why);

}  // namespace gradwire
