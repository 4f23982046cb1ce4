#include "base/read_file.hpp"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <system_error>

#include "base/units.hpp"
#include "gradwire/error.hpp"

namespace gradwire {

std::string read_file(const std::filesystem::path& file, std::size_t max_bytes, std::string_view what) {
  constexpr std::size_t kPart = std::size_t{64} << 10;
  const auto fail = [&](const std::string& why) {
    throw Error(ErrorCode::invalid_argument, std::string(what) + " " + file.string() + ": " + why);
  };
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) {
    fail("it is a folder; name a file in it");
  }
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  if (!stream) {
    fail("cannot be read (" + std::generic_category().message(errno) + "); check the path and its permissions");
  }
  std::string text;
  while (stream && text.size() <= max_bytes) {
    const std::size_t before = text.size();
    text.resize(before + std::min(kPart, max_bytes + 1 - before));
    stream.read(text.data() + before, static_cast<std::streamsize>(text.size() - before));
    text.resize(before + static_cast<std::size_t>(stream.gcount()));
  }
  if (stream.bad()) {
    fail("reading failed (" + std::generic_category().message(errno) + ")");
  }
  if (text.size() > max_bytes) {
    fail("has more than " + format_bytes(max_bytes) + "; is this a " + std::string(what) + "?");
  }
  return text;
}

}  // namespace gradwire
