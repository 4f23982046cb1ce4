#include "base/durable_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <system_error>

#include "gradwire/error.hpp"

namespace gradwire {
namespace {

[[noreturn]] void fail_io(const std::filesystem::path& path, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, path.string() + ": " + what);
}

// A rename may reach the disk before the bytes do: without this a crash of the node could leave an empty file.
void sync_to_disk(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);  // NOLINT(cppcoreguidelines-pro-type-vararg)
  const bool failed = descriptor < 0 || (::fsync(descriptor) != 0 && errno != EINVAL);  // EINVAL: has nothing to sync
  const int reason = errno;
  if (descriptor >= 0) {
    ::close(descriptor);
  }
  if (failed) {
    fail_io(path, "cannot be brought to the disk (" + std::generic_category().message(reason) + ")");
  }
}

}  // namespace

void write_durably(const std::filesystem::path& directory, const std::string& name,
                   const std::function<void(std::ostream&)>& write) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  const std::filesystem::path file = directory / name;
  std::filesystem::path unfinished = file;
  unfinished += ".tmp";
  {
    std::ofstream stream(unfinished, std::ios::binary | std::ios::trunc);
    if (!stream) {
      fail_io(unfinished, "cannot be written (" + std::generic_category().message(errno) + ")");
    }
    write(stream);
    if (!stream.flush()) {
      fail_io(unfinished, "only a part could be written; is the disk full?");
    }
  }
  sync_to_disk(unfinished);
  std::filesystem::rename(unfinished, file, error);
  if (error) {
    fail_io(file, "cannot be renamed from " + unfinished.filename().string() + " (" + error.message() + ")");
  }
  sync_to_disk(directory);
}

}  // namespace gradwire
