#include "base/read_file.hpp"

#include <algorithm>

#include "base/regular_file.hpp"
#include "base/units.hpp"
#include "gradwire/error.hpp"

namespace gradwire {

std::string read_file(const std::filesystem::path& file, std::size_t max_bytes, std::string_view what, Pipes pipes) {
  constexpr std::size_t kPart = std::size_t{64} << 10;
  RegularFile stream(file, what, pipes);
  std::string text;
  for (bool more = true; more && text.size() <= max_bytes;) {
    const std::size_t before = text.size();
    const std::size_t wanted = std::min(kPart, max_bytes + 1 - before);
    text.resize(before + wanted);
    const std::size_t got = stream.read(text.data() + before, wanted);
    text.resize(before + got);
    more = got == wanted;
  }
  if (text.size() > max_bytes) {
    throw Error(ErrorCode::invalid_argument, std::string(what) + " " + file.string() + ": has more than " +
                                                 format_bytes(max_bytes) + "; is this a " + std::string(what) + "?");
  }
  return text;
}

}  // namespace gradwire
