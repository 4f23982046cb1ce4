// Runs Chromium without a window, for tests that look at pages.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/support/run_program.hpp"

namespace gradwire::test {

inline const std::string kChromium = GRADWIRE_CHROMIUM;
inline constexpr const char* kNoChromium =
    "there is no chromium; Debian: apt-get install chromium, then configure again";

/// Runs Chromium with `arguments`, for at most `seconds`. Pages are files, and may read each other.
inline Outcome run_chromium(const std::string& profile, const std::string& arguments, int seconds = 100) {
  return run_program("timeout -k 5 " + std::to_string(seconds) + " '" + kChromium + "' --headless=new " +
                     (::geteuid() == 0 ? "--no-sandbox " : "") +
                     "--disable-gpu --no-first-run --hide-scrollbars --disable-dev-shm-usage --enable-logging=stderr "
                     "--allow-file-access-from-files --user-data-dir='" +
                     profile + "' " + arguments + " 2>&1");
}

inline std::string file_url(const std::filesystem::path& file) { return "'file://" + file.string() + "'"; }

}  // namespace gradwire::test
