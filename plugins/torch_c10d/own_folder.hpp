// The folder of the shared object that includes this file.
#pragma once

#include <dlfcn.h>

#include <string>

namespace gradwire::torch_c10d {

/// Returns the folder with its slash, or an empty string if it is not known. Symbols of our shared objects are hidden,
/// so each of them has a function of its own.
[[nodiscard]] inline std::string own_folder() {
  static const char here = 0;
  Dl_info info{};
  if (::dladdr(&here, &info) == 0 || info.dli_fname == nullptr) {
    return "";
  }
  const std::string file = info.dli_fname;
  return file.substr(0, file.rfind('/') + 1);
}

}  // namespace gradwire::torch_c10d
